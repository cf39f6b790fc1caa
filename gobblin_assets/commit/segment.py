"""Segments: the steps of one dataset partition and role, compressed into one value.

An Arrow IPC stream with Zstandard, whose columns are those of ``COLUMNS``. Each file that a step publishes is a row
with its target; the kind's codec decides the other columns of a row. Paths are split into the directory, which repeats
and is dictionary-encoded, and the name, so that a million renames take about 25 bytes each.

The published files are read from the columns, without any kind of step: they are the rows with a size. The stream's
metadata names the package of each kind, for the message if a kind is not installed, and the phase of the steps unless
it is 0. Segments of built-in kinds name no package, and neither do segments of earlier releases. In these, steps of
other kinds have no rows for their files, so the kind is asked for them.

A fold of publications at given names (``encode_fold``) says so in the metadata, too. Its rows are in order of the path,
and have the publishing sequence in the place of the source.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.commit.object_codecs import GIVEN_NAMES, REMOVING
from gobblin_assets.commit.step_kinds import Provider, find_provider, get_kind, is_built_in
from gobblin_assets.commit.steps import CommitStep, PublishedStepFile, StepKind, StepRow
from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import Role

# One segment stays a value that Postgres stores and sends in one piece.
STEPS_PER_SEGMENT_MAX: Final = 10_000

COMPRESSED_FILES_MIN: Final = 16
"""Compression works on each column by itself: for few files it costs milliseconds and saves nothing."""

_DIRECTORY = pa.dictionary(pa.int32(), pa.string())
_SCHEMA: Final = pa.schema(
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

COLUMNS: Final = tuple(_SCHEMA.names)
IDENTITY_COLUMNS: Final = ("size_bytes", "inode", "mtime_ns", "tag")
"""In the order of the fields of ``FileIdentity``."""

_KIND: Final = COLUMNS.index("kind")
_PROVIDERS: Final = b"gobblin_assets.step_kinds"
_PHASE: Final = b"gobblin_assets.phase"
_FOLD: Final = b"gobblin_assets.fold"
_PARTS: Final = ("target_directory", "target_name")


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
    steps: Sequence[CommitStep],
    *,
    role: Role,
    partition: str,
    file_schema: object = None,
    steps_max: int = STEPS_PER_SEGMENT_MAX,
) -> list[Segment]:
    """Cut ``steps`` into segments of one phase and of bounded size, keeping the order within a phase."""
    phases = {step.phase for step in steps}
    of_phases = [[step for step in steps if step.phase == phase] for phase in sorted(phases)]
    return [
        _encode(some[start : start + steps_max], role, partition, file_schema)
        for some in ([steps] if len(phases) == 1 else of_phases)
        for start in range(0, len(some), steps_max)
    ]


def encode_empty(*, role: Role, partition: str, file_schema: object) -> Segment:
    """A segment without steps, which holds only a schema."""
    return _encode([], role, partition, file_schema)


def decode_segment(payload: bytes, digest: bytes) -> list[CommitStep]:
    """Rebuild the steps. CorruptionError when the payload is not the one that was sealed; StepKindMissingError for a
    kind that this process does not know.
    """
    return list(_steps_of(_open(payload, digest)))


def find_kinds(payload: bytes, digest: bytes) -> list[StepKind]:
    """The kinds of its steps, in order of their names. Raises the same errors as ``decode_segment``."""
    table = _open(payload, digest)
    providers = _providers_of(table)
    return [get_kind(name, providers.get(name)) for name in sorted(pc.unique(table.column("kind")).to_pylist())]


def find_phase(payload: bytes) -> int:
    """The phase of its steps. Nothing but the header is read."""
    with pa.ipc.open_stream(payload) as stream:
        stored = (stream.schema.metadata or {}).get(_PHASE)
    return 0 if stored is None else int(stored)


def list_published(payload: bytes, digest: bytes) -> Iterator[PublishedStepFile]:
    """The files that the steps make visible, in order, without any kind. CorruptionError as ``decode_segment``."""
    table = _published_rows(_open(payload, digest))
    names = ("target_directory", "target_name", "size_bytes", "inode", "mtime_ns", "tag", "row_count")
    for directory, name, size, inode, mtime, tag, row_count in _tuples(table, names):
        yield f"{directory}/{name}", FileIdentity(size, inode, mtime, tag), row_count


def has_given_names(payload: bytes, digest: bytes) -> bool:
    """Whether the steps publish at names that other publications use too. CorruptionError as ``decode_segment``."""
    return not GIVEN_NAMES.isdisjoint(pc.unique(_open(payload, digest).column("kind")).to_pylist())


def list_changes(payload: bytes, digest: bytes) -> Iterator[tuple[str, FileIdentity | None, str | None]]:
    """What each name holds after the steps, in order: the identity of a published file, None for a removed one.

    Then, if this is a fold, the sequence that published it; else None. Only for steps at given names. CorruptionError
    as ``decode_segment``.
    """
    table = changes_table(payload, digest)
    for path, publisher, size, *others in _tuples(table, ("path", "publisher", *IDENTITY_COLUMNS)):
        yield path, None if size is None else FileIdentity(size, *others), publisher


def changes_table(payload: bytes, digest: bytes) -> pa.Table:
    """``list_changes`` as columns: the path, its parts, and the fields of its identity, whose size is NULL for a
    removed file. ``publisher``: of a fold, the sequence that published the change; else NULL.
    """
    table = _open(payload, digest)
    kinds = table.column("kind").cast(pa.string())
    removing = [pc.equal(kinds, kind) for kind in sorted(REMOVING)]
    is_change = reduce(pc.or_, removing, pc.is_valid(table.column("size_bytes")))
    is_fold = _FOLD in (table.schema.metadata or {})
    publishers = table.column("source_directory").cast(pa.string()) if is_fold else pa.nulls(len(table), pa.string())
    whole = pa.Table.from_arrays(
        [
            _paths_of(table),
            table.column("target_directory").cast(pa.string()),
            table.column("target_name"),
            kinds,
            publishers,
            *(table.column(name) for name in IDENTITY_COLUMNS),
        ],
        names=["path", *_PARTS, "kind", "publisher", *IDENTITY_COLUMNS],
    )
    return whole.filter(is_change)


def encode_fold(changes: pa.Table, *, role: Role, partition: str, version: int) -> Segment:
    """A segment of rows of ``changes_table``, whose publishers are known. No step of it is ever executed."""
    count = len(changes)
    sizes = changes.column("size_bytes")
    is_file = pc.is_valid(sizes)
    in_objects = pc.match_substring_regex(changes.column("kind"), "_object$")
    placed = pc.if_else(in_objects, "place_object", "place_file")
    columns = {
        "step": make_array(range(count), pa.int32()),
        "kind": pc.if_else(is_file, placed, changes.column("kind")),
        "source_directory": changes.column("publisher"),
        "row_count": pc.if_else(is_file, pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64())),
        **{name: changes.column(name) for name in (*_PARTS, *IDENTITY_COLUMNS)},
    }
    arrays = [_fit(columns.get(field.name, pa.nulls(count, field.type)), field.type) for field in _SCHEMA]
    payload = _write_arrays(arrays, {_FOLD: "1"})
    return Segment(
        role=role,
        partition=partition,
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        step_count=count,
        file_count=count - sizes.null_count,
        row_count=0,
        file_bytes=pc.sum(sizes).as_py() or 0,
        version=version,
    )


def _fit(values: pa.Array | pa.ChunkedArray, data_type: pa.DataType) -> pa.Array:
    """One array of the type, whose texts may become a dictionary."""
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(data_type) and not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return whole.cast(data_type)


def decode_sizes(payload: bytes, digest: bytes) -> Iterable[tuple[str, int]]:
    """Path and length of each of ``list_published``, column by column: what readers ask for."""
    table = _published_rows(_open(payload, digest))
    return zip(_paths_of(table).to_pylist(), table.column("size_bytes").to_pylist(), strict=True)


def _paths_of(table: pa.Table) -> pa.ChunkedArray:
    directories = table.column("target_directory").cast(pa.string())
    return pc.binary_join_element_wise(directories, table.column("target_name"), "/")


def join_segments_of_done(segments: Sequence[Segment]) -> Segment:
    """One segment with the steps of these, which are all done, so it does not keep where their files were staged.

    Role, partition and schema are those of the first segment. No kind needs to be known.
    """
    rows: list[tuple[object, ...]] = []
    providers: dict[str, Provider] = {}
    for segment in segments:
        table = _with_published_rows(_open(segment.payload, segment.digest))
        providers |= _providers_of(table)
        first = 1 + int(str(rows[-1][0])) if rows else 0
        for number, kind, _source, *others in _tuples(table, COLUMNS):
            rows.append((first + number, kind, None, *others))
    payload = _write([list(column) for column in zip(*rows, strict=True)], providers)
    return replace(
        segments[0],
        payload=payload,
        digest=hashlib.sha256(payload).digest(),
        **{name: sum(getattr(each, name) for each in segments) for name in _COUNTS},
    )


def _open(payload: bytes, digest: bytes) -> pa.Table:
    if hashlib.sha256(payload).digest() != digest:
        raise CorruptionError("a segment of the commit log does not match its digest")
    try:
        with pa.ipc.open_stream(payload) as stream:
            return stream.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"a segment of the commit log can't be read: {error}") from error


def combine_digests(digests: Iterable[bytes]) -> bytes:
    """The digest that a seal fixes: over the digests of all segments, whatever their order."""
    return hashlib.sha256(b"".join(sorted(digests))).digest()


def _encode(steps: Sequence[CommitStep], role: Role, partition: str, file_schema: object) -> Segment:
    row_count = file_bytes = file_count = 0
    for step in steps:
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
        step_count=len(steps),
        file_count=file_count,
        row_count=row_count,
        file_bytes=file_bytes,
        file_schema=file_schema,
    )


def _write_steps(steps: Sequence[CommitStep]) -> bytes:
    parts: list[Sequence[Sequence[object]]] = []
    providers: dict[str, Provider] = {}
    first = 0
    for name, group in groupby(steps, key=attrgetter("kind")):
        some = list(group)
        number, *others = get_kind(name).codec.to_columns(some, first)
        parts.append((number, [name] * len(number), *others))
        if (provider := find_provider(name)) is not None:
            providers[name] = provider
        first += len(some)
    # Segments of one kind, the longest ones, are not copied.
    whole = parts[0] if len(parts) == 1 else [list(chain(*columns)) for columns in zip(*parts, strict=True)]
    if not steps:
        whole = [[] for _column in COLUMNS]
    return _write(whole, providers, steps[0].phase if steps else 0)


def _write(columns: Sequence[Sequence[object]], providers: Mapping[str, Provider], phase: int = 0) -> bytes:
    metadata: dict[bytes, str] = {}
    if providers:
        metadata[_PROVIDERS] = json.dumps(providers, sort_keys=True)
    if phase:
        metadata[_PHASE] = str(phase)
    return _write_arrays(
        [make_array(values, each.type) for values, each in zip(columns, _SCHEMA, strict=True)], metadata
    )


def _write_arrays(arrays: Sequence[pa.Array], metadata: Mapping[bytes, str]) -> bytes:
    schema = _SCHEMA.with_metadata(metadata) if metadata else _SCHEMA
    file_count = len(arrays[0]) - arrays[COLUMNS.index("target_name")].null_count
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if file_count >= COMPRESSED_FILES_MIN else None)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


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
    rows = _tuples(table, COLUMNS)
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


def _tuples(table: pa.Table, names: Sequence[str]) -> Iterator[StepRow]:
    return zip(*(table.column(name).to_pylist() for name in names), strict=True)
