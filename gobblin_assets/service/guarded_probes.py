"""Questions to executors, behind the rights of the user who asks. The REST API and the pages call these alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gobblin_assets.model.job_ticket import TicketId, TicketSelection
from gobblin_assets.service.access import AccessDeniedError, AccessRules, Action, User
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.guarded_flows import GuardedFlows
from gobblin_assets.service.job_plan import Explanation, FlowPlan
from gobblin_assets.service.probes import DryRunJob, Probe, Probes
from gobblin_assets.service.specs import FlowKey


@dataclass(frozen=True, slots=True)
class DryRun:
    """A dry run of a flow. ``explanation``: its plan, or why there is none; then there are no ``jobs``."""

    explanation: Explanation
    jobs: tuple[DryRunJob, ...]


class GuardedProbes:
    """All that users ask executors. ``rules``: those of now."""

    def __init__(self, probes: Probes, flows: GuardedFlows, rules: Callable[[], AccessRules]) -> None:
        self._probes = probes
        self._flows = flows
        self._rules = rules

    def suggest(
        self, user: User, node: str, *, tables: Sequence[str] = (), below: str = "", wait_s: float = 0
    ) -> Probe:
        """For users who may create or change some flow, of the nodes and executors that they may use."""
        rules = self._rules()
        if not any(rules.scope_of(user, action).may_have_some for action in (Action.CREATE, Action.UPDATE)):
            raise AccessDeniedError(
                f"{user.name} may neither create nor change flows, and suggestions are for these",
                field="user",
                hint="Ask whoever keeps the file of rights to allow create.",
            )
        return self._probes.suggest(user, node, tables=tables, below=below, wait_s=wait_s)

    def get(self, user: User, probe_id: TicketId, *, wait_s: float = 0) -> Probe:
        """SpecNotFoundError: this user has asked no such question."""
        return self._probes.get(user, probe_id, wait_s=wait_s)

    def plan_dry_run(
        self, user: User, config: FlowConfig, selection: TicketSelection | None = None, *, wait_s: float = 0
    ) -> DryRun:
        """Of a config as ``GuardedFlows.explain`` compiles it, for who may create such a flow or change it."""
        return self._ask(user, self._flows.explain(user, config), selection, wait_s)

    def plan_stored_dry_run(
        self, user: User, key: FlowKey, selection: TicketSelection | None = None, *, wait_s: float = 0
    ) -> DryRun:
        """Of the flow as it is stored, for who may run it."""
        self._flows.check_may_run(user, key)
        return self._ask(user, self._flows.explain_stored(user, key), selection, wait_s)

    def _ask(self, user: User, explanation: Explanation, selection: TicketSelection | None, wait_s: float) -> DryRun:
        plan = explanation.compiled
        if not isinstance(plan, FlowPlan):
            return DryRun(explanation, ())
        asked = self._probes.plan_dry_run(user, plan, selection or TicketSelection(), wait_s=wait_s)
        return DryRun(explanation, tuple(asked))
