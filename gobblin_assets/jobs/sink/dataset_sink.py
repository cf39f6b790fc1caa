"""A dataset of a sink, as a worker has it, and the lanes of it that the worker holds.

A lane knows its dataset, and all of its state changes by its own methods.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import pyarrow as pa

from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError
from gobblin_assets.jobs.sink.lane_files import LaneFiles, LaneFormat, RecordCounts
from gobblin_assets.jobs.sink.lane_writer import Cut, LaneWriter, PlaceRows
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.rows.arrow_types import schema_to_json
from gobblin_assets.rows.new_files import NewFiles
from gobblin_assets.rows.schema_merge import parse_schema
from gobblin_assets.run.job_kind import OutputNames, Staged
from gobblin_assets.run.quality_checks import check_dead_letters, check_quarantine
from gobblin_assets.sources.log_port import Barrier, EpochSource, LogStart, SpanSource
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.partition_keys import open_partition
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class LaneDescription:
    """The description of a dataset by a lane's publication. ``file_schemas``: as Spark's JSON.

    ``details``: of each first publication, and of each that has other ``columns`` or ``facts`` than the one before.
    ``columns`` None: they are not known yet.
    """

    file_schemas: Mapping[Role, object]
    columns: object
    facts: Mapping[str, object]
    details: Mapping[str, object]

    def has_news(self, before: "LaneDescription | None") -> bool:
        """Whether it says more than the lane's publication ``before``; None: there was none."""
        return before is None or self.columns not in (None, before.columns) or self.facts != before.facts


@dataclass(frozen=True, slots=True)
class RereadRows:
    """The rows that Spark made of a cut's records. ``columns``: the log's own, name to Spark's type, in order."""

    staged: Staged
    columns: Mapping[str, str]


@dataclass(slots=True, eq=False)
class DatasetSink:
    """A dataset of a sink, as a worker has it. ``back_off_until_s``: by the monotonic clock.

    ``published``: up to where each vnode is, as the commit log said at the last look. ``learnt``: facts that the log
    gave with its barriers, since the start; ``is_start_old``: some of them are published. ``error``: why it backs off,
    or did; None: it has published since.

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
    lanes: "dict[LaneId, HeldLane]" = field(default_factory=dict)
    back_off_until_s: float = 0.0
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
        """The vnodes that are read."""
        return frozenset(self.start.vnodes) if self.start is not None else frozenset()

    @property
    def is_reread(self) -> bool:
        return self.spans is not None

    def open_window(self, now: dt.datetime) -> AssetPartition:
        """The partition into which its rows go at this time."""
        return open_partition(self.spec, now)

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
        """The description of the dataset by a cut. ``reread``: the rows that Spark made for it, if it did."""
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

    @property
    def facts(self) -> Mapping[str, object]:
        """The facts that are to be kept with the dataset."""
        return {**({} if self.start is None else self.start.facts), **self.learnt}

    def note_success(self) -> None:
        """Note that a lane has published, and with it the facts that were learnt."""
        self.failures, self.error = 0, None
        if self.learnt and self.start is not None:
            self.start, self.learnt, self.is_start_old = replace(self.start, facts=self.facts), {}, True

    def note_failure(self, error: GobblinError) -> None:
        """Note that a lane has failed. What its barriers said is learnt again."""
        self.learnt, self.error = {}, error

    def back_off(self, error: GobblinError, until_s: float) -> None:
        """Leave the dataset alone, since its log does not go on. Where it begins is asked anew."""
        self.note_failure(error)
        self.failures += 1
        self.back_off_until_s, self.start = until_s, None

    def learn(self, facts: Mapping[str, object]) -> None:
        """Note facts that the log gave with a barrier."""
        self.learnt = {**self.learnt, **facts}

    def note_start(self, start: LogStart, asked_s: float | None = None) -> None:
        """Note where the dataset begins, as the log says now. ``asked_s``: when it said so, by the monotonic clock."""
        self.start, self.is_start_old = start, False
        if asked_s is not None:
            self.started_s = asked_s

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


@dataclass(frozen=True, slots=True)
class LaneAttempt:
    """A sequence that is being built, with its newest attempt. ``ends_at``: the end of the window that it belongs to.

    ``is_registered``: whether the log has the attempt.
    """

    sequence_id: SequenceId
    attempt_id: AttemptId
    partition: str
    ends_at: dt.datetime | None
    staging: str
    names: OutputNames | None
    is_registered: bool = True
    files: dict[Role, NewFiles] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class HeldLane:
    """A lane that this worker holds: its lease, its vnodes, and the attempt that its open files belong to.

    ``positions``: where each vnode is published up to; None: nothing of it yet. ``read_to``: its last barrier.
    ``described``: what the lane's last publication by this worker said of the dataset. ``is_leaving``, ``moves`` and
    ``joining``: what the lane's next cut is forced for.
    """

    sink: DatasetSink = field(repr=False)
    lease: Lease
    number: int
    version: int
    writer: LaneWriter
    positions: dict[str, int | None] = field(default_factory=dict)
    read_to: dict[str, int] = field(default_factory=dict)
    epoch: int | None = None
    attempt: LaneAttempt | None = None
    described: LaneDescription | None = None
    is_leaving: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()

    @property
    def lane_id(self) -> LaneId:
        return self.lease.lane_id

    @property
    def dataset_id(self) -> DatasetId:
        return self.sink.dataset_id

    @property
    def urn(self) -> DatasetUrn:
        return self.sink.urn

    @property
    def label(self) -> str:
        return f"{self.urn} lane {self.number}"

    @property
    def is_held(self) -> bool:
        """Whether it is still one of the dataset's."""
        return self.lane_id in self.sink.lanes

    @property
    def wants_change(self) -> bool:
        return self.is_leaving or bool(self.moves) or bool(self.joining)

    def require_attempt(self) -> LaneAttempt:
        """CorruptionError if nothing is being built."""
        if self.attempt is None:
            raise CorruptionError(f"{self.label} has rows or records, and no sequence for them")
        return self.attempt

    # Held or not ----------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Make the lane one of the dataset's from now on."""
        self.sink.lanes[self.lane_id] = self

    def let_go(self) -> None:
        self.sink.lanes.pop(self.lane_id, None)

    # Rows and barriers ----------------------------------------------------------------------------------

    def write(self, vnode: str, records: pa.RecordBatch) -> None:
        """Records of the log, as rows. The writer learns of columns that have changed."""
        if self.sink.is_reread:
            self.writer.write_batch(vnode, records)
        else:
            decoder = self.sink.source.decoder
            decoded = decoder.decode(records)
            if decoder.may_change:
                self.writer.change_columns(decoded.rows.schema)
            self.writer.write_batch(vnode, decoded.rows)
            if decoded.dead_letters.num_rows:
                self.writer.write_batch(vnode, decoded.dead_letters, Role.DEAD_LETTER)
        self.writer.try_commit()

    def pass_barrier(self, barrier: Barrier) -> Cut | None:
        """End the epoch of its vnodes that the barrier has; a cut if one is due."""
        mine = {vnode: at for vnode, at in barrier.positions.items() if vnode in self.read_to}
        cut = self.writer.barrier(
            Barrier(barrier.epoch, mine, barrier.is_checkpoint, barrier.at, histories=barrier.histories)
        )
        self.read_to |= mine
        self.epoch = barrier.epoch
        return cut

    def is_window_over(self, at: dt.datetime) -> bool:
        """Whether what is being built belongs to a window that has ended."""
        return self.attempt is not None and self.attempt.ends_at is not None and at >= self.attempt.ends_at

    # Publications ---------------------------------------------------------------------------------------

    def build(self, attempt: LaneAttempt) -> None:
        """Let ``attempt`` get the lane's rows from now on."""
        self.attempt = attempt

    def end_building(self) -> LaneAttempt | None:
        """Build nothing any more. Returns what was being built."""
        attempt, self.attempt = self.attempt, None
        return attempt

    def note_described(self, description: LaneDescription | None) -> None:
        """Note what a publication said."""
        if description is not None and description.has_news(self.described):
            self.described = description

    def note_published(self, publication: Publication, positions: Mapping[str, int]) -> None:
        self.version = publication.lane_version
        self.positions |= positions

    # Changes of its vnodes, at a barrier ----------------------------------------------------------------

    def leave(self) -> None:
        """Give the lane back behind its next cut."""
        self.is_leaving = True

    def plan_change(self, moves: Mapping[str, int], vnodes: AbstractSet[str]) -> None:
        """``vnodes``: those that the log has in the lane. ``moves``: which of them go to which lane."""
        self.moves = {vnode: to for vnode, to in moves.items() if vnode in self.read_to or vnode in vnodes}
        self.joining = frozenset(vnodes & self.sink.vnodes) - self.read_to.keys() - self.moves.keys()

    def give(self, vnodes: Iterable[str]) -> None:
        """Note that these are another lane's now. Those that could not move are asked for again."""
        for vnode in vnodes:
            self.read_to.pop(vnode, None)
            self.positions.pop(vnode, None)
        self.moves = {}

    def join(self, start: LogStart) -> dict[str, int]:
        """Read the vnodes that join from where they are published up to.

        Returns those of which the commit log does not know yet where they begin.
        """
        unsaid: dict[str, int] = {}
        for vnode in sorted(self.joining & start.vnodes.keys()):
            begin = start.vnodes[vnode]
            self.positions[vnode] = begin.watermark
            self.read_to[vnode] = begin.position
            if begin.watermark != begin.position:
                unsaid[vnode] = begin.position
        self.joining = frozenset()
        # The others may have passed barriers at which nothing may be cut: their next cuts start where the last ended.
        said = {vnode: at for vnode, at in self.positions.items() if at is not None and vnode not in unsaid}
        self.writer.assign(self.read_to, starts=said)
        return unsaid


@dataclass(frozen=True, slots=True)
class LaneCut:
    """A cut of a lane that is to be published."""

    lane: HeldLane
    cut: Cut


def _schema_json(columns: Sequence[tuple[str, str]]) -> object:
    """The schema as a publication describes its files."""
    return parse_schema(schema_to_json(columns)).jsonValue()
