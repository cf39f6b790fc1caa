"""One dataset of a sink, as a worker has it: its log, its reader, and the lanes that the worker holds of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.jobs.sink.held_lane import HeldLane, LaneDescription
from gobblin_assets.jobs.sink.lane_files import LaneFiles, LaneFormat
from gobblin_assets.jobs.sink.lane_writer import LaneWriter, PlaceRows
from gobblin_assets.jobs.sink.pending_cut import RereadRows
from gobblin_assets.jobs.sink.record_counts import RecordCounts
from gobblin_assets.jobs.sink.roll_policy import RollPolicy
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.arrow_types import schema_to_json
from gobblin_assets.rows.new_files import NewFiles
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.run.dead_letter_check import check_dead_letters
from gobblin_assets.run.quarantine_check import check_quarantine
from gobblin_assets.sources.epoch_source import DecodedRows, EpochSource, LogStart, SpanSource
from gobblin_assets.spec.job_spec import DatasetSpec


@dataclass(slots=True, eq=False)
class DatasetSink:
    """``not_before_s``: after a failure of the log, by the monotonic clock.

    ``published``: up to where each vnode is, as the commit log said at the last look. ``learnt``: facts that the log
    gave with its barriers, since the start; ``is_start_old``: some of them are published. ``error``: why it rests, or
    rested; None: it has published since.

    Rows are made in this process, as ``lane_format`` and ``place_rows`` say; or ``spans`` is set, and Spark reads the
    records of each cut again and makes them.
    """

    urn: DatasetUrn
    dataset_id: DatasetId
    spec: DatasetSpec
    source: EpochSource
    policy: RollPolicy
    lane_format: LaneFormat | None = None
    place_rows: PlaceRows | None = None
    spans: SpanSource | None = None
    start: LogStart | None = None
    started_s: float = 0.0
    lanes: dict[LaneId, HeldLane] = field(default_factory=dict)
    not_before_s: float = 0.0
    failures: int = 0
    published: Mapping[str, int] = field(default_factory=dict)
    learnt: Mapping[str, object] = field(default_factory=dict)
    is_start_old: bool = False
    error: GobblinError | None = None

    def __post_init__(self) -> None:
        if (self.lane_format is None) == (self.spans is None):
            raise AssertionError(f"{self.urn}: its rows are made by Arrow or by Spark")

    @property
    def vnodes(self) -> frozenset[str]:
        """Those that are read."""
        return frozenset(self.start.vnodes) if self.start is not None else frozenset()

    @property
    def is_reread(self) -> bool:
        return self.spans is not None

    def note_published(self, found: DatasetLanes) -> None:
        self.published = {
            vnode: at.value
            for lane in found.lanes
            for vnode, at in lane.vnodes.items()
            if at is not None and isinstance(at.value, int)
        }

    def open_writer(self, open_files: Callable[[Role], NewFiles]) -> LaneWriter:
        """The writer of one lane. ``open_files``: of the attempt that the lane's next cut seals."""
        if self.lane_format is None:
            return LaneWriter(RecordCounts(), self.policy)
        return LaneWriter(LaneFiles(self.lane_format, open_files), self.policy, place_rows=self.place_rows)

    def describe(self, reread: RereadRows | None) -> LaneDescription:
        """What a cut says of the dataset. ``reread``: the rows that Spark made for it, if it did."""
        if self.is_reread and reread is None:
            return self._describe_positions()
        if reread is not None:
            columns = [list(each) for each in reread.staged.columns.items()]
            source_columns = [list(each) for each in reread.columns.items()]
            details = {"columns": columns, "source_columns": source_columns, **self._list_facts()}
            return LaneDescription(reread.staged.file_schemas, [columns, source_columns], self.facts, details)
        if not self.source.decoder.columns:
            return self._describe_positions()
        letters, event_time = self.source.decoder.dead_letter_columns, self.spec.writer.event_time
        # Readers take the directory's value as the last column.
        directories = () if event_time is None else ((event_time.name, "string"),)
        pairs = (*self.source.decoder.columns, *directories)
        columns = [list(each) for each in pairs]
        source_columns = [list(each) for each in (*self.source.decoder.source_columns, *directories)]
        return LaneDescription(
            file_schemas={Role.DATA: _schema_json(pairs), Role.DEAD_LETTER: _schema_json(letters)},
            columns=[columns, source_columns],
            facts=self.facts,
            details={"columns": columns, "source_columns": source_columns, **self._list_facts()},
        )

    def decode(self, lane: HeldLane, records: pa.RecordBatch) -> DecodedRows:
        """Rows for the lane's writer, which learns of columns that have changed."""
        decoder = self.source.decoder
        decoded = decoder.decode(records)
        if decoder.may_change:
            lane.writer.change_columns(decoded.rows.schema)
        return decoded

    @property
    def facts(self) -> Mapping[str, object]:
        """What is to be kept with the dataset."""
        return {**({} if self.start is None else self.start.facts), **self.learnt}

    def settle_facts(self) -> None:
        """They are published now."""
        if self.learnt and self.start is not None:
            self.start, self.learnt, self.is_start_old = replace(self.start, facts=self.facts), {}, True

    def _describe_positions(self) -> LaneDescription:
        return LaneDescription({}, None, self.facts, self._list_facts())

    def _list_facts(self) -> dict[str, object]:
        facts, notes = self.facts, list(self.start.notes) if self.start is not None else []
        return {**({"source_facts": dict(facts)} if facts else {}), "notes": notes}

    def judge(self, row_counts: Mapping[Role, int]) -> None:
        """RejectedError if a cut has more dead letters, or more rows that are set aside, than the dataset allows."""
        quality = self.spec.quality
        written, aside = row_counts.get(Role.DATA, 0), row_counts.get(Role.QUARANTINE, 0)
        found = check_dead_letters(
            rows=written + aside,
            dead_letters=row_counts.get(Role.DEAD_LETTER, 0),
            fraction_max=quality.dead_letter_fraction_max,
            count_max=quality.dead_letter_count_max,
        )
        kept = check_quarantine(
            rows_written=written, rows_set_aside=aside, fraction_max=quality.quarantine_fraction_max
        )
        if not kept.passed:
            raise RejectedError(
                f"{self.urn}: {kept.description}",
                field="quality.quarantine_fraction_max",
                hint="Nothing of the cut was published. Correct the data or the policy, or allow more.",
            )
        if not found.passed:
            raise RejectedError(
                f"{self.urn}: {found.description}",
                field="quality.dead_letter_fraction_max",
                hint="Nothing of the cut was published. Correct the decoder, or allow more: "
                "quality.dead_letter_count_max counts those of one cut, whatever their share.",
            )


def _schema_json(columns: Sequence[tuple[str, str]]) -> object:
    """As a publication describes its files."""
    return parse_schema(schema_to_json(columns)).jsonValue()
