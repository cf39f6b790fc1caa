"""Flows, behind the rights of the user who asks. The REST API, Rest.li and the pages call these functions alone.

A flow that the user may not read does not exist for the user.
"""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.model.job_ticket import TicketSelection
from gobblin_assets.service.access import AccessDeniedError, AccessRules, Action, User
from gobblin_assets.service.flow_catalog import FlowsRead
from gobblin_assets.service.flow_config import FlowConfig, read_flow_config
from gobblin_assets.service.flow_manager import FlowManager, forget_wish
from gobblin_assets.service.flow_store import FlowVersion, NamedJob, SpecNotFoundError, StoredFlow, no_flow
from gobblin_assets.service.job_plan import Explanation
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.slots import FlowSlot
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import FlowStatus

REQUEST_KEY_LENGTH_MAX: Final = 255
PAGE_FLOWS_MAX: Final = 500
PAGE_EXECUTIONS_MAX: Final = 200
PAGE_SLOTS: Final = 20

_PATCH_TRIES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ExecutionPage:
    """Executions of one flow, the latest first. ``after``: where the next page begins; None: this is the last."""

    executions: tuple[FlowStatus, ...]
    after: int | None


class GuardedFlows:
    """All that users do with flows. ``rules``: those of now."""

    def __init__(self, flows: FlowManager, rules: Callable[[], AccessRules]) -> None:
        self._flows = flows
        self._rules = rules

    def list_flows(
        self,
        user: User,
        *,
        group: str | None = None,
        search: str | None = None,
        is_pending: bool = False,
        after: FlowKey | None = None,
        limit: int = 50,
    ) -> FlowsRead:
        """Flows that the user may read, in the order of their groups and names."""
        scope = self._rules().scope_of(user, Action.READ)
        return self._flows.list_flows(
            group=group, search=search, after=after, limit=limit, scope=scope, is_pending=is_pending
        )

    def get(self, user: User, key: FlowKey) -> StoredFlow:
        self._check(user, Action.READ, key)
        return self._flows.get(key)

    def create(self, user: User, config: FlowConfig, *, request_key: str | None = None) -> StoredFlow:
        """``request_key``: a request that is sent again with its key makes no second flow."""
        key = FlowKey(config.flow_group, config.flow_name)
        self._rules().check(user, Action.CREATE, key)
        return self._flows.create(user, config, request_key=_own_request_key(user, request_key))

    def update(
        self,
        user: User,
        key: FlowKey,
        config: FlowConfig,
        *,
        if_version: str | None,
        keeps: Collection[str] = (),
    ) -> StoredFlow:
        """``keeps``: the names of options that stay as they are stored, whatever the config has."""
        self._check(user, Action.UPDATE, key)
        check_names_stay(key, config)
        self._check_wish(user, key, config)
        if keeps:
            stored = self._flows.get(key).spec.config
            config = config.model_copy(update={name: getattr(stored, name) for name in keeps})
        return self._flows.update(user, config, if_version)

    def patch(
        self, user: User, key: FlowKey, patch: object, *, if_version: str | None, fits: Callable[[StoredFlow], None]
    ) -> StoredFlow:
        """Merge a JSON Merge Patch (RFC 7396) into the flow's config. ``fits``: raises if it is not the flow meant."""
        self._check(user, Action.UPDATE, key)
        if not isinstance(patch, Mapping):
            raise RejectedError("expected a JSON object", field="body", hint="Write only what changes.")
        tries_left = 1 if if_version is not None else _PATCH_TRIES_MAX
        while True:
            flow = self._flows.get(key)
            fits(flow)
            stored = forget_wish(flow.spec.config).model_dump(mode="json", exclude_defaults=True)
            config = read_flow_config(merge_patch(stored, patch))
            check_names_stay(key, config)
            self._check_wish(user, key, config)
            tries_left -= 1
            try:
                return self._flows.update(user, config, if_version or flow.spec.version)
            except ConflictError:
                # Another one changed the flow in between: its change is kept, and the patch is merged into it.
                if tries_left == 0 or self._flows.get(key).spec.version == flow.spec.version:
                    raise

    def delete(self, user: User, key: FlowKey, *, if_version: str | None = None) -> None:
        """SpecNotFoundError: there is none."""
        self._check(user, Action.DELETE, key)
        if not self._flows.delete(key, if_version=if_version):
            raise no_flow(key)

    def explain(self, user: User, config: FlowConfig) -> Explanation:
        """Compile as for this user, who may create such a flow or change it; store nothing."""
        key = FlowKey(config.flow_group, config.flow_name)
        if not self.may(user, Action.UPDATE, key):
            self._rules().check(user, Action.CREATE, key)
        return self._flows.explain(user, config)

    def list_templates(self, user: User, config: FlowConfig) -> Sequence[JobTemplate]:
        """The templates whose parameters such a flow needs, of those that the user may use, whatever its name is."""
        return self._flows.list_templates(user, config)

    def explain_stored(self, user: User, key: FlowKey) -> Explanation:
        """Compile the flow as it is stored."""
        self._check(user, Action.READ, key)
        return self._flows.explain_stored(user, key)

    def run(
        self, user: User, key: FlowKey, selection: TicketSelection | None = None, *, request_key: str | None = None
    ) -> FlowStatus:
        """``request_key``: a request that is sent again with its key makes no second execution."""
        self._check(user, Action.RUN, key)
        return self._flows.run(user, key, selection, request_key=_own_request_key(user, request_key))

    def pause(self, user: User, key: FlowKey) -> StoredFlow:
        self._check(user, Action.UPDATE, key)
        return self._flows.pause(key)

    def resume(self, user: User, key: FlowKey) -> StoredFlow:
        """It needs the right to run, since it runs a flow whose workers the pause ended."""
        self._check(user, Action.UPDATE, key)
        self._check(user, Action.RUN, key)
        return self._flows.resume(key)

    def replan(self, user: User, key: FlowKey) -> StoredFlow:
        self._check(user, Action.UPDATE, key)
        return self._flows.replan(user, key)

    def repin(self, user: User, key: FlowKey) -> StoredFlow:
        """The flow's next version: the same config, with the newest versions of its packs."""
        self._check(user, Action.UPDATE, key)
        return self._flows.repin(user, key)

    def resume_execution(self, user: User, key: FlowKey, execution_id: int) -> FlowStatus:
        """Run what an execution has left that FAILED or was CANCELLED."""
        self._check(user, Action.RUN, key)
        return self._flows.resume_execution(user, key, execution_id)

    def cancel(self, user: User, key: FlowKey, execution_id: int) -> FlowStatus:
        self._check(user, Action.RUN, key)
        self.get_execution(user, key, execution_id)
        return self._flows.cancel(key, execution_id)

    def list_slots(self, user: User, key: FlowKey, *, limit: int = PAGE_SLOTS) -> Sequence[FlowSlot]:
        self._check(user, Action.READ, key)
        return self._flows.list_slots(key, min(limit, PAGE_EXECUTIONS_MAX))

    def list_versions(self, user: User, key: FlowKey) -> Sequence[FlowVersion]:
        self._check(user, Action.READ, key)
        self._flows.get(key)
        return self._flows.list_versions(key)

    def list_jobs(self, user: User, key: FlowKey) -> Sequence[NamedJob]:
        self._check(user, Action.READ, key)
        return self._flows.list_jobs(key)

    def get_status(self, user: User, key: FlowKey) -> FlowStatus:
        self._check(user, Action.READ, key)
        return self._flows.get_status(key)

    def list_last_statuses(self, user: User, flows: Sequence[StoredFlow]) -> Mapping[FlowKey, FlowStatus]:
        """The last execution of each flow that was run, and that the user may read."""
        scope = self._rules().scope_of(user, Action.READ)
        seen = [flow.flow_id for flow in flows if scope.includes(flow.spec.key)]
        return {status.flow: status for status in self._flows.list_last_statuses(seen)}

    def list_executions(self, user: User, key: FlowKey, *, limit: int = 50, after: int | None = None) -> ExecutionPage:
        self._check(user, Action.READ, key)
        self._flows.get(key)
        found = self._flows.list_executions(key, limit=limit + 1, after=after)
        has_more = len(found) > limit
        return ExecutionPage(tuple(found[:limit]), found[limit - 1].execution_id if has_more else None)

    def get_execution(self, user: User, key: FlowKey, execution_id: int) -> FlowStatus:
        """SpecNotFoundError: there is none, or it is another flow's."""
        self._check(user, Action.READ, key)
        found = self._flows.get_execution(execution_id)
        if found.flow != key:
            raise SpecNotFoundError(
                f"the flow {key.name!a} has no execution {execution_id}",
                field="execution",
                hint="Look at the flow's executions.",
            )
        return found

    def check_may_run(self, user: User, key: FlowKey) -> None:
        """SpecNotFoundError or AccessDeniedError unless the user may run the flow."""
        self._check(user, Action.RUN, key)

    def may(self, user: User, action: Action, key: FlowKey) -> bool:
        return self._rules().may(user, action, key)

    def _check_wish(self, user: User, key: FlowKey, config: FlowConfig) -> None:
        if config.run_immediately:
            self._check(user, Action.RUN, key)

    def _check(self, user: User, action: Action, key: FlowKey) -> None:
        rules = self._rules()
        try:
            rules.check(user, action, key)
        except AccessDeniedError:
            if not rules.may(user, Action.READ, key):
                raise no_flow(key) from None
            raise


def check_names_stay(key: FlowKey, config: FlowConfig) -> None:
    """RejectedError: a flow's names never change, because the names of its jobs follow from them."""
    for field, told, found in (
        ("flow_group", key.group, config.flow_group),
        ("flow_name", key.name, config.flow_name),
    ):
        if told != found:
            raise RejectedError(
                f"expected {told[:200]!a}, found {found[:200]!a}: the names of a flow never change",
                field=field,
                hint="Create a flow of the new name, and delete this one.",
            )


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with a patch of RFC 7396: null removes, objects are merged, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _own_request_key(user: User, key: str | None) -> str | None:
    """The key among those of all users: one user's key says nothing about another's request."""
    if key is None:
        return None
    if not 1 <= len(key) <= REQUEST_KEY_LENGTH_MAX:
        raise RejectedError(
            f"expected 1 to {REQUEST_KEY_LENGTH_MAX} characters, found {len(key)}",
            field="Idempotency-Key",
            hint="Use a UUID.",
        )
    return hashlib.sha256(f"{user.name}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
