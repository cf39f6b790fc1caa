"""Rows that failed a policy, looked at afterwards. Nothing of this runs where no row failed."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.rows.columns import named
from gobblin_assets.rows.row_quality import failed_rows
from gobblin_assets.rows.row_samples import (
    SAMPLES_MAX,
    VALUE_LENGTH_MAX,
    RowFailures,
    ShownValue,
    choose_columns,
    unit_of,
    write_sample,
)
from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec


def look_at_failed(frame: DataFrame, policy: RowPolicySpec, spec: DatasetSpec) -> RowFailures:
    """Count the rows that fail the policy, and show some: two reads of the source, of which one ends early."""
    failing = failed_rows(frame, policy)
    mode = spec.quality.samples
    names = choose_columns(spec, [policy], frame.columns)
    if mode == "none" or not names:
        return RowFailures(failing.count())
    types = {name: frame.schema[name].dataType for name in names}
    shown = [
        f.struct(
            named(name).isNull().alias("is_null"),
            _size_of(name, types[name].simpleString()).alias("size"),
            (_text_of(name, types[name]) if mode == "values" else f.lit(None).cast("string")).alias("text"),
        ).alias(f"c{number}")
        for number, name in enumerate(names)
    ]
    samples = [
        write_sample(
            {
                name: ShownValue(types[name].simpleString(), cell["is_null"], cell["size"], cell["text"])
                for name, cell in zip(names, row, strict=True)
            }
        )
        for row in failing.select(*shown).limit(SAMPLES_MAX).collect()
    ]
    return RowFailures(failing.count(), tuple(samples))


def _size_of(name: str, type_text: str) -> Column:
    match unit_of(type_text):
        case "characters":
            return f.length(named(name))
        case "bytes":
            return f.octet_length(named(name))
        case "elements":
            return f.size(named(name))
        case _:
            return f.lit(None).cast("int")


def _text_of(name: str, data_type: t.DataType) -> Column:
    text = f.hex(named(name)) if isinstance(data_type, t.BinaryType) else named(name).cast("string")
    return f.left(text, f.lit(VALUE_LENGTH_MAX))
