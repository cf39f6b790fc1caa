"""Faults of the product on purpose, for each process of a worker: the torture itself is under test then."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gobblin_assets.destinations import load_rows
from gobblin_assets.destinations.iceberg import iceberg_tables
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.kafka import kafka_topics
from gobblin_assets.destinations.lane_marks import LaneMark, LoadBatch, decide_load
from gobblin_assets.destinations.loaded_destination import LoadedDestination
from gobblin_assets.destinations.postgres import postgres_tables
from tests.torture.schedule import Injection


def _decide_without_marks(mark: LaneMark | None, batch: LoadBatch) -> Any:
    return decide_load(mark, batch.version, batch.sequence_id)


MUTANTS: Final[Mapping[str, Sequence[tuple[Any, str, Any]]]] = {
    "absence": [
        *((module, "decide_batch", _decide_without_marks) for module in (load_rows, postgres_tables, iceberg_tables)),
        (kafka_topics, "decide_batch", _decide_without_marks),
        (postgres_tables, "_find_gone", lambda *_asked: None),
        (kafka_topics, "find_gone", lambda *_asked: None),
        (IcebergTables, "_find_of", lambda self, batch: self._find(batch.table)),
        (LoadedDestination, "_find_behind", lambda _self, _urns: {}),
    ],
}
"""What is absent at a destination is made as if nothing had been there."""

ACTS_OF: Final[Mapping[str, Collection[Injection]]] = {"absence": (Injection.PLACE_REMOVED, Injection.PLACE_REMADE)}
"""What a stranger does where workers have the fault: of other acts they speak."""


def become(mutant: str) -> None:
    """Let this process have the fault from now on; none of an empty name."""
    for target, name, new in MUTANTS.get(mutant, ()):
        setattr(target, name, new)
