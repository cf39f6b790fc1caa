"""Metadata of materializations and checks in Dagster: numbers that Dagster can plot, the schema, and the source."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.lag import Lag
from gobblin_assets.run.run_values import DatasetReport

SEQUENCE_ID: Final = "gobblin/sequence_id"
RECOVERED: Final = "gobblin/recovered"
PUBLISHED_CHECK: Final = "gobblin_published"
COLUMN_SCHEMA: Final = "dagster/column_schema"

# Dagster compares it to tell whether what lies upstream has changed.
DATA_VERSION_TAG: Final = "dagster/data_version"
_KEYS_SHOWN_MAX: Final = 100
_NO_COMMENTS: Final = SourceComments()
_NO_CONSTRAINTS: Final = SourceConstraints()
# Figures of copies that belong into a line of the run's log.
_SUMMARIZED: Final = ("replaced", "removed", "waiting")


def describe_publication(report: DatasetReport, role: Role, *, uri: str) -> dict[str, dg.MetadataValue]:
    """The metadata of one role of one finished sequence. ``report`` has a publication."""
    publication = _publication_of(report)
    row_count = publication.rows_by_role.get(role.value, 0)
    # In this order: Dagster cuts a long list off, and the first lines are what people look for.
    metadata: dict[str, dg.MetadataValue] = {}
    if report.has_rows:
        metadata["gobblin/rows"] = dg.MetadataValue.int(row_count)
    if role is Role.DATA:
        metadata["gobblin/files"] = dg.MetadataValue.int(publication.file_count)
        metadata["gobblin/bytes"] = dg.MetadataValue.int(publication.file_bytes)
        if duration_s := report.figures.get("duration_s"):
            metadata["gobblin/bytes_per_s"] = dg.MetadataValue.float(round(publication.file_bytes / duration_s, 1))
    metadata |= {
        "gobblin/mode": dg.MetadataValue.text(publication.mode.value),
        "gobblin/complete": dg.MetadataValue.bool(publication.complete),
        RECOVERED: dg.MetadataValue.bool(publication.recovered),
        "dagster/uri": dg.MetadataValue.text(uri),
        "gobblin/version": dg.MetadataValue.int(publication.version),
        SEQUENCE_ID: dg.MetadataValue.text(str(publication.sequence_id)),
    }
    if role is not Role.DATA:
        return metadata
    if report.lag is not None:
        metadata.update(_describe_lag(report.lag))
    metadata.update(_describe_figures(report.figures))
    if report.has_rows:
        metadata.update(_describe_watermarks(publication))
        # Of the partition, not of the publication: an append of nothing hides no rows.
        name = "dagster/row_count" if report.partition.key is None else "dagster/partition_row_count"
        metadata[name] = dg.MetadataValue.int(publication.rows_total)
    if report.columns:
        metadata[COLUMN_SCHEMA] = build_column_schema(report.columns, report.comments, report.constraints)
    if report.comments.table is not None:
        metadata["gobblin/source_description"] = dg.MetadataValue.text(report.comments.table)
    if report.notes:
        metadata["gobblin/notes"] = dg.MetadataValue.md("\n".join(f"- {note}" for note in report.notes))
    return metadata


def build_column_schema(
    columns: Mapping[str, str],
    comments: SourceComments = _NO_COMMENTS,
    constraints: SourceConstraints = _NO_CONSTRAINTS,
    *,
    key_as: str = "primary key",
) -> dg.MetadataValue:
    """The published ``columns``, name to type text, in order. ``key_as``: what a column of the key is called."""
    return dg.MetadataValue.table_schema(
        dg.TableSchema(
            columns=[
                dg.TableColumn(
                    name,
                    kind,
                    description=comments.columns.get(name),
                    constraints=dg.TableColumnConstraints(
                        nullable=name not in constraints.not_null,
                        # Not unique=True: it would say that of each column of the key alone.
                        other=[key_as] if name in constraints.primary_key else [],
                    ),
                )
                for name, kind in columns.items()
            ]
        )
    )


def build_materialization(key: dg.AssetKey, report: DatasetReport, role: Role, *, uri: str) -> dg.AssetMaterialization:
    """The event of one role of one finished sequence; logging it again only repeats it."""
    publication = _publication_of(report)
    return dg.AssetMaterialization(
        asset_key=key,
        partition=report.partition.key,
        description=_summarize(report, role),
        metadata=describe_publication(report, role, uri=uri),
        tags={DATA_VERSION_TAG: str(publication.sequence_id)},
    )


def describe_reading(report: DatasetReport) -> dict[str, dg.MetadataValue]:
    """What a publication says of its source: how much was read, and up to where."""
    publication = _publication_of(report)
    metadata: dict[str, dg.MetadataValue] = {SEQUENCE_ID: dg.MetadataValue.text(str(publication.sequence_id))}
    if report.has_rows:
        metadata["gobblin/rows_read"] = dg.MetadataValue.int(int(report.figures.get("rows_read", 0)))
        metadata.update(_describe_watermarks(publication))
    if report.lag is not None:
        metadata["gobblin/lag"] = dg.MetadataValue.int(report.lag.total)
    return metadata


def _summarize(report: DatasetReport, role: Role) -> str:
    """The line that the run's log shows."""
    publication = _publication_of(report)
    where = report.label
    what = [f"rows: {publication.rows_by_role.get(role.value, 0):,}"] if report.has_rows else []
    if role is Role.DATA:
        what.append(f"files: {publication.file_count:,}")
        what += [f"{name}: {report.figures[name]:,}" for name in _SUMMARIZED if name in report.figures]
    else:
        where += f", {role.value}"
    facts = [
        publication.mode.value,
        *["not complete"] * (not publication.complete),
        *["recovered"] * publication.recovered,
    ]
    return f"Published {where}: {', '.join(what)} ({', '.join(facts)})"


def is_recovered(event: dg.AssetMaterialization) -> bool:
    """Whether the report is about a sequence that an earlier run had sealed."""
    recovered = event.metadata.get(RECOVERED)
    return recovered is not None and bool(recovered.value)


def build_evaluations(
    key: dg.AssetKey, report: DatasetReport, target: AssetCheckEvaluationTargetMaterializationData | None = None
) -> Iterator[dg.AssetCheckEvaluation]:
    """Its quality checks, and whether it could be published.

    ``target`` is the partition's latest materialization. Dagster shows a partition's result only with a target; without
    it, the result counts as older than the data.
    """
    for check in (*report.checks, decide_published(report)):
        yield build_evaluation(key, check, partition=report.partition.key, target=target)


def decide_published(report: DatasetReport) -> CheckResult:
    """The check ``published``: passed, unless the requested publication failed, or others kept the run from it."""
    if report.is_good:
        return CheckResult(PUBLISHED_CHECK, passed=True, blocking=False, description="")
    return CheckResult(
        PUBLISHED_CHECK,
        passed=False,
        blocking=False,
        description=f"{report.outcome.value}: {report.error or 'no reason was given'}",
    )


def build_evaluation(
    key: dg.AssetKey,
    check: CheckResult,
    *,
    partition: str | None = None,
    target: AssetCheckEvaluationTargetMaterializationData | None = None,
) -> dg.AssetCheckEvaluation:
    """One result as Dagster takes it; ``target`` as for ``build_evaluations``."""
    is_error = check.blocking or check.name == PUBLISHED_CHECK
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=check.name,
        passed=check.passed,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=check.description or None,
        metadata=dict(_describe_figures(check.figures, prefix="")),
        target_materialization_data=target,
        blocking=check.blocking,
        partition=partition,
    )


def _describe_lag(lag: Lag) -> Iterator[tuple[str, dg.MetadataValue]]:
    yield "gobblin/lag", dg.MetadataValue.int(lag.total)
    yield "gobblin/lag_largest", dg.MetadataValue.int(lag.largest[0].count if lag.largest else 0)
    if lag.largest:
        records = [
            dg.TableRecord({"key": each.key, "lag": each.count, "published": each.position, "end": each.end})
            for each in lag.largest[:_KEYS_SHOWN_MAX]
        ]
        kinds = {"key": "string", "lag": "int", "published": "int", "end": "int"}
        schema = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in kinds.items()])
        yield "gobblin/lag_by_key", dg.MetadataValue.table(records, schema)


def _describe_watermarks(publication: Publication) -> Iterator[tuple[str, dg.MetadataValue]]:
    moved = list(publication.watermarks.items())
    if len(moved) == 1:
        before, after = moved[0][1]
        yield "gobblin/watermark_before", dg.MetadataValue.text(before or "(none)")
        yield "gobblin/watermark_after", dg.MetadataValue.text(after or "(none)")
    elif moved:
        # A topic of thousands of keys would make every event as large as its log.
        yield "gobblin/watermarks_moved", dg.MetadataValue.int(len(moved))
        yield "gobblin/watermarks", _build_table(moved[:_KEYS_SHOWN_MAX])


def _build_table(moved: Sequence[tuple[str, tuple[str | None, str | None]]]) -> dg.MetadataValue:
    records = [dg.TableRecord({"key": k, "before": b or "", "after": a or ""}) for k, (b, a) in moved]
    return dg.MetadataValue.table(
        records, dg.TableSchema([dg.TableColumn(name, "string") for name in ("key", "before", "after")])
    )


def _describe_figures(
    figures: Mapping[str, object], *, prefix: str = "gobblin/"
) -> Iterator[tuple[str, dg.MetadataValue]]:
    for name, value in figures.items():
        match value:
            case bool():
                yield prefix + name, dg.MetadataValue.bool(value)
            case int():
                yield prefix + name, dg.MetadataValue.int(value)
            case list() | tuple():
                yield (
                    prefix + name,
                    dg.MetadataValue.table(
                        [dg.TableRecord({"row": str(each)}) for each in value],
                        dg.TableSchema([dg.TableColumn("row", "string")]),
                    ),
                )
            case float():
                yield prefix + name, dg.MetadataValue.float(value)
            case _:
                yield prefix + name, dg.MetadataValue.text(str(value))


def _publication_of(report: DatasetReport) -> Publication:
    if report.publication is None:
        raise AssertionError(f"{report.urn!r} has no finished sequence to report")
    return report.publication
