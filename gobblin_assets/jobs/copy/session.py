"""The session of a copy: one run's view of both sides."""

from collections.abc import Callable

from gobblin_assets.jobs.copy.shared_planning import SharedPlanning
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import PlanRequest, UnitPlan, Worker


class CopySession:
    """``Session``. ``before``: requests that are planned before the first one that is asked for, in this order.

    Where the run has a budget for all file sets, these are all of them, those of a lower priority number first.
    """

    def __init__(
        self,
        plan: Callable[[PlanRequest, SharedPlanning], UnitPlan],
        open_worker: Callable[[], Worker],
        shared: SharedPlanning,
        before: list[PlanRequest],
    ) -> None:
        self._plan = plan
        self._open_worker = open_worker
        self._shared = shared
        self._planned: dict[tuple[DatasetUrn, str | None], UnitPlan | Exception] = {}
        self._before = before

    def open_worker(self) -> Worker:
        return self._open_worker()

    def plan(self, request: PlanRequest) -> UnitPlan:
        wanted = (request.urn, request.partition.key)
        while wanted not in self._planned and self._before:
            each = self._before.pop(0)
            self._planned[each.urn, each.partition.key] = self._try(each)
        found = self._planned.pop(wanted, None) or self._try(request)
        if isinstance(found, Exception):
            raise found
        return found

    def _try(self, request: PlanRequest) -> UnitPlan | Exception:
        before = self._shared.budget.taken
        try:
            return self._plan(request, self._shared)
        except Exception as error:  # noqa: BLE001  raised again where it is asked for
            # What is refused copies nothing: its share is for the others.
            self._shared.budget.taken = before
            return error
