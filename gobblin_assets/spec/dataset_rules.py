"""Rules between the fields of one dataset, each with its own message.

Rules look at a dataset as it will run, with the job's defaults applied; ``where`` is its path in the job, such as
``datasets[0]``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.model.directory_names import check_directory_column, check_directory_value
from gobblin_assets.model.extract import ExtractType, OnNull
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.model.watermark import WatermarkType, parse_position
from gobblin_assets.spec.event_time_spec import check_event_time, check_pattern, unquoted
from gobblin_assets.spec.job_options import PartitionsSpec
from gobblin_assets.spec.job_spec import (
    ConverterSpec,
    DatasetSpec,
    QualitySpec,
    TaskPolicySpec,
    WatermarkSpec,
    WriterSpec,
)
from gobblin_assets.spec.partition_keys import asset_partition, boundary_of, find_later_window
from gobblin_assets.spec.spec_errors import suggest

_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")

_FIELDS_OF_KIND: Final = {
    PartitionKind.NONE: frozenset[str](),
    PartitionKind.STATIC: frozenset({"keys", "column"}),
    PartitionKind.DYNAMIC: frozenset({"name", "column"}),
}
_FIELDS_OF_TIME: Final = frozenset({"start", "end", "zone"})


def check_dataset(spec: DatasetSpec, where: str, *, has_own_positions: bool) -> None:
    """Raise RejectedError for the first rule that does not hold.

    ``has_own_positions``: as logs have them, without a column.
    """
    for name in ("primary_key", "columns"):
        _require_distinct(getattr(spec, name) or (), f"{where}.{name}")
    _check_extract(spec, where)
    if spec.watermark is not None:
        _check_watermark(spec.watermark, f"{where}.watermark")
    _check_columns(spec, where)
    _check_partitions(spec, where, has_own_positions=has_own_positions)
    for number, link in enumerate(spec.converters):
        _check_converter(link, f"{where}.converters[{number}]")
    _check_quality(spec.quality, f"{where}.quality")
    _check_writer(spec.writer, f"{where}.writer")


def _check_extract(spec: DatasetSpec, where: str) -> None:
    watermark = spec.watermark
    if spec.extract is not ExtractType.SNAPSHOT_ONLY and watermark is None:
        raise RejectedError(
            f"extract {spec.extract} needs a column of positions, found none",
            field=f"{where}.watermark",
            hint="Add watermark: {column: ...}, or write extract: snapshot_only.",
        )
    if watermark is None:
        return
    if watermark.late_window > 0 and not spec.primary_key:
        raise RejectedError(
            "late_window needs a key to tell late rows from those that were published, found none",
            field=f"{where}.primary_key",
            hint="Name the columns of the key, or take late_window out.",
        )
    if spec.extract is ExtractType.APPEND_ONLY and watermark.on_null is OnNull.SNAPSHOT_ONLY:
        raise RejectedError(
            "snapshot_only takes rows without a position once, by a snapshot; append_only never makes one",
            field=f"{where}.watermark.on_null",
            hint="Write fail or ignore, or extract: snapshot_append.",
        )


def _check_watermark(watermark: WatermarkSpec, where: str) -> None:
    check_zone(watermark.zone, f"{where}.zone")
    kind = watermark.type
    if kind is WatermarkType.COMPOSITE and watermark.key_column is None:
        raise RejectedError(
            "composite positions need a second column, found none",
            field=f"{where}.key_column",
            hint="Name the column that orders rows of equal time, such as the primary key.",
        )
    if watermark.key_column is not None and kind not in {None, WatermarkType.COMPOSITE}:
        raise RejectedError(
            f"a key_column makes positions composite, found type {kind}",
            field=f"{where}.type",
            hint="Leave the type out, or leave key_column out.",
        )
    if watermark.key_column == watermark.column:
        raise RejectedError(
            f"expected another column than {watermark.column!r}",
            field=f"{where}.key_column",
            hint="Name a column that orders rows of equal time.",
        )
    if watermark.start is not None and kind is not None:
        parse_position(kind, watermark.start, field=f"{where}.start")


def _check_columns(spec: DatasetSpec, where: str) -> None:
    """Require that the read columns include those that reading relies on."""
    if spec.columns is None:
        return
    if not spec.columns:
        raise RejectedError(
            "expected at least one column, found an empty list", field=f"{where}.columns", hint="Leave it out for all."
        )
    relied = dict.fromkeys(spec.primary_key, f"{where}.primary_key")
    if spec.watermark is not None:
        relied |= {spec.watermark.column: f"{where}.watermark.column"}
        if spec.watermark.key_column is not None:
            relied |= {spec.watermark.key_column: f"{where}.watermark.key_column"}
    if spec.partitions.column is not None:
        relied |= {spec.partitions.column: f"{where}.partitions.column"}
    for name, field in relied.items():
        if name not in spec.columns:
            raise RejectedError(f"{name!r} is not among columns", field=field, hint=f"Add it to {where}.columns.")


def _check_partitions(spec: DatasetSpec, where: str, *, has_own_positions: bool) -> None:
    partitions, path = spec.partitions, f"{where}.partitions"
    kind = partitions.kind
    check_zone(partitions.zone, f"{path}.zone")
    own = _FIELDS_OF_TIME if kind.is_time else _FIELDS_OF_KIND[kind]
    set_fields = {
        name
        for name, value in partitions
        if name != "kind" and value != PartitionsSpec.model_fields[name].get_default()
    }
    if foreign := sorted(set_fields - own):
        raise RejectedError(
            f"{kind} partitions have no {foreign[0]}",
            field=f"{path}.{foreign[0]}",
            hint=f"Take it out, or choose another kind; {kind} knows {', '.join(sorted(own)) or 'no options'}.",
        )
    for name in () if kind.is_time else sorted(own):
        if not getattr(partitions, name):
            raise RejectedError(f"{kind} partitions need it", field=f"{path}.{name}", hint="Add it.")
    if kind.is_time:
        _check_time_partitions(spec, where, has_own_positions=has_own_positions)
    elif kind is PartitionKind.STATIC:
        _require_distinct(partitions.keys, f"{path}.keys", by_case=True)
        for number, key in enumerate(partitions.keys):
            try:
                asset_partition(spec, key)
            except RejectedError as error:
                raise RejectedError(error.message, field=f"{path}.keys[{number}]", hint=error.hint) from error


def _check_window_positions(spec: DatasetSpec, where: str) -> None:
    """Windows of a table bound its positions. Those of a topic are the times of its runs."""
    partitions, watermark = spec.partitions, spec.watermark
    if watermark is None:
        raise RejectedError(
            f"{partitions.kind} partitions are windows of a column of positions, found none",
            field=f"{where}.watermark",
            hint="Add watermark: {column: <a time column>}.",
        )
    if watermark.type is not None and not (watermark.type.is_time or watermark.type is WatermarkType.COMPOSITE):
        raise RejectedError(
            f"{partitions.kind} partitions need positions that are times, found {watermark.type}",
            field=f"{where}.watermark.type",
            hint="Use a time column, or partitions of another kind.",
        )


def _check_time_partitions(spec: DatasetSpec, where: str, *, has_own_positions: bool) -> None:
    partitions, path = spec.partitions, f"{where}.partitions"
    if not has_own_positions:
        _check_window_positions(spec, where)
    if partitions.start is None:
        raise RejectedError(
            f"{partitions.kind} partitions need the beginning of their first window, found none",
            field=f"{path}.start",
            hint="Write it like 2013-01-01.",
        )
    for name, moment in (("start", partitions.start), ("end", partitions.end)):
        if moment is None:
            continue
        try:
            later = find_later_window(partitions, moment)
        except OverflowError as error:
            raise RejectedError(
                f"{moment} lies at an end of the calendar", field=f"{path}.{name}", hint="Write it like 2013-01-01."
            ) from error
        if later is not None:
            raise RejectedError(
                f"no {partitions.kind} window begins at {moment}",
                field=f"{path}.{name}",
                hint=f"Write {later!r}, or the one before.",
            )
    if partitions.end is not None and boundary_of(partitions, partitions.end) <= boundary_of(
        partitions, partitions.start
    ):
        raise RejectedError(
            f"expected an end after {partitions.start}, found {partitions.end}",
            field=f"{path}.end",
            hint="Leave it out if the windows go on.",
        )


def _check_converter(link: ConverterSpec, where: str) -> None:
    chosen = [name for name, value in link if value is not None]
    if len(chosen) != 1:
        raise RejectedError(
            f"expected exactly one of {', '.join(ConverterSpec.model_fields)}; found {', '.join(chosen) or 'none'}",
            field=where,
            hint="Make each a link of its own: they run in order.",
        )
    name, value = chosen[0], getattr(link, chosen[0])
    if not value:
        raise RejectedError("expected something to do, found nothing", field=f"{where}.{name}", hint="Leave it out.")
    if isinstance(value, tuple):
        _require_distinct(value, f"{where}.{name}")
    if link.rename is not None:
        _require_distinct(tuple(link.rename.values()), f"{where}.{name}")
    if link.function is not None and not _FUNCTION.fullmatch(link.function):
        raise RejectedError(
            f"expected package.module:name, found {link.function!a}",
            field=f"{where}.function",
            hint="Write a colon between the module and the function.",
        )


def _check_quality(quality: QualitySpec, where: str) -> None:
    _require_distinct([policy.name for policy in quality.rows], f"{where}.rows")
    _require_distinct([policy.name for policy in quality.tasks], f"{where}.tasks")
    for number, policy in enumerate(quality.rows):
        if not policy.check.strip():
            raise RejectedError(
                "expected a condition, found an empty text",
                field=f"{where}.rows[{number}].check",
                hint="Write a Spark SQL condition, such as amount >= 0.",
            )
    for number, task in enumerate(quality.tasks):
        _check_task_policy(task, f"{where}.tasks[{number}]")


def _check_task_policy(policy: TaskPolicySpec, where: str) -> None:
    of_kind = {
        "row_count": {"min_row_count", "max_row_count"},
        "row_count_range": {"range_fraction"},
        "schema_compatible": set[str](),
    }[policy.kind]
    figures = {"min_row_count", "max_row_count", "range_fraction"}
    for name in sorted(figures - of_kind):
        if getattr(policy, name) is not None:
            raise RejectedError(f"{policy.kind} has no {name}", field=f"{where}.{name}", hint="Take it out.")
    if policy.kind == "row_count_range" and policy.range_fraction is None:
        raise RejectedError(
            "row_count_range needs it", field=f"{where}.range_fraction", hint="Write a share of the rows, such as 0.01."
        )
    low, high = policy.min_row_count, policy.max_row_count
    if low is not None and high is not None and high < low:
        raise RejectedError(
            f"expected at least min_row_count, {low}; found {high}",
            field=f"{where}.max_row_count",
            hint="Exchange the two.",
        )


def _check_writer(writer: WriterSpec, where: str) -> None:
    if (writer.time_column is None) != (writer.time_pattern is None):
        missing = "time_column" if writer.time_column is None else "time_pattern"
        raise RejectedError(
            "time_column and time_pattern belong together, found one of them",
            field=f"{where}.{missing}",
            hint="Add it, or take the other out.",
        )
    directories = {f"{where}.partition_by[{number}]": name for number, name in enumerate(writer.partition_by)}
    if writer.time_column is not None:
        directories[f"{where}.time_name"] = writer.time_name
    if writer.event_time is not None:
        directories[f"{where}.event_time.name"] = writer.event_time.name
    _require_distinct(directories.values(), f"{where}.partition_by")
    for field, name in directories.items():
        check_directory_column(name, field)
    if writer.time_pattern is not None:
        check_pattern(writer.time_pattern, f"{where}.time_pattern")
        check_directory_value(writer.time_name, unquoted(writer.time_pattern), f"{where}.time_pattern")
    if writer.event_time is not None:
        check_zone(writer.event_time.zone, f"{where}.event_time.zone")
        check_event_time(writer.event_time, f"{where}.event_time")


def check_zone(name: str, field: str) -> None:
    """Accept the IANA names that this machine knows."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        fix = suggest(name, sorted(available_timezones()))
        hint = fix if fix.startswith("Did") else "Write it like Europe/Berlin or UTC."
        raise RejectedError(f"expected a time zone, found {name[:80]!a}", field=field, hint=hint) from error


def _require_distinct(names: Iterable[str], field: str, *, by_case: bool = False) -> None:
    """Require different names. Names that Spark takes for one are equal, unless ``by_case``."""
    seen: dict[str, str] = {}
    for name in names:
        known_as = name if by_case else name_key(name)
        if known_as in seen:
            raise RejectedError(
                f"expected different names, found {seen[known_as]!a} and {name!a}", field=field, hint="Name each once."
            )
        seen[known_as] = name


def check_distinct_urns(urns: Sequence[tuple[str, str]]) -> None:
    """``urns`` are (path, URN). Two datasets of one name would share a lease, a ledger and a directory."""
    seen: dict[str, str] = {}
    for where, urn in urns:
        if urn in seen:
            raise RejectedError(
                f"{urn!a} is already the name of {seen[urn]}",
                field=f"{where}.urn",
                hint="Give each dataset a URN of its own; table names the table it reads.",
            )
        seen[urn] = where
