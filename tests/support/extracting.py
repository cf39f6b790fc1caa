"""What the extractors of worlds without Spark have in common: no session, nothing to cancel, one order at a time."""

from collections.abc import Mapping, Sequence

from gobblin_assets.run.job_kind import Staged, Worker, WorkOrder


class SparklessExtractor(Worker):
    """Who inherits says how one order is extracted."""

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        return None

    def cancel(self, tag: str) -> None:
        pass

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]
