"""A plan with an Arrow reader is done in this process, every other plan on Spark."""

import threading
from collections.abc import Callable, Mapping, Sequence

from gobblin_assets.run.job_kind import Staged, UnitPlan, Worker, WorkOrder
from gobblin_assets.sources.source_port import read_plan_of


class IngestWorker:
    """``Worker`` over two workers. Each is opened when the first plan needs it."""

    def __init__(self, open_spark: Callable[[], Worker], open_arrow: Callable[[], Worker]) -> None:
        self._spark = _Lazy(open_spark)
        self._arrow = _Lazy(open_arrow)

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        needs_spark = any(read_plan_of(plan).arrow is None for plan in plans)
        return (self._spark if needs_spark else self._arrow).get().describe_interruption(tag, plans)

    def do(self, order: WorkOrder) -> Staged:
        return self._of(order.plan).do(order)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return self._of(orders[0].plan).do_together(orders)

    def cancel(self, tag: str) -> None:
        for each in (self._spark, self._arrow):
            if (worker := each.opened) is not None:
                worker.cancel(tag)

    def _of(self, plan: UnitPlan) -> Worker:
        return (self._spark if read_plan_of(plan).arrow is None else self._arrow).get()


class _Lazy:
    def __init__(self, open_worker: Callable[[], Worker]) -> None:
        self._open = open_worker
        self._lock = threading.Lock()
        self.opened: Worker | None = None

    def get(self) -> Worker:
        with self._lock:
            if self.opened is None:
                self.opened = self._open()
            return self.opened
