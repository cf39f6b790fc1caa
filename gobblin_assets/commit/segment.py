"""Segments: the steps of one dataset partition and role, compressed into one value.

An Arrow IPC stream with Zstandard, whose columns are those of ``COLUMNS``. Each file that a step publishes is a row
with its target; the kind's codec decides the other columns of a row. Paths are split into the directory, which repeats
and is dictionary-encoded, and the name, so that a million renames take about 25 bytes each.

The published files are read from the columns, without any kind of step: they are the rows with a size. The stream's
metadata names the package of each kind, for the message if a kind is not installed, and the phase of the steps unless
it is 0. Segments of built-in kinds name no package, and neither do segments of earlier releases. In these, steps of
other kinds have no rows for their files, so the kind is asked for them.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.commit.step_kinds import Provider, find_provider, get_kind, is_built_in
from gobblin_assets.commit.steps import CommitStep, PublishedStepFile, StepBatch, StepColumns, StepKind, StepRow
from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import Role

COMPRESSED_FILES_MIN: Final = 16
"""Compression works on each column by itself: for few files it costs milliseconds and saves nothing."""

_DIRECTORY = pa.dictionary(pa.int32(), pa.string())
SEGMENT_SCHEMA: Final = pa.schema(
    [
        ("step", pa.int32()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("source_directory", _DIRECTORY),
        ("source_name", pa.string()),
        ("target_directory", _DIRECTORY),
        ("target_name", pa.string()),
        ("size_bytes", pa.int64()),
        ("inode", pa.uint64()),
        ("mtime_ns", pa.int64()),
        ("tag", pa.string()),
        ("row_count", pa.int64()),
        ("payload", pa.string()),
    ]
)

COLUMNS: Final = tuple(SEGMENT_SCHEMA.names)
IDENTITY_COLUMNS: Final = ("size_bytes", "inode", "mtime_ns", "tag")
"""In the order of the fields of ``FileIdentity``."""


def read_stream(payload: bytes, digest: bytes) -> pa.Table:
    """CorruptionError if the payload is not what the digest was made of."""
    if hashlib.sha256(payload).digest() != digest:
        raise CorruptionError("a segment of the commit log does not match its digest")
    try:
        with pa.ipc.open_stream(payload) as stream:
            return stream.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"a segment of the commit log can't be read: {error}") from error


def write_stream(arrays: Sequence[pa.Array], metadata: Mapping[bytes, str]) -> bytes:
    """``arrays``: one for each column."""
    schema = SEGMENT_SCHEMA.with_metadata(metadata) if metadata else SEGMENT_SCHEMA
    file_count = len(arrays[0]) - arrays[COLUMNS.index("target_name")].null_count
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if file_count >= COMPRESSED_FILES_MIN else None)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def target_paths(table: pa.Table) -> pa.ChunkedArray:
    """The path of each row's target."""
    directories = table.column("target_directory").cast(pa.string())
    return pc.binary_join_element_wise(directories, table.column("target_name"), "/")


def tuples_of(table: pa.Table, names: Sequence[str]) -> Iterator[StepRow]:
    """The rows, of these columns."""
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)


# One segment stays a value that Postgres stores and sends in one piece.
STEPS_PER_SEGMENT_MAX: Final = 10_000

_KIND: Final = COLUMNS.index("kind")
_SIZE_OF_STEPS: Final = COLUMNS.index("size_bytes") - 2
_ROWS_OF_STEPS: Final = COLUMNS.index("row_count") - 2
_PHASE_AND_CLASS: Final = attrgetter("phase", "__class__")
_KIND_AND_CLASS: Final = attrgetter("kind", "__class__")
_PROVIDERS: Final = b"gobblin_assets.step_kinds"
_PHASE: Final = b"gobblin_assets.phase"


@dataclass(frozen=True, slots=True)
class Segment:
    """Encoded steps with their columns in the log. ``file_schema`` is Spark's JSON, or None.

    A segment without steps has no files: it holds the schema of a publication without rows.
    ``version``: the newest version of the dataset with which rows of its files were published, if they were published
    before; None: the version that its sequence makes.
    """

    role: Role
    partition: str
    payload: bytes
    digest: bytes
    step_count: int
    file_count: int
    row_count: int
    file_bytes: int
    file_schema: object = None
    version: int | None = None


_COUNTS: Final = ("step_count", "file_count", "row_count", "file_bytes")


def encode_segments(
    steps: Iterable[StepBatch],
    *,
    role: Role,
    partition: str,
    file_schema: object = None,
    steps_max: int = STEPS_PER_SEGMENT_MAX,
) -> list[Segment]:
    """Cut ``steps`` into segments of one phase and of bounded size, keeping the order within a phase.

    Steps are taken one after another: no more of them are held than fill a segment of each phase.
    """
    waiting: dict[int, _Waiting] = defaultdict(_Waiting)
    encoded: dict[int, list[Segment]] = defaultdict(list)
    for (phase, _class), same in groupby(steps, key=_PHASE_AND_CLASS):
        mine = waiting[phase]
        while mine.take(same, steps_max):
            encoded[phase].append(_encode(mine.pop(), role, partition, file_schema))
    for phase, left in waiting.items():
        if left.count:
            encoded[phase].append(_encode(left.pop(), role, partition, file_schema))
    return [segment for _phase, segments in sorted(encoded.items()) for segment in segments]


@dataclass(slots=True)
class _Waiting:
    """The steps of a phase that wait for their segment to be full."""

    steps: list[StepBatch] = field(default_factory=list)
    count: int = 0
    rest: StepColumns | None = None

    def take(self, same: Iterator[StepBatch], steps_max: int) -> bool:
        """Whether the segment is full. False: ``same`` is exhausted."""
        while self.count < steps_max:
            first = next(same, None) if self.rest is None else self.rest
            self.rest = None
            if first is None:
                return False
            if isinstance(first, StepColumns):
                room = steps_max - self.count
                if len(first) > room:
                    first, self.rest = first.cut(0, room), first.cut(room, len(first))
                self.steps.append(first)
                self.count += len(first)
            else:
                some = [first, *islice(same, steps_max - self.count - 1)]
                self.steps += some
                self.count += len(some)
        return True

    def pop(self) -> list[StepBatch]:
        steps, self.steps, self.count = self.steps, [], 0
        return steps


def encode_empty(*, role: Role, partition: str, file_schema: object) -> Segment:
    """A segment without steps, which holds only a schema."""
    return _encode([], role, partition, file_schema)


def decode_segment(payload: bytes, digest: bytes) -> list[CommitStep]:
    """Rebuild the steps. CorruptionError when the payload is not the one that was sealed; StepKindMissingError for a
    kind that this process does not know.
    """
    return list(_steps_of(read_stream(payload, digest)))


def find_kinds(payload: bytes, digest: bytes) -> list[StepKind]:
    """The kinds of its steps, in order of their names. Raises the same errors as ``decode_segment``."""
    table = read_stream(payload, digest)
    providers = _providers_of(table)
    return [get_kind(name, providers.get(name)) for name in sorted(pc.unique(table.column("kind")).to_pylist())]


def find_phase(payload: bytes) -> int:
    """The phase of its steps. Nothing but the header is read."""
    with pa.ipc.open_stream(payload) as stream:
        stored = (stream.schema.metadata or {}).get(_PHASE)
    return 0 if stored is None else int(stored)


def list_published(payload: bytes, digest: bytes) -> Iterator[PublishedStepFile]:
    """The files that the steps make visible, in order, without any kind. CorruptionError as ``decode_segment``."""
    table = _published_rows(read_stream(payload, digest))
    names = ("target_directory", "target_name", "size_bytes", "inode", "mtime_ns", "tag", "row_count")
    for directory, name, size, inode, mtime, tag, row_count in tuples_of(table, names):
        yield f"{directory}/{name}", FileIdentity(size, inode, mtime, tag), row_count


def decode_sizes(payload: bytes, digest: bytes) -> Iterable[tuple[str, int]]:
    """Path and length of each of ``list_published``, column by column: what readers ask for."""
    table = _published_rows(read_stream(payload, digest))
    return zip(target_paths(table).to_pylist(), table.column("size_bytes").to_pylist(), strict=True)


def join_segments_of_done(segments: Sequence[Segment]) -> Segment:
    """One segment with the steps of these, which are all done, so it does not keep where their files were staged.

    Role, partition and schema are those of the first segment. No kind needs to be known.
    """
    rows: list[tuple[object, ...]] = []
    providers: dict[str, Provider] = {}
    for segment in segments:
        table = _with_published_rows(read_stream(segment.payload, segment.digest))
        providers |= _providers_of(table)
        first = 1 + int(str(rows[-1][0])) if rows else 0
        for number, kind, _source, *others in tuples_of(table, COLUMNS):
            rows.append((first + number, kind, None, *others))
    payload = _write([list(column) for column in zip(*rows, strict=True)], providers)
    return replace(
        segments[0],
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        **{name: sum(getattr(each, name) for each in segments) for name in _COUNTS},
    )


def combine_digests(digests: Iterable[bytes]) -> bytes:
    """The digest that a seal fixes: over the digests of all segments, whatever their order."""
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def _encode(steps: Sequence[StepBatch], role: Role, partition: str, file_schema: object) -> Segment:
    step_count = row_count = file_bytes = file_count = 0
    for step in steps:
        if isinstance(step, StepColumns):
            sizes, rows_of = step.columns[_SIZE_OF_STEPS], step.columns[_ROWS_OF_STEPS]
            step_count += len(step)
            file_count += len(sizes) - sizes.count(None)
            file_bytes += sum(filter(None, sizes))
            row_count += sum(filter(None, rows_of))
            continue
        step_count += 1
        row_count += step.loaded_rows
        for _path, identity, rows in step.published():
            file_count += 1
            row_count += rows
            file_bytes += identity.size_bytes
    payload = _write_steps(steps)
    return Segment(
        role=role,
        partition=partition,
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        step_count=step_count,
        file_count=file_count,
        row_count=row_count,
        file_bytes=file_bytes,
        file_schema=file_schema,
    )


def _write_steps(steps: Sequence[StepBatch]) -> bytes:
    parts: list[Sequence[Sequence[object]]] = []
    providers: dict[str, Provider] = {}
    first = 0
    for (name, _class), group in groupby(steps, key=_KIND_AND_CLASS):
        some = list(group)
        in_columns = [each for each in some if isinstance(each, StepColumns)]
        if (provider := find_provider(name)) is not None:
            providers[name] = provider
        for each in in_columns:
            parts.append((range(first, first + len(each)), [name] * len(each), *each.columns))
            first += len(each)
        if in_columns:
            continue
        number, *others = get_kind(name).codec.to_columns(some, first)
        parts.append((number, [name] * len(number), *others))
        first += len(some)
    # Segments of one kind, the longest ones, are not copied.
    whole = parts[0] if len(parts) == 1 else [_chain(columns) for columns in zip(*parts, strict=True)]
    if not steps:
        whole = [[] for _column in COLUMNS]
    return _write(whole, providers, steps[0].phase if steps else 0)


def _chain(columns: Iterable[Sequence[object]]) -> list[object]:
    return list(chain.from_iterable(each.to_pylist() if isinstance(each, pa.Array) else each for each in columns))


def _write(columns: Sequence[Sequence[object]], providers: Mapping[str, Provider], phase: int = 0) -> bytes:
    metadata: dict[bytes, str] = {}
    if providers:
        metadata[_PROVIDERS] = json.dumps(providers, sort_keys=True)
    if phase:
        metadata[_PHASE] = str(phase)
    return write_stream(
        [make_array(values, each.type) for values, each in zip(columns, SEGMENT_SCHEMA, strict=True)], metadata
    )


def _providers_of(table: pa.Table) -> dict[str, Provider]:
    stored = (table.schema.metadata or {}).get(_PROVIDERS)
    return {} if stored is None else json.loads(stored)


def _with_published_rows(table: pa.Table) -> pa.Table:
    """The table, with the rows for files that an earlier release left out for kinds of other packages."""
    if _providers_of(table) or table.column("payload").null_count == len(table):
        return table
    if all(map(is_built_in, pc.unique(table.column("kind")).to_pylist())):
        return table
    with pa.ipc.open_stream(_write_steps(list(_steps_of(table)))) as stream:
        return stream.read_all()


def _published_rows(table: pa.Table) -> pa.Table:
    whole = _with_published_rows(table)
    # A target without a size is no file, or is no longer there.
    sizes = whole.column("size_bytes")
    return whole if sizes.null_count == 0 else whole.filter(pc.is_valid(sizes))


def _steps_of(table: pa.Table) -> Iterator[CommitStep]:
    providers = _providers_of(table)
    rows = tuples_of(table, COLUMNS)
    names = pc.unique(table.column("kind")).to_pylist()
    # Segments of one kind, the longest ones, are not looked at row by row.
    for name, some in [(names[0], rows)] if len(names) == 1 else groupby(rows, key=itemgetter(_KIND)):
        yield from _read(get_kind(name, providers.get(name)), some)


def _read(kind: StepKind, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
    try:
        yield from kind.codec.from_rows(rows)
    except GobblinError:
        raise
    except Exception as error:
        raise CorruptionError(
            f"a stored step of the kind {kind.name!r} can't be read: {type(error).__name__}",
            hint="Install the release of its package that wrote it, or a newer one.",
            kind=kind.name,
        ) from error
