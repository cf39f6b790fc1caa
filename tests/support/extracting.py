"""What the extractors of worlds without Spark have in common: no session, nothing to cancel, one order at a time."""

from collections.abc import Sequence

from gobblin_assets.run.extraction import Extracted, Extractor, ExtractOrder, SessionFacts


class SparklessExtractor(Extractor):
    """Who inherits says how one order is extracted."""

    def session_facts(self) -> SessionFacts:
        return SessionFacts()

    def cancel(self, tag: str) -> None:
        pass

    def extract_together(self, orders: Sequence[ExtractOrder]) -> Sequence[Extracted]:
        return [self.extract(order) for order in orders]
