"""Row policies: what happens to a row that does not pass, decided inside the one write that publishes the rest.

A check that gives NULL counts as a failure. Any number of policies may fail for one row:

    fail      the task fails, and with it nothing of the attempt is published. The first such row ends it, so that
              the message names the policy, never a count or a value.
    err_file  the row is set aside: it goes to the quarantine role, published in the same sequence.
    optional  the row stays, annotated.

``split_rows`` reads nothing and needs no second pass. It gives one frame; where some policy sets rows aside,
that frame has the column ``ROLE_COLUMN``, and the writer makes it the outermost directory:

    <attempt>/gobblin_role=data/<output partitions>/part-….parquet
    <attempt>/gobblin_role=quarantine/<output partitions>/part-….parquet

``parse_role_path`` takes that directory off again. Without such a policy there is no such directory and all
files are data. How many rows were set aside is counted in the files' footers, never by an observation: a stage
that is repeated is observed twice.

Where there are err_file or optional policies, the column ``FAILED_COLUMN`` (array of text, empty for a row that
passed) names those that a row failed, in both roles, since one write has one file schema. ``RowSplit.schemas``
says what is published: the column is part of quarantine always, and of data only where a policy is optional; a
reader of the ledger sees just that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.columns import (
    find_column,
    find_raised,
    named,
    raising,
    refuse_expression,
)
from gobblin_assets.ingest.job_spec import RowPolicySpec
from gobblin_assets.model.urn import Role

ROLE_COLUMN: Final = "gobblin_role"
FAILED_COLUMN: Final = "failed_policies"
FAILED_TYPE: Final = t.ArrayType(t.StringType(), containsNull=False)

_RAISED: Final = "row_policy"
_PROBE: Final = "gobblin_check"


@dataclass(frozen=True, slots=True)
class RowSplit:
    """``frame`` is to be written with ``partition_columns`` before all others.

    ``schemas`` are the published columns of each role that may come out, without ``ROLE_COLUMN``.
    """

    frame: DataFrame
    partition_columns: tuple[str, ...]
    schemas: Mapping[Role, t.StructType]


def split_rows(frame: DataFrame, policies: Sequence[RowPolicySpec], *, dataset: str) -> RowSplit:
    """Apply the policies; nothing but analysis happens. RejectedError names dataset, policy and columns."""
    schema = frame.schema
    for number, policy in enumerate(policies):
        _require_check(frame, policy, field=f"quality.rows[{number}].check", dataset=dataset)
    by_kind = {
        kind: [policy for policy in policies if policy.on_failure == kind] for kind in ("fail", "err_file", "optional")
    }
    annotating = [policy for policy in policies if policy.on_failure != "fail"]
    for name in (ROLE_COLUMN, FAILED_COLUMN) if annotating else ():
        if find_column(schema.names, name) is not None:
            raise RejectedError(
                f"dataset {dataset!r}: row policies need the column name {name!r}, and the data has it",
                field="quality.rows",
                hint="Rename the data's column by a converter.",
            )
    columns = [named(name) for name in schema.names]
    if by_kind["fail"]:
        # Inside a column that is written: as a filter, Spark could move it below a converter's where or the
        # late window's join, and a row that is left out anyway would fail the task.
        first = schema.fields[0]
        columns[0] = _guard(columns[0], by_kind["fail"], first.dataType).alias(first.name, metadata=first.metadata)
    if not annotating:
        return RowSplit(frame.select(*columns), (), MappingProxyType({Role.DATA: schema}))
    columns.append(_names_of_failed(annotating).alias(FAILED_COLUMN))
    annotated = t.StructType([*schema.fields, t.StructField(FAILED_COLUMN, FAILED_TYPE)])
    schemas = {Role.DATA: annotated if by_kind["optional"] else schema}
    if not by_kind["err_file"]:
        return RowSplit(frame.select(*columns), (), MappingProxyType(schemas))
    aside = f.lit(False)
    for policy in by_kind["err_file"]:
        aside = aside | ~_passes(policy)
    role = f.when(aside, f.lit(Role.QUARANTINE.value)).otherwise(f.lit(Role.DATA.value))
    return RowSplit(
        frame.select(*columns, role.alias(ROLE_COLUMN)),
        (ROLE_COLUMN,),
        MappingProxyType({**schemas, Role.QUARANTINE: annotated}),
    )


def parse_role_path(partition_path: str) -> tuple[Role, str]:
    """Take the role off a path such as ``gobblin_role=quarantine/day=2013-01-01``; without one it is data."""
    first, _slash, rest = partition_path.partition("/")
    column, equals, value = first.partition("=")
    if column != ROLE_COLUMN or not equals:
        return Role.DATA, partition_path
    return Role(value), rest


def explain_row_failure(error: BaseException, *, dataset: str) -> RejectedError | None:
    """What to raise instead, if the failure of a Spark action was a row that failed a ``fail`` policy."""
    raised = find_raised(error)
    if raised is None or raised[0] != _RAISED:
        return None
    return RejectedError(
        f"dataset {dataset!r}: at least one row failed the row policy {raised[1]!r}, whose on_failure is fail",
        field="quality.rows",
        hint="Nothing was published. Mend the rows at the source, or set on_failure: err_file to set them aside.",
        policy=raised[1],
    )


def _passes(policy: RowPolicySpec) -> Column:
    return f.coalesce(f.expr(policy.check), f.lit(False))


def _guard(column: Column, policies: Sequence[RowPolicySpec], data_type: t.DataType) -> Column:
    guarded = column
    for policy in reversed(policies):
        guarded = f.when(_passes(policy), guarded).otherwise(raising(_RAISED, policy.name, data_type))
    return guarded


def _names_of_failed(policies: Sequence[RowPolicySpec]) -> Column:
    failed = [f.when(~_passes(policy), f.lit(policy.name)) for policy in policies]
    return f.array_compact(f.array(*failed))


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
        raise refuse_expression(error, label=label, field=field, available=frame.columns) from error
    raise RejectedError(
        f"{label}: expected a condition, found an expression of type {found.simpleString()}",
        field=field,
        hint="Write something that is true for a good row, such as amount >= 0.",
    )
