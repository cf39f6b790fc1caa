"""Positions of topics without their histories: a suite over logs in memory must notice."""

from gobblin_assets.sources.kafka.histories import Histories
from tests.simulation.mutant import Mutant, patched

OF_HISTORIES = (
    Mutant(
        "a position of a topic without its history",
        patched(Histories, "judge", lambda _self, _topic, positions, offsets: (positions, offsets)),
        ("tests/unit/test_kafka_histories.py",),
    ),
)
