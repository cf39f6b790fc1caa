"""Spark turns fetched texts into exactly the same values, or the read fails and names the value.

A failure is the message ``gobblin_value:<column number>=<value>``, as Postgres' readers write it (``postgres_tables``).
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (pyspark's own name for it)

from gobblin_assets.sources.jdbc.catalog import Selected

# Without backslashes, because a setting decides how Spark's parser reads them.
_DAY: Final = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_PATTERNS: Final = {
    "DATE": f"^{_DAY}$",
    "TIMESTAMP": f"^{_DAY} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}}0*)?$",
    "TIMESTAMP_NTZ": f"^{_DAY} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]{{1,6}}0*)?$",
}


def wire_schema(columns: Sequence[Selected]) -> str:
    """Spark's option ``customSchema``: the types in which the driver returns the columns."""
    values = [f"c{number} {column.wire}" for number, column in enumerate(columns) if column.wire]
    guards = [f"g{number} STRING" for number, column in enumerate(columns) if column.guard]
    return ", ".join((*values, *guards))


def read_values(frame: DataFrame, columns: Sequence[Selected]) -> DataFrame:
    """``c0``, ``c1`` … of the columns' own types."""
    return frame.select(*[F.expr(_write(number, column)).alias(f"c{number}") for number, column in enumerate(columns)])


def _write(number: int, column: Selected) -> str:
    name = f"c{number}"
    value = _write_value(number, column.wire, column.spark_type)
    if not column.guard:
        return value
    return f"CASE WHEN g{number} IS NOT NULL THEN {_refuse(number, f'g{number}')} ELSE {value or name} END"


def _write_value(number: int, wire: str, spark_type: str) -> str:
    name = f"c{number}"
    if spark_type in {"", wire}:
        return name
    if wire != "STRING":
        return f"CAST({name} AS {spark_type})"
    spelled = f"concat({name}, 'Z')" if spark_type == "TIMESTAMP" else name
    parsed = f"try_cast({spelled} AS {spark_type})"
    fits = (
        _fits_decimal(name, spark_type)
        if spark_type.startswith("DECIMAL")
        else f"{name} RLIKE '{_PATTERNS[spark_type]}'"
    )
    return (
        f"CASE WHEN {name} IS NULL THEN NULL WHEN {fits} AND {parsed} IS NOT NULL THEN {parsed}"
        f" ELSE {_refuse(number, name)} END"
    )


def _fits_decimal(name: str, spark_type: str) -> str:
    """Whether no digit is lost: a cast rounds digits beyond the scale. Drivers may write an exponent."""
    scale = int(spark_type.removesuffix(")").rpartition(",")[2])
    digits = f"length(regexp_extract({name}, '[.]([0-9]*?)0*([eE]|$)', 1))"
    exponent = f"coalesce(try_cast(regexp_extract({name}, '[eE]([+-]?[0-9]+)$', 1) AS INT), 0)"
    return f"({name} RLIKE '^[+-]?[0.]+([eE].*)?$' OR {digits} - {exponent} <= {scale})"


def _refuse(number: int, text: str) -> str:
    return f"raise_error(concat('gobblin_value:{number}=', left({text}, 100)))"
