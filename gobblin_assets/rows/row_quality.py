"""Row policies: what happens to a row that does not pass, decided inside the one write that publishes the rest.

A check that gives NULL counts as a failure. Any number of policies may fail for one row:

    fail      the task fails, and with it nothing of the attempt is published. The first such row ends it; how many
              there are is then counted by another read (``look_at_failed``), which a good task never needs.
    err_file  the row is set aside: it goes to the quarantine role, published in the same sequence.
    optional  the row stays, annotated.

``split_rows`` reads nothing and needs no second pass. It gives one frame; where some policy sets rows aside,
that frame has the column ``ROLE_COLUMN``, and the writer makes it the outermost directory:

    <attempt>/gobblin_role=data/<output partitions>/part-….parquet
    <attempt>/gobblin_role=quarantine/<output partitions>/part-….parquet

``hidden_columns`` takes that directory off again. Without such a policy there is no such directory and all files are
data. Rows that were set aside are counted in the files' footers, never by an observation: a repeated stage is observed
twice.

If there are err_file or optional policies, the column ``FAILED_COLUMN`` (array of text, empty for a row that passed)
names the policies that a row failed. Both roles have it, since one write has one file schema. ``RowSplit.schemas`` says
what is published: quarantine always has the column, and data only where a policy is optional; a reader of the ledger
sees just that.

Dead letters stand for records that can't be decoded, or for rows without a usable event time. The part that finds them
(a source's decoder, ``event_time``) marks them by hidden columns of the frame:

    gobblin_dead_letter      text, NULL for a good row, else the reason: a sentence without values of the row.
    gobblin_dead_letter_<x>  any type, NULL for a good row: further facts of the letter, such as its topic,
                             partition, offset and bytes. There may be none of these columns, or many.

A frame without the first has no dead letters, and keeps its shape. Converters neither see nor change a row whose
reason is set (``converters`` says how), and carry the hidden columns along. The values that they see in such a row's
own columns are not defined; a decoder leaves them NULL. Here, such rows go to ``Role.DEAD_LETTER``: no policy is
applied to them, not even ``fail``. Published are all columns of the data, then ``<x>`` as ``dead_letter_<x>`` and the
reason as ``dead_letter_reason``; neither data nor quarantine have these.

    <attempt>/gobblin_role=dead_letter/<output partitions>/part-….parquet

A frame may hold the rows of several datasets, which are read and written together. Its hidden column
``gobblin_share``, text and never NULL, then says to which dataset each row belongs, dead letters included. It passes
unseen as well, and becomes the outermost directory of all; ``hidden_columns`` takes it off.

A dead letter's output partitions are those of its columns (NULL has a directory), without the directory of the event
time. Spark must be given some value there: ``output_partitions`` writes a fixed one, takes that directory off the
published path again, and names the column to ``split_rows``, which leaves it out of the schema.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.column_names import find_column
from gobblin_assets.rows.columns import find_raised, named, raising, refuse_expression
from gobblin_assets.rows.hidden_columns import DEAD_LETTER_COLUMN, ROLE_COLUMN, SHARE_COLUMN, published_name
from gobblin_assets.rows.row_samples import (
    FAILED_COLUMN,
    SAMPLES_MAX,
    VALUE_LENGTH_MAX,
    RowFailures,
    ShownValue,
    choose_columns,
    unit_of,
    write_sample,
)
from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec

FAILED_TYPE: Final = t.ArrayType(t.StringType(), containsNull=False)

_RAISED: Final = "row_policy"
_PROBE: Final = "gobblin_check"


@dataclass(frozen=True, slots=True)
class RowSplit:
    """``frame`` is to be written with ``partition_columns`` as the outermost directories.

    ``schemas`` are the published columns of each role that may occur, without ``ROLE_COLUMN``.
    """

    frame: DataFrame
    partition_columns: tuple[str, ...]
    schemas: Mapping[Role, t.StructType]


def dead_letter_columns(names: Iterable[str]) -> tuple[str, ...]:
    """The hidden columns among ``names``, the reason first; () where there can be no dead letters."""
    known = list(names)
    if DEAD_LETTER_COLUMN not in known:
        return ()
    return (DEAD_LETTER_COLUMN, *(name for name in known if name.startswith(f"{DEAD_LETTER_COLUMN}_")))


def find_hidden_columns(names: Iterable[str]) -> tuple[str, ...]:
    """All hidden columns among ``names``: those of dead letters, and the share."""
    known = list(names)
    return (*dead_letter_columns(known), *([SHARE_COLUMN] if SHARE_COLUMN in known else []))


def is_dead_letter() -> Column:
    """The condition, never NULL, for frames that have the columns of dead letters."""
    return named(DEAD_LETTER_COLUMN).isNotNull()


def split_rows(
    frame: DataFrame, policies: Sequence[RowPolicySpec], *, dataset: str, event_time_name: str | None = None
) -> RowSplit:
    """Apply the policies; nothing but analysis happens. RejectedError names dataset, policy and columns.

    ``event_time_name`` is the directory column that a published dead letter does not have.
    """
    hidden = dead_letter_columns(frame.columns)
    share = (SHARE_COLUMN,) if SHARE_COLUMN in frame.columns else ()
    data = t.StructType([field for field in frame.schema.fields if field.name not in (*hidden, *share)])
    for number, policy in enumerate(policies):
        _require_check(frame, policy, field=f"quality.rows[{number}].check", dataset=dataset)
    passing = {policy.name: _passes(policy, may_be_dead=bool(hidden)) for policy in policies}
    by_kind = {
        kind: [policy.name for policy in policies if policy.on_failure == kind]
        for kind in ("fail", "err_file", "optional")
    }
    annotating = [policy.name for policy in policies if policy.on_failure != "fail"]
    _require_free(data.names, annotating=bool(annotating), hidden=hidden, dataset=dataset)
    columns = [named(name) for name in data.names]
    if by_kind["fail"]:
        # Inside a column that is written: as a filter, Spark could move it below a converter's where or the
        # late window's join, and a row that is left out anyway would fail the task.
        first = data.fields[0]
        guarded = _guard(columns[0], {name: passing[name] for name in by_kind["fail"]}, first.dataType)
        columns[0] = guarded.alias(first.name, metadata=first.metadata)
    annotated = data
    if annotating:
        columns.append(_names_of_failed({name: passing[name] for name in annotating}).alias(FAILED_COLUMN))
        annotated = t.StructType([*data.fields, t.StructField(FAILED_COLUMN, FAILED_TYPE)])
    schemas = {Role.DATA: annotated if by_kind["optional"] else data}
    aside: dict[Role, Column] = {}
    if hidden:
        # This comes first: a dead letter is never data, whatever else it is.
        aside[Role.DEAD_LETTER] = is_dead_letter()
        schemas[Role.DEAD_LETTER] = _dead_letter_schema(data, frame.schema, hidden, event_time_name)
        columns += [named(name).alias(published_name(name)) for name in hidden]
    if by_kind["err_file"]:
        aside[Role.QUARANTINE] = ~reduce(and_, (passing[name] for name in by_kind["err_file"]))
        schemas[Role.QUARANTINE] = annotated
    columns += [named(name) for name in share]
    if not aside:
        return RowSplit(frame.select(*columns), share, MappingProxyType(schemas))
    role = f.lit(Role.DATA.value)
    for other, condition in reversed(aside.items()):
        role = f.when(condition, f.lit(other.value)).otherwise(role)
    columns.append(role.alias(ROLE_COLUMN))
    return RowSplit(frame.select(*columns), (*share, ROLE_COLUMN), MappingProxyType(schemas))


def failed_rows(frame: DataFrame, policy: RowPolicySpec) -> DataFrame:
    """The rows that fail the policy, of a frame as ``split_rows`` takes it."""
    return frame.where(~_passes(policy, may_be_dead=bool(dead_letter_columns(frame.columns))))


def find_broken_policy(error: BaseException) -> str | None:
    """The ``fail`` policy that made a Spark action fail; None if no row of such a policy did."""
    raised = find_raised(error)
    return None if raised is None or raised[0] != _RAISED else raised[1]


def explain_row_failure(
    error: BaseException, *, dataset: str, failures: RowFailures | None = None
) -> RejectedError | None:
    """The error to raise instead, if a row that failed a ``fail`` policy made a Spark action fail.

    ``failures``: what is known of such rows, if they were looked at. The error has it, and the policy, as fields.
    """
    policy = find_broken_policy(error)
    if policy is None:
        return None
    many = "at least one row" if failures is None or failures.count < 1 else f"{failures.count:,} rows"
    return RejectedError(
        f"dataset {dataset!r}: {many} failed the row policy {policy!r}, whose on_failure is fail",
        field="quality.rows",
        hint="Nothing that its task read was published. Mend the rows at the source, or set them aside by "
        "on_failure: err_file.",
        policy=policy,
        **({} if failures is None else {"failures": failures}),
    )


def _passes(policy: RowPolicySpec, *, may_be_dead: bool = False) -> Column:
    passes = f.coalesce(f.expr(policy.check), f.lit(False))
    return f.when(is_dead_letter(), f.lit(True)).otherwise(passes) if may_be_dead else passes


def _guard(column: Column, passing: Mapping[str, Column], data_type: t.DataType) -> Column:
    guarded = column
    for name, passes in reversed(list(passing.items())):
        guarded = f.when(passes, guarded).otherwise(raising(_RAISED, name, data_type))
    return guarded


def _names_of_failed(passing: Mapping[str, Column]) -> Column:
    return f.array_compact(f.array(*(f.when(~passes, f.lit(name)) for name, passes in passing.items())))


def _dead_letter_schema(
    data: t.StructType, schema: t.StructType, hidden: Sequence[str], event_time_name: str | None
) -> t.StructType:
    own = [field for field in data.fields if field.name != event_time_name]
    about = [t.StructField(published_name(name), schema[name].dataType) for name in hidden]
    return t.StructType([*own, *about])


def _require_free(names: Sequence[str], *, annotating: bool, hidden: Sequence[str], dataset: str) -> None:
    """Columns that are added to the files must not have a name that the data has."""
    needed = {FAILED_COLUMN: "row policies need"} if annotating else {}
    needed |= {published_name(name): "dead letters need" for name in hidden}
    if annotating or hidden:
        needed[ROLE_COLUMN] = "row policies need" if annotating else "dead letters need"
    for name, who in needed.items():
        if find_column(names, name) is not None:
            raise RejectedError(
                f"dataset {dataset!r}: {who} the column name {name!r}, and the data has it",
                field="quality.rows" if annotating else "converters",
                hint="Rename the data's column by a converter.",
            )


def _require_check(frame: DataFrame, policy: RowPolicySpec, *, field: str, dataset: str) -> None:
    label = f"dataset {dataset!r}, row policy {policy.name!r}"
    try:
        # Beside the columns, so that an aggregate, which would join all rows into one, is refused; then inside
        # another expression, so that one that makes several rows of one is refused too.
        found = frame.select("*", f.expr(policy.check).alias(_PROBE)).schema.fields[-1].dataType
        if isinstance(found, t.BooleanType | t.NullType):
            _ = frame.select("*", _passes(policy).alias(_PROBE)).schema
            return
    except AnalysisException as error:
        hidden = find_hidden_columns(frame.columns)
        available = [name for name in frame.columns if name not in hidden]
        raise refuse_expression(error, label=label, field=field, available=available) from error
    raise RejectedError(
        f"{label}: expected a condition, found an expression of type {found.simpleString()}",
        field=field,
        hint="Write something that is true for a good row, such as amount >= 0.",
    )


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
