"""Output partitions: columns whose values become directories, by themselves or through a time pattern.

A directory ``name=value`` holds the rows of one value, and the column is not in the files. NULL goes to Spark's
own directory for it, ``name=__HIVE_DEFAULT_PARTITION__``, and comes back as NULL. Spark would put the empty text
there too, and it would come back as NULL: a task that meets an empty text fails instead. A task also fails at a text
that would be hidden from readers, or that no file system accepts as a name (``directory_names``).

The directory of the event time is the innermost. Dead letters (``row_quality``) have none: Spark writes them to a
fixed one, which ``hidden_columns`` removes from the path.
"""

import datetime as dt
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.directory_names import (
    ESCAPED,
    HIDDEN_ENDING,
    NULL_DIRECTORY,
    SEGMENT_BYTES_MAX,
    count_escaped_bytes,
)
from gobblin_assets.rows.column_names import find_column, require_column
from gobblin_assets.rows.columns import find_raised, named, raising
from gobblin_assets.rows.event_time import add_event_time, find_event_time_failure, find_zone_failure
from gobblin_assets.rows.row_quality import find_hidden_columns
from gobblin_assets.spec.job_spec import WriterSpec

_SAID: Final = {
    "partition_value_empty": "is an empty text, which no directory can express",
    "partition_value_null": f"is the text {NULL_DIRECTORY!r}, which would come back as NULL",
    "partition_value_hidden": f"ends in {HIDDEN_ENDING!r}: readers skip such a directory",
    "partition_value_nul": "has a NUL character, which no directory's name can hold",
    "partition_value_long": f"is too long: the directory's name would have more than {SEGMENT_BYTES_MAX} bytes",
}
_UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "Z", "GMT"})
# Types whose text holds the whole value, so that it can be read back from a directory's name.
_TYPES: Final = (
    t.StringType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.DecimalType,
    t.BooleanType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)


def add_output_partitions(
    frame: DataFrame, writer: WriterSpec, *, dataset: str, now: dt.datetime
) -> tuple[DataFrame, tuple[str, ...]]:
    """The frame to write, and the names of its directory columns, outermost first; () when there are none.

    A time pattern adds the column ``writer.time_name``, a text in UTC, inside those of ``partition_by``. An event time
    adds its own column inside of these, and may turn rows into dead letters. ``now`` is one moment for all rows,
    from which "future" is measured. Nothing but analysis happens. RejectedError names dataset, column and the fix.
    """
    columns = [
        require_column(frame.columns, name, label=f"dataset {dataset!r}", field="writer.partition_by")
        for name in writer.partition_by
    ]
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name in columns:
        if not isinstance(types[name], _TYPES):
            raise RejectedError(
                f"dataset {dataset!r}: the {types[name].simpleString()} column {name!r} can't become a directory",
                field="writer.partition_by",
                hint="Choose a text, whole number, decimal, boolean, date or time, or cast it to one.",
            )
    partitioned = frame.select(
        *(_as_directory(n, types[n]).alias(n) if n in columns else named(n) for n in frame.columns)
    )
    if writer.time_column is not None and writer.time_pattern is not None:
        partitioned = partitioned.withColumn(writer.time_name, _by_time(frame, writer, dataset))
        columns.append(writer.time_name)
    if writer.event_time is not None:
        _require_utc(frame, dataset, "writer.event_time")
        partitioned = add_event_time(partitioned, writer.event_time, dataset=dataset, now=now)
        columns.append(writer.event_time.name)
    if columns and set(partitioned.columns) <= {*columns, *find_hidden_columns(partitioned.columns)}:
        raise RejectedError(
            f"dataset {dataset!r}: all of its columns would become directories",
            field="writer.partition_by",
            hint="Leave at least one column for the files.",
        )
    return partitioned, tuple(columns)


def explain_partition_failure(error: BaseException, *, dataset: str) -> RejectedError | None:
    """The error to raise instead, if a row without a directory made a Spark action fail.

    Such a row has a text that can't be a directory's name, or lacks an event time that the rules require.
    """
    raised = find_raised(error)
    if raised is None:
        return find_zone_failure(error, dataset=dataset)
    kind, name = raised
    if kind not in _SAID:
        return find_event_time_failure(raised, dataset=dataset)
    mended = f"nullif({name}, '')" if kind == "partition_value_empty" else f"left(md5({name}), 8)"
    return RejectedError(
        f"dataset {dataset!r}: a row's {name!r} {_SAID[kind]}",
        field="writer.partition_by",
        hint=f'Add a converter such as sql: {{{name}: "{mended}"}}; NULL has a directory.',
    )


def _as_directory(name: str, data_type: t.DataType) -> Column:
    column = named(name)
    if not isinstance(data_type, t.StringType):
        return column
    left_bytes = SEGMENT_BYTES_MAX - count_escaped_bytes(name) - 1
    escaped = f.length(column) - f.length(f.translate(column, ESCAPED, ""))
    wrong = {
        "partition_value_empty": column == "",
        "partition_value_null": column == NULL_DIRECTORY,
        "partition_value_hidden": column.endswith(HIDDEN_ENDING),
        "partition_value_nul": f.instr(column, "\0") > 0,
        # Most texts pass the first condition, so that nothing is counted: an escaped byte takes three at most.
        "partition_value_long": (f.octet_length(column) * 3 > left_bytes)
        & (f.octet_length(column) + 2 * escaped > left_bytes),
    }
    checked = column
    for kind, condition in reversed(wrong.items()):
        checked = f.when(condition, raising(kind, name, data_type)).otherwise(checked)
    return checked


def _by_time(frame: DataFrame, writer: WriterSpec, dataset: str) -> Column:
    label = f"dataset {dataset!r}"
    name = require_column(frame.columns, writer.time_column or "", label=label, field="writer.time_column")
    if not isinstance(frame.schema[name].dataType, t.DateType | t.TimestampType | t.TimestampNTZType):
        raise RejectedError(
            f"{label}: expected a date or a time in {name!r}, found {frame.schema[name].dataType.simpleString()}",
            field="writer.time_column",
            hint="Cast it by a converter, or choose another column.",
        )
    if find_column(frame.columns, writer.time_name) is not None:
        raise RejectedError(
            f"{label}: there is a column {writer.time_name!r} already",
            field="writer.time_name",
            hint="Give the directory column another name.",
        )
    _require_utc(frame, dataset, "writer.time_column")
    return f.date_format(named(name), writer.time_pattern or "")


def _require_utc(frame: DataFrame, dataset: str, what: str) -> None:
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC_NAMES:
        raise RejectedError(
            f"dataset {dataset!r}: {what} needs a session in UTC, and this one's zone is {zone!r}",
            field="spark.conf.spark.sql.session.timeZone",
            hint="Set it to UTC, as sessions of this product have it.",
        )
