"""A dataset as a DataFrame of exactly its published files, whatever else stands in its directories.

The ledger (``commit.published``) says which files these are, and which schemas they were written with. Columns that
were added later are NULL in older files; a column that was retyped has the type that holds every value of all of them
(docs/TYPES.md). Values of output partitions come from the directories, with the types of the schema.

Files of each format are read with the values that were written. Spark says nothing of the types of a text, so all types
come from the schema of the files. A text that has not the type of its column fails the query; Spark alone would give
NULL.
"""

import difflib
import operator
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.commit.published.postgres import Database, published_files_of
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedSegment, PublishedSet
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.object_listings import look_at_files
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.column_names import name_key, pair_names
from gobblin_assets.model.directory_names import NULL_DIRECTORY
from gobblin_assets.model.files import FileFormat, FileIdentity, format_of
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role, parse_job_name, parse_urn
from gobblin_assets.rows.columns import named
from gobblin_assets.rows.row_quality import FAILED_TYPE
from gobblin_assets.rows.row_samples import FAILED_COLUMN
from gobblin_assets.rows.schema_merge import merge_schemas, parse_schema, type_to_read
from gobblin_assets.run.log import open_log

_STRICT: Final = {"mode": "FAILFAST", "allowNonNumericNumbers": "true"}
_CSV: Final = {
    "header": "true",
    "enforceSchema": "false",
    "sep": ",",
    "quote": '"',
    "escape": '"',
    # Spark would take a NUL before a quote for an escape.
    "charToEscapeQuoteEscaping": '"',
    "emptyValue": "",
    "nanValue": "NaN",
    "positiveInf": "Infinity",
    "negativeInf": "-Infinity",
    "maxColumns": "1000000",
    # Values have line feeds in them, and carriage returns that must stay as they are.
    "multiLine": "true",
    "lineSep": "\n",
}


def columns_to_read(
    file_format: FileFormat, stored: t.StructType, asked: Mapping[str, t.DataType]
) -> Mapping[str, t.DataType]:
    """What a read must name so that the columns ``asked`` are among it: CSV has its columns by their places."""
    if file_format is not FileFormat.CSV:
        return asked
    return {field.name: field.dataType for field in stored.fields}


def open_format(
    reader: DataFrameReader, file_format: FileFormat, columns: Mapping[str, t.DataType], uris: Sequence[str]
) -> DataFrame:
    """The files, lazily, with these columns; ``read_value`` gives the values."""
    match file_format:
        case FileFormat.PARQUET:
            return reader.schema(_schema(columns)).parquet(*uris)
        case FileFormat.JSON:
            return _open_strictly(reader).schema(_schema(columns)).json(list(uris))
        case FileFormat.CSV:
            as_texts = {name: t.StringType() if _is_base64(kind) else kind for name, kind in columns.items()}
            # A text that no value is: else a text would come back as NULL.
            marked = _open_strictly(reader).options(**_CSV, nullValue=uuid.uuid4().hex)
            return marked.schema(_schema(as_texts)).csv(list(uris))


def read_value(file_format: FileFormat, name: str, kind: t.DataType) -> Column:
    """The value of a column of ``open_format``."""
    is_text = file_format is FileFormat.CSV and _is_base64(kind)
    return f.unbase64(named(name)) if is_text else named(name)


def _is_base64(kind: t.DataType) -> bool:
    return isinstance(kind, t.BinaryType)


def _schema(columns: Mapping[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def _open_strictly(reader: DataFrameReader) -> DataFrameReader:
    # Spark takes a column of this name for one of its own.
    return reader.options(**_STRICT, columnNameOfCorruptRecord=uuid.uuid4().hex)


FILES_MAX: Final = 200_000
"""Spark keeps every path of a query in the driver, and asks for each file's state when the query is made."""

GROUPS_MAX: Final = 1_000
"""Files of one schema are read together; a query of more parts plans for minutes."""

DIRECTORIES_MAX: Final = 50
"""Spark finds the values of output partitions below one directory, that of an asset partition. With more of these,
values are taken from each row's path instead: all files of a schema are one read, whose plan prunes no files.
"""


def read_dataset(
    spark: SparkSession,
    urn: str,
    *,
    job: str,
    database: Database | None = None,
    role: Role = Role.DATA,
    partitions: Sequence[str] | None = None,
) -> DataFrame:
    """The rows of a dataset, lazily; ``database`` is an engine on the commit log, or a PublishedFiles.

    None: the log that GOBBLIN_DATABASE_URL names, else the embedded one, asked once.
    ``partitions`` are asset partition keys (None: all); one without files gives no rows. A dataset without
    files gives an empty frame of its last known schema.

    Raises:
        RejectedError: no such dataset, no schema known yet, or too many files for one query.
        CorruptionError: a published file is missing, or the log's record of one can't be read.

    """
    if database is None:
        with open_log() as log:
            return read_dataset(spark, urn, job=job, database=log.stores.published, role=role, partitions=partitions)
    job_name, name = parse_job_name(job), parse_urn(urn)
    port = published_files_of(database)
    found = port.find(job_name, name, role=role, partitions=partitions)
    if found is None:
        raise refuse_unknown(port, job_name, name)
    return read_found(spark, port, found, job_name, name, role)


def read_found(
    spark: SparkSession,
    port: PublishedFiles,
    found: PublishedSet,
    job: JobName,
    urn: DatasetUrn,
    role: Role,
    *,
    schema: t.StructType | None = None,
) -> DataFrame:
    """The rows of what ``port`` found, as ``read_dataset`` gives them. ``schema``: instead of that of the files."""
    if role is Role.DATA:
        _refuse_rows_elsewhere(port, job, urn)
    read_as = _schema_of(port, found, job, urn, role) if schema is None else schema
    return _read(spark, found.segments, read_as, job, urn, role)


def read_published(
    spark: SparkSession, urn: DatasetUrn, *, job: JobName, published: PublishedFiles, partition: str
) -> DataFrame | None:
    """The rows of all roles of one asset partition together, for the late window.

    Only columns that all of them have. None: nothing of the partition is published.
    """
    frames = []
    for role in Role:
        found = published.find(job, urn, role=role, partitions=[partition])
        if found is not None and found.segments:
            schema = _merge_found(found)
            frames.append(_read(spark, found.segments, schema, job, urn, role))
    if not frames:
        return None
    shared = [name for name in frames[0].columns if all(name in frame.columns for frame in frames)]
    return reduce(DataFrame.union, [frame.select(*(named(name) for name in shared)) for frame in frames])


def read_by_directories(
    spark: SparkSession, segments: Sequence[PublishedSegment], *, job: JobName, urn: DatasetUrn, role: Role
) -> Iterator[tuple[tuple[str, ...], DataFrame, int]]:
    """The rows of segments of one schema: (names, rows, bytes of the files) for each set of directory columns.

    Rows are as they were written: no column is cast, added or left out.
    """
    groups: dict[FileGroup, list[str]] = defaultdict(list)
    sizes: dict[tuple[str, ...], int] = defaultdict(int)
    for group, file_uri, size_bytes in _locate_all(segments, job, urn, role):
        groups[group].append(file_uri)
        sizes[group.partition_columns] += size_bytes
    for columns, size_bytes in sizes.items():
        mine = {group: uris for group, uris in groups.items() if group.partition_columns == columns}
        frames = [_read_group(spark, group, uris, parse_schema(group.schema_json)) for group, uris in mine.items()]
        yield columns, reduce(DataFrame.union, frames), size_bytes


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that one Spark read can take: one directory above their partitions, one schema, one format.

    ``base_uri`` None: any directories, and the values of partitions come from each row's path.
    """

    base_uri: str | None
    partition_columns: tuple[str, ...]
    schema_json: str
    file_format: FileFormat = FileFormat.PARQUET


def _read(
    spark: SparkSession,
    segments: Sequence[PublishedSegment],
    schema: t.StructType,
    job: JobName,
    urn: DatasetUrn,
    role: Role,
) -> DataFrame:
    file_count = sum(segment.file_count for segment in segments)
    if file_count > FILES_MAX:
        raise _refuse_size(urn, f"{file_count} files", FILES_MAX)
    groups = locate_files(segments, job, urn, role)
    if len(groups) > GROUPS_MAX:
        raise _refuse_size(urn, f"files of {len(groups)} schemas", GROUPS_MAX)
    if not groups:
        return spark.createDataFrame([], schema)
    frames = [_read_group(spark, group, uris, schema) for group, uris in groups.items()]
    return reduce(DataFrame.union, frames)


def locate_files(
    segments: Sequence[PublishedSegment], job: JobName, urn: DatasetUrn, role: Role
) -> Mapping[FileGroup, Sequence[str]]:
    """The URIs of all files, grouped by what one Spark read can take. Each file was found, with its length.

    CorruptionError names a file that was not.
    """
    groups: dict[FileGroup, list[str]] = defaultdict(list)
    for group, uri, _size_bytes in _locate_all(segments, job, urn, role):
        groups[group].append(uri)
    return _without_directories(groups) if len(groups) > DIRECTORIES_MAX else groups


def _schema_reader() -> Callable[[object], str]:
    """Reads a schema as text, so that equal ones can be compared. Thousands of segments share a few values."""
    texts: dict[int, str] = {}

    def read(file_schema: object) -> str:
        text = texts.get(id(file_schema))
        if text is None:
            text = texts[id(file_schema)] = parse_schema(file_schema).json()
        return text

    return read


def _without_directories(groups: Mapping[FileGroup, list[str]]) -> dict[FileGroup, list[str]]:
    merged: dict[FileGroup, list[str]] = defaultdict(list)
    for group, uris in groups.items():
        merged[replace(group, base_uri=None)] += uris
    return merged


def _locate_all(
    segments: Sequence[PublishedSegment], job: JobName, urn: DatasetUrn, role: Role
) -> Iterator[tuple[FileGroup, str, int]]:
    """Each file's URI and length, with the group that it belongs to. Each was found, with its length."""
    read_schema, open_root = _schema_reader(), cache(open_file_system)
    looked = _look_in_stores(segments, open_root)
    for segment in segments:
        yield from _locate(segment, job, urn, role, read_schema, open_root, looked)


def _look_in_stores(
    segments: Sequence[PublishedSegment], open_root: Callable[[str], tuple[FileSystem, str]]
) -> Mapping[str, FileIdentity | None]:
    """What is at the names of files in stores, asked for together. On a disk, a look costs nothing worth it."""
    paths: dict[str, list[str]] = defaultdict(list)
    for segment in segments:
        if isinstance(open_root(segment.root_uri)[0], HoldsObjects):
            paths[segment.root_uri] += (path for path, _size_bytes in segment.file_sizes())
    found = [look_at_files(open_root(root_uri)[0], some) for root_uri, some in paths.items()]
    return reduce(operator.or_, found, {})


def _locate(
    segment: PublishedSegment,
    job: JobName,
    urn: DatasetUrn,
    role: Role,
    read_schema: Callable[[object], str],
    open_root: Callable[[str], tuple[FileSystem, str]],
    looked: Mapping[str, FileIdentity | None],
) -> Iterator[tuple[FileGroup, str, int]]:
    """Output partitions are the directories ``name=value`` below the dataset's own; no other directory of ours has
    an equals sign, since names of datasets and partitions have it percent-encoded.
    """
    fs, root = open_root(segment.root_uri)
    role_path = path_of(root, job, urn, role)
    schema_json = read_schema(segment.file_schema)
    role_uri = fs.to_uri(role_path)
    for path, size_bytes in segment.file_sizes():
        if not path.startswith(f"{role_path}/"):
            raise CorruptionError(
                f"the log has a file of {urn!a} outside its directory", path=path, directory=role_path
            )
        _require_whole(fs.to_uri(path), looked[path] if path in looked else fs.find_identity(path), size_bytes)
        below, file_format = path[len(role_path) + 1 :], format_of(path)
        if "=" not in below:
            yield FileGroup(role_uri, (), schema_json, file_format), fs.to_uri(path), size_bytes
            continue
        directories = below.split("/")[:-1]
        columns = tuple(unquote(part.partition("=")[0]) for part in directories if "=" in part)
        above = next((i for i, part in enumerate(directories) if "=" in part), 0)
        base = "/".join((role_path, *directories[:above]))
        yield FileGroup(fs.to_uri(base), columns, schema_json, file_format), fs.to_uri(path), size_bytes


def _require_whole(uri: str, found: FileIdentity | None, expected: int) -> None:
    """Spark would find a missing file only when the query runs, and would never notice that a file has changed.

    Only lengths are compared: a file that was restored from a backup is good, but has a new inode.
    """
    if found is None:
        raise _missing(uri)
    if found.size_bytes != expected:
        raise CorruptionError(
            f"a published file is damaged: {uri} has {found.size_bytes} bytes, and {expected} were published",
            hint="Restore it, or materialize its partition again with --mode refresh; `gobblin-assets verify` "
            "looks for more.",
            path=uri,
        )


def _missing(uri: str) -> CorruptionError:
    return CorruptionError(
        f"a published file is missing: {uri}",
        hint="Restore it; or, if this view is older than retire_grace_s, read the dataset again.",
        path=uri,
    )


def _read_group(spark: SparkSession, group: FileGroup, uris: Sequence[str], schema: t.StructType) -> DataFrame:
    stored = parse_schema(group.schema_json)
    # By the names that the files have: Parquet compares them in its own way.
    names = pair_names(schema.names, stored.names)
    types = {
        names[field.name]: type_to_read(stored[names[field.name]].dataType, field.dataType)
        for field in schema.fields
        if field.name in names
    }
    try:
        frame = _open_files(spark, group, uris, columns_to_read(group.file_format, stored, types))
        found = pair_names(types, frame.columns)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            # The file was removed between our look and Spark's.
            raise _missing((error.getMessageParameters() or {}).get("path", "")) from error
        raise
    return frame.select(
        *(
            (
                named(found[names[field.name]]).cast(field.dataType)
                if field.name in names
                else f.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in schema.fields
        )
    )


def _open_files(
    spark: SparkSession, group: FileGroup, uris: Sequence[str], types: Mapping[str, t.DataType]
) -> DataFrame:
    """Files and the values of their directories, with these types."""
    file_format = group.file_format
    if group.base_uri is not None:
        frame = open_format(spark.read.option("basePath", group.base_uri), file_format, types, uris)
        if file_format is not FileFormat.CSV:
            return frame
        return frame.select(*(read_value(file_format, name, kind).alias(name) for name, kind in types.items()))
    directories = {name_key(name): place for place, name in enumerate(reversed(group.partition_columns))}
    in_files = {name: kind for name, kind in types.items() if name_key(name) not in directories}
    frame = open_format(spark.read.option("recursiveFileLookup", "true"), file_format, in_files, uris)
    path = f.split(frame.metadataColumn("_metadata")["file_path"], "/")
    return frame.select(
        *(read_value(file_format, name, kind).alias(name) for name, kind in in_files.items()),
        *(
            _directory_value(path, directories[name_key(name)]).cast(kind).alias(name)
            for name, kind in types.items()
            if name_key(name) in directories
        ),
    )


def _directory_value(path: Column, place: int) -> Column:
    """The text of the ``place``-th partition directory above a file's sequence directory, the innermost first.

    In a URI, Spark's own escapes are escaped once more. A plus sign means itself.
    """
    value = f.regexp_replace(f.element_at(path, -3 - place), "^[^=]*=", "")
    for _escaping in range(2):
        value = f.url_decode(f.replace(value, f.lit("+"), f.lit("%2B")))
    return f.when(value != NULL_DIRECTORY, value)


def _schema_of(port: PublishedFiles, found: PublishedSet, job: JobName, urn: DatasetUrn, role: Role) -> t.StructType:
    if found.file_schemas:
        return _merge_found(found)
    if role is Role.QUARANTINE:
        # No row was ever set aside: the frame is empty, with the columns that such a row would have.
        data = port.find(job, urn, role=Role.DATA, partitions=[])
        if data is not None and data.file_schemas:
            merged = _merge_found(data)
            extra = [] if FAILED_COLUMN in merged.names else [t.StructField(FAILED_COLUMN, FAILED_TYPE)]
            return t.StructType([*merged.fields, *extra])
    raise RejectedError(
        f"{urn!a} of job {job} has published no {role} files yet, so that its columns are not known",
        field="urn",
        hint="Materialize it first.",
    )


def _merge_found(found: PublishedSet) -> t.StructType:
    """The schema of the whole dataset; or only of the found segments, if older releases left files that don't merge."""
    try:
        return merge_schemas(parse_schema(each) for each in found.file_schemas)
    except RejectedError:
        own = [each.file_schema for each in found.segments if each.file_schema is not None]
        if not own:
            raise
        return merge_schemas(parse_schema(each) for each in own)


def _refuse_rows_elsewhere(port: PublishedFiles, job: JobName, urn: DatasetUrn) -> None:
    found = port.find_rows_elsewhere(job, urn)
    if found is not None:
        raise RejectedError(
            f"{urn!a} of job {job} has {found.row_count:,} rows in {found.uri}, and they are in no file",
            field="urn",
            hint="Read them there, by any client.",
        )


def refuse_unknown(port: PublishedFiles, job: JobName, urn: DatasetUrn) -> RejectedError:
    """The error for a dataset that the log does not have, with names that are alike."""
    known: Mapping[str, None] = dict.fromkeys(port.list_urns(job))
    close = difflib.get_close_matches(urn, known, n=3)
    hint = f"Did you mean {' or '.join(map(repr, close))}?" if close else "Look it up with gobblin-assets status."
    if not known:
        hint = f"No run of job {job!r} is recorded here: compare the job's name and the database."
    return RejectedError(f"job {job} has no dataset {urn!a}", field="urn", hint=hint)


def _refuse_size(urn: DatasetUrn, found: str, allowed: int) -> RejectedError:
    return RejectedError(
        f"{urn!a} has {found}; one query takes at most {allowed}",
        field="partitions",
        hint="Read fewer partitions at once.",
    )
