"""The port of logs that sinks read: vnodes of records, cut into epochs by barriers.

A **vnode** is one ordered part of a log (a partition of a topic) and the key of one watermark. An **epoch** is what
lies between two barriers. Within an epoch a log may cut and order its chunks anew at each reading: ``chunk_id`` says
nothing, and the end of an epoch is the finest place at which a reader may stop and go on. A position is the place of a
barrier in a vnode: everything before it belongs to earlier epochs. The items are those of RisingWave's log store.

An ``EpochSource`` says where the vnodes of a dataset's log begin, and opens a reader; a ``SpanSource`` gives the same
records to Spark.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.source_port import ReadPlan

NEVER_CUT: Final[Mapping[str, int]] = MappingProxyType({})
"""No vnode has an epoch yet."""


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """Records of one vnode, as the log has them: not decoded. They belong to the epoch of the next ``Barrier``."""

    vnode: str
    chunk: pa.RecordBatch
    chunk_id: int


@dataclass(frozen=True, slots=True)
class Barrier:
    """The end of an epoch of the vnodes in ``positions``: where each of them is now. Numbers of epochs only grow.

    ``at``: the time of the barrier, by the log. Only at a barrier with ``is_checkpoint`` a reader may cut.
    ``facts``: of a vnode, what is to be kept with its dataset by the publication that ends here. ``histories``: those
    of the positions, as of a ``Watermark``, as far as they are known.
    """

    epoch: int
    positions: Mapping[str, int]
    is_checkpoint: bool
    at: dt.datetime
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    histories: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UpdateVnodeBitmap:
    """From here on the reader gives items of these vnodes. The records before it must be cut first."""

    vnodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class VnodeFailure:
    """The log does not go on for this vnode. The reader gives nothing more of it. The others go on."""

    vnode: str
    error: GobblinError


LogItem = StreamChunk | Barrier | UpdateVnodeBitmap | VnodeFailure


class LogReader(Protocol):
    """A reader of some vnodes of one log, for one thread."""

    def assign(self, positions: Mapping[str, int], *, epochs: Mapping[str, int] = NEVER_CUT) -> None:
        """Read exactly these vnodes from now on, each from its position; the next item is an UpdateVnodeBitmap.

        A vnode that was read before goes on where it was if its position is the one of its last barrier: records that
        were given behind that barrier are not given again. ``epochs`` are those of the barriers at the positions, also
        of barriers that another reader gave; a vnode that was never cut has none. Later epochs are above all of them.
        """
        ...

    def read(self, *, wait_s: float) -> Iterator[LogItem]:
        """The items that are there, or come within ``wait_s``. Ends after at most ``wait_s`` and some.

        What fails for one vnode alone is an item. Raises, for all vnodes:
            RejectedError: a position is no place of the log any more, or the log refuses the reader.
            RetryableError: the log is out of reach.

        """
        ...

    def rewind(self, vnode: str, position: int) -> None:
        """Read the vnode again from a position that was the place of a barrier."""
        ...

    def truncate(self, published: Mapping[str, int]) -> None:
        """Nothing before these positions is needed any more: it is published. A log may drop it, or only note it.

        ``published``: of all vnodes of the stream that were ever begun, also of those that this reader does not have.
        """
        ...

    def measure_lag(self) -> Mapping[str, int]:
        """How many positions of each vnode that is read lie between its last barrier and the end of the log."""
        ...

    def close(self) -> None: ...


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The rows and dead letters of a batch; each record became one of them.

    ``left_out``: records that are no rows by a rule.
    """

    rows: pa.RecordBatch
    dead_letters: pa.RecordBatch
    left_out: int


class RowDecoder(Protocol):
    """A decoder of a log's records to rows, in this process. Columns are (name, type as Spark writes it).

    ``may_change``: rows may have other columns than those before, and ``columns`` are those of the last ones; empty
    before the first.
    """

    @property
    def may_change(self) -> bool: ...

    @property
    def source_columns(self) -> Sequence[tuple[str, str]]:
        """Those that the log's records have now; rows may have more."""
        ...

    @property
    def columns(self) -> Sequence[tuple[str, str]]: ...

    @property
    def dead_letter_columns(self) -> Sequence[tuple[str, str]]: ...

    def decode(self, records: pa.RecordBatch) -> DecodedRows:
        """CorruptionError if a record would be lost. What can't be decoded is a dead letter."""
        ...


@dataclass(frozen=True, slots=True)
class VnodeStart:
    """The place where a reader begins with one vnode.

    ``watermark``: that of the vnode before, None for a new vnode. Another position than it is a reset by a rule.

    ``lost`` and ``repeated`` count positions that the reset leaves out for good, and that may come twice.
    ``history``: that of the position, as of a ``Watermark``.
    """

    position: int
    watermark: int | None
    lost: int = 0
    repeated: int = 0
    history: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class LogStart:
    """The vnodes to read now, by their names, which are watermark keys.

    ``facts`` are to be stored with the dataset. ``notes`` say to people how positions were chosen, ``degraded`` what is
    left out for now. ``memory``: what the log's own reader needs.
    """

    vnodes: Mapping[str, VnodeStart]
    facts: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    memory: Any = None


class EpochSource(Protocol):
    """The log of one dataset. Nothing is connected to before a method is called."""

    @property
    def stream(self) -> str | None:
        """Datasets of one stream come together, from one reader; None: the dataset has a log of its own."""
        ...

    @property
    def decoder(self) -> RowDecoder: ...

    def find_start(self, state: DatasetState) -> LogStart:
        """Ask the log, and decide by the dataset's rules where each vnode is read from.

        RejectedError if a rule refuses what was found; RetryableError if the log is out of reach.
        """
        ...

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> LogReader:
        """A reader of this log, before any vnode is assigned to it. ``starts``: of all datasets of its stream.

        Of a stream, the caller holds all lanes that anybody holds. ``say`` gets what the reader waits for.
        """
        ...


@dataclass(frozen=True, slots=True)
class StreamLook:
    """A stream as its server sees it now. ``end``: of the server's log, as a position; None: it is no primary.

    ``status``: what becomes of the log that the stream still needs, in the server's word; None: the server has no such
    stream. ``confirmed``: the place up to which it is needed no more, as the server writes places. ``retained_bytes``:
    of the log, which the server keeps for the stream. ``safe_bytes``: that may be written before the server gives the
    stream up; None: it has no such bound.
    """

    name: str
    end: int | None
    status: str | None
    is_read: bool
    confirmed: str | None
    retained_bytes: int | None
    safe_bytes: int | None = None

    @property
    def is_lost(self) -> bool:
        """Whether nothing more comes from it."""
        return self.status in (None, "lost")


@dataclass(frozen=True, slots=True)
class CopyPlace:
    """The newest copy of a dataset that was begun, and up to where the log behind it is published.

    ``position`` and its ``text`` None: the copy is still to be made; ``progress``: how far it is, if a part is
    published. ``key``: the columns by which the source tells rows apart; (): by all of them, or not known yet.
    """

    copy: int
    position: int | None
    text: str | None
    progress: str | None = None
    key: tuple[str, ...] = ()


@runtime_checkable
class CopiedLog(Protocol):
    """An ``EpochSource`` of a stream, whose vnodes begin with a copy of what is there already."""

    def ask_server(self) -> Any:
        """What the stream's server says now, for ``find_start_in`` of each of its datasets.

        RetryableError if it is out of reach.
        """
        ...

    def find_start_in(self, said: Any, state: DatasetState) -> LogStart:
        """``find_start`` by what the server said, which was asked when the state was known already."""
        ...

    def look_at_stream(self) -> StreamLook:
        """Ask the server. RejectedError, or RetryableError if it is out of reach."""
        ...

    def drop_stream(self) -> None:
        """Remove what the server keeps for the job; nothing if it keeps nothing. No worker of the job may live.

        RejectedError if another job reads it; RetryableError if the server is out of reach, or it is still read.
        """
        ...

    def write_place(self, position: int) -> str | None:
        """The position as the server writes places; None: nothing is published there yet. Nothing is connected to."""
        ...

    def find_place(self, state: DatasetState) -> CopyPlace | None:
        """Where the dataset stands; None: it was never begun. Nothing is connected to."""
        ...

    def begin_copy(self, state: DatasetState) -> LogStart:
        """The vnode of the next copy. Its watermark is its position if it was begun already, and is not made yet.

        RejectedError if there is nothing to copy, or the log can't be followed from the copy on.
        """
        ...


@dataclass(frozen=True, slots=True)
class SpanPlan:
    """The plan to read the spans of several lanes. ``columns``: the log's own, name to Spark's type, in order.

    ``can_share``: one read may give the rows of all lanes. ``is_inferred``: the columns come from these records alone,
    and a plan of others might have others.
    """

    read: ReadPlan
    columns: Mapping[str, str]
    can_share: bool
    is_inferred: bool


class SpanSource(Protocol):
    """The records of one dataset's log once more, by Spark: those between positions that a ``LogReader`` gave."""

    @property
    def spark_need(self) -> str | None:
        """Why only Spark makes rows of the records, as a clause; None: a ``RowDecoder`` makes the same rows."""
        ...

    def plan_spans(
        self, spark: "Callable[[], SparkSession]", spans: Mapping[str, Sequence[WorkUnit]], state: DatasetState
    ) -> SpanPlan:
        """Settle how the spans' records are decoded. ``spans``: by the names of shares; a vnode is in one of them.

        RejectedError for a schema that can't be used; RetryableError if the log, or what has its schemas, is out of
        reach.
        """
        ...
