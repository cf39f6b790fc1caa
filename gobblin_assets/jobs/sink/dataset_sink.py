"""One dataset of a sink, as a worker has it: its log, its reader, and the lanes that the worker holds of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.cut_publishing import LaneDescription
from gobblin_assets.jobs.sink.held_lane import HeldLane
from gobblin_assets.jobs.sink.lane_files import LaneFormat
from gobblin_assets.jobs.sink.lane_writer import Cut, PlaceRows
from gobblin_assets.jobs.sink.roll_policy import RollPolicy
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.arrow_types import schema_to_json
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.run.dead_letter_check import check_dead_letters
from gobblin_assets.sources.epoch_source import EpochSource, LogStart
from gobblin_assets.sources.log_port import LogReader
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(slots=True)
class DatasetSink:
    """``reader`` is open while lanes are held. ``not_before_s``: after a failure of the log, by the monotonic clock."""

    urn: DatasetUrn
    dataset_id: DatasetId
    spec: DatasetSpec
    source: EpochSource
    policy: RollPolicy
    lane_format: LaneFormat
    place_rows: PlaceRows | None = None
    start: LogStart | None = None
    started_s: float = 0.0
    reader: LogReader | None = None
    lanes: dict[LaneId, HeldLane] = field(default_factory=dict)
    not_before_s: float = 0.0
    failures: int = 0

    @property
    def vnodes(self) -> frozenset[str]:
        """Those that are read."""
        return frozenset(self.start.vnodes) if self.start is not None else frozenset()

    def owner_of(self, vnode: str) -> HeldLane | None:
        return next((lane for lane in self.lanes.values() if vnode in lane.read_to), None)

    def describe(self) -> LaneDescription:
        letters, event_time = self.source.decoder.dead_letter_columns, self.spec.writer.event_time
        # Readers take the directory's value as the last column.
        directories = () if event_time is None else ((event_time.name, "string"),)
        columns = (*self.source.decoder.columns, *directories)
        facts: Mapping[str, object] = {} if self.start is None else self.start.facts
        return LaneDescription(
            file_schemas={
                Role.DATA: parse_schema(schema_to_json(columns)).jsonValue(),
                Role.DEAD_LETTER: parse_schema(schema_to_json(letters)).jsonValue(),
            },
            details={
                "columns": [list(each) for each in columns],
                "source_columns": [list(each) for each in columns],
                **({"source_facts": dict(facts)} if facts else {}),
                "notes": list(self.start.notes) if self.start is not None else [],
            },
        )

    def judge(self, cut: Cut) -> None:
        """RejectedError if a cut has more dead letters than the dataset allows."""
        quality = self.spec.quality
        found = check_dead_letters(
            rows=cut.row_counts.get(Role.DATA, 0),
            dead_letters=cut.row_counts.get(Role.DEAD_LETTER, 0),
            fraction_max=quality.dead_letter_fraction_max,
            count_max=quality.dead_letter_count_max,
        )
        if not found.passed:
            raise RejectedError(
                f"{self.urn}: {found.description}",
                field="quality.dead_letter_fraction_max",
                hint="Nothing of the cut was published. Correct the decoder, or allow more: "
                "quality.dead_letter_count_max counts those of one cut, whatever their share.",
            )
