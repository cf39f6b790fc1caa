"""The ports by which sinks get at a dataset's log: where its vnodes begin, a reader of them, rows of its records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.sources.log_port import LogReader
from gobblin_assets.sources.source_port import ReadPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """What a batch of records became; each record is one of them. ``left_out``: records that are no rows by a rule."""

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

    ``facts`` are to be stored with the dataset. ``notes`` tell people how positions were chosen, ``degraded`` what is
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

        Of a stream, the caller holds all lanes that anybody holds. ``say`` is told what the reader waits for.
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
    """How the spans of several lanes are read. ``columns``: the log's own, name to Spark's type, in order.

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
