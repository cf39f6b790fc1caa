"""A Spark write whose tasks make the files themselves, by ``NewFiles``: for places without renames.

Each task encodes its rows as Arrow batches into Parquet, and answers with what it finished. Only what a task answered
counts, so that speculative and repeated tasks leave nothing but uploads that nobody completes. A task sorts its rows by
their output partition, and has one file open at a time.

An error of the place is an answer as well: Spark would try a task that raises again, and end the whole job after some
tries.

Spark bounds a batch for a Python worker by rows and by bytes. For the latter it computes the size of the batch anew
with each row, which takes more than a quarter of the time of such a task. If the source holds so many rows in memory
anyway, a bound of rows is enough (``batches_by_rows``).
"""

import json
import pickle
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Final, Protocol
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.model.directory_names import NULL_DIRECTORY, escape_directory
from gobblin_assets.rows.arrow_writer import RollingWriter
from gobblin_assets.rows.columns import named
from gobblin_assets.rows.new_files import FinishedRows, NewFiles
from gobblin_assets.rows.optional_failures import count_in_rows
from gobblin_assets.rows.parquet_writer import WrittenDirectory
from gobblin_assets.rows.row_samples import FAILED_COLUMN
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.python_workers import run_lightly

_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_ROWS_DEFAULT: Final = 10_000
_BYTES_UNBOUNDED: Final = str(2**31 - 1)

_lock: Final = threading.Lock()
_writes: Final[WeakKeyDictionary[SparkSession, list[int]]] = WeakKeyDictionary()
"""What the writes that go on in a session hold. Its configuration is that of all its threads."""


@contextmanager
def batches_by_rows(spark: SparkSession, rows_held: int | None) -> Iterator[None]:
    """In the block, batches have at most ``rows_held`` rows, and any number of bytes.

    Nothing is changed without ``rows_held``, or where the user has set a bound.
    """
    if rows_held is None:
        yield
        return
    with _lock:
        active = _writes.setdefault(spark, [])
        is_bounded = not active and any(spark.conf.get(name, None) is not None for name in (_ROWS, _BYTES))
        if not is_bounded:
            active.append(rows_held)
            _apply(spark, active)
    try:
        yield
    finally:
        with _lock:
            if not is_bounded:
                active.remove(rows_held)
                _apply(spark, active)


def _apply(spark: SparkSession, active: list[int]) -> None:
    if active:
        spark.conf.set(_ROWS, str(min(_ROWS_DEFAULT, *active)))
        spark.conf.set(_BYTES, _BYTES_UNBOUNDED)
    else:
        spark.conf.unset(_ROWS)
        spark.conf.unset(_BYTES)


_KEY: Final = "gobblin_partition"
_ANSWER: Final = "found binary"
_ANSWER_FIELDS: Final = pa.schema([("found", pa.binary())])

_ENVIRONMENT_COUNTS: Final = "The environment of each machine's executors counts, not that of this command."

_STORABLE: Final = (
    *(t.BooleanType, t.ByteType, t.ShortType, t.IntegerType, t.LongType, t.FloatType, t.DoubleType, t.DecimalType),
    *(t.StringType, t.BinaryType, t.DateType, t.TimestampType, t.TimestampNTZType),
)


class TaskFiles(NewFiles, Protocol):
    """The files of one task."""

    def sample(self, partition_path: str, first: pa.RecordBatch) -> Sequence[str]:
        """Rows of a directory's first batch that people may be shown, as short texts; none of most directories."""
        ...


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """The task's part of a write, as a value that is pickled. ``open_files`` is called where the files are written."""

    open_files: Callable[[], TaskFiles]
    partition_columns: tuple[str, ...]
    file_rows_max: int
    compression: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a task finished. ``samples``: rows that people are shown. No other row comes to the driver.

    ``failures``: how many of its rows name each policy.
    """

    partition_path: str
    finished: FinishedRows
    samples: Sequence[str] = ()
    failures: Mapping[str, int] = field(default_factory=dict)


def write_by_tasks(
    frame: DataFrame, order: TaskWrite, *, dataset: str, place: str, rows_held: int | None = None
) -> list[WrittenDirectory]:
    """Write the frame; returns the directories in path order, each with the steps that publish its files.

    RejectedError names a column whose type the files can't hold. ``place``: for errors. ``rows_held``: how many rows of
    the frame a task holds in memory anyway; None: nobody knows.
    """
    require_storable(frame.schema, dataset)
    if order.partition_columns:
        values = f.array(*(named(name).cast("string") for name in order.partition_columns))
        rest = [named(name) for name in frame.columns if name not in order.partition_columns]
        frame = frame.select(*rest, f.to_json(values).alias(_KEY)).sortWithinPartitions(_KEY)
    with spark_families(f"write to {place}"), batches_by_rows(frame.sparkSession, rows_held):
        rows = frame.mapInArrow(partial(run_lightly, partial(write_rows, order)), _ANSWER).collect()
    answers = [pickle.loads(row[0]) for row in rows]  # noqa: S301  of our own tasks
    for error in (each for each in answers if isinstance(each, GobblinError)):
        raise error
    return _gather(answers)


def write_rows(order: TaskWrite, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: write its batches, and answer with each file."""
    try:
        files = order.open_files()
    except GobblinError as error:
        yield _answer(_say_where(error))
        return
    try:
        for found in _write_all(order, files, batches):
            yield _answer(found)
    except GobblinError as error:
        yield _answer(_say_where(error))


def _say_where(error: GobblinError) -> GobblinError:
    """Keys, a mount or a Python that are right where the command was given may be missing here."""
    error.message = f"in a process of Spark's executors: {error.message}"
    if isinstance(error, RejectedError):
        error.hint = " ".join(filter(None, (error.hint, _ENVIRONMENT_COUNTS)))
    return error


def require_storable(schema: t.StructType, dataset: str) -> None:
    """RejectedError for a type that Arrow's Parquet has no equal of."""
    for column in schema.fields:
        if not _is_storable(column.dataType):
            raise RejectedError(
                f"dataset {dataset!r}: the {column.dataType.simpleString()} column {column.name!r} can't be written to "
                "an object store or to HDFS",
                field="destination",
                hint=f'Cast it by a converter, such as sql: {{{column.name}: "CAST({column.name} AS STRING)"}}, or '
                "drop it.",
            )


def _is_storable(kind: t.DataType) -> bool:
    match kind:
        case t.ArrayType():
            return _is_storable(kind.elementType)
        case t.MapType():
            return _is_storable(kind.keyType) and _is_storable(kind.valueType)
        case t.StructType():
            return all(_is_storable(each.dataType) for each in kind.fields)
        case _:
            return isinstance(kind, _STORABLE)


def _answer(found: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], schema=_ANSWER_FIELDS)


def _write_all(order: TaskWrite, files: TaskFiles, batches: Iterable[pa.RecordBatch]) -> Iterator[WrittenFile]:
    task = TaskContext.get()
    number = 0 if task is None else task.partitionId()
    for key, some in groupby(_cut(batches, has_key=bool(order.partition_columns)), key=itemgetter(0)):
        path = _path_of(order.partition_columns, key)
        rows = (batch for _key, batch in some)
        first = next(rows)
        failures: Counter[str] = Counter()
        with RollingWriter(
            files,
            path,
            f"part-{number:05d}-{uuid.uuid4()}",
            first.schema,
            rows_max=order.file_rows_max,
            compression=order.compression,
        ) as writer:
            for batch in chain([first], rows):
                writer.write(batch)
                if FAILED_COLUMN in batch.schema.names:
                    failures += count_in_rows(batch)
        samples = files.sample(path, first)
        for finished in writer.files:
            yield WrittenFile(path, finished, samples, failures)
            samples, failures = (), Counter()


def _cut(batches: Iterable[pa.RecordBatch], *, has_key: bool) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Batches of rows of one output partition each, with its key; rows come sorted by it."""
    for batch in batches:
        if not batch.num_rows:
            continue
        if not has_key:
            yield "[]", batch
            continue
        place = batch.schema.get_field_index(_KEY)
        keys, rows = batch.column(place), batch.remove_column(place)
        changes = pc.indices_nonzero(pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1))).to_pylist()
        for begin, end in pairwise([0, *(each + 1 for each in changes), len(keys)]):
            yield keys[begin].as_py(), rows.slice(begin, end - begin)


def _path_of(columns: Sequence[str], key: str) -> str:
    """The directories as Spark would name them."""
    values = json.loads(key)
    return "/".join(
        f"{escape_directory(name)}={NULL_DIRECTORY if value is None else escape_directory(value)}"
        for name, value in zip(columns, values, strict=True)
    )


def _gather(files: Sequence[WrittenFile]) -> list[WrittenDirectory]:
    """Files of several tasks, by the directory that they share."""
    by_path = sorted(files, key=lambda each: (each.partition_path, each.finished.file.name))
    directories = []
    for path, some in groupby(by_path, key=lambda each: each.partition_path):
        together = list(some)
        directories.append(
            WrittenDirectory(
                path="",
                partition_path=path,
                files=tuple(each.finished.file for each in together),
                steps=tuple(each.finished.step for each in together if each.finished.step is not None),
                samples=tuple(text for each in together for text in each.samples),
                optional_failures=sum((Counter(each.failures) for each in together), Counter()),
            )
        )
    return directories
