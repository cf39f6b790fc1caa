"""The planning of one dataset partition: ask for bounds, decide what rows without a position mean, cut WorkUnits.

``write_unit`` says in the source's SQL which rows a WorkUnit reads.
"""

import datetime as dt
import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import ExtractType, Mode, OnNull
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.source_declarations import SourceComments, SourceConstraints
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.watermark import Scalar, Watermark, WatermarkType
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import UnitPlan
from gobblin_assets.sources.jdbc.bounds import (
    Ahead,
    Limits,
    Times,
    decide_mode,
    first_interval,
    plan_ahead,
    plan_high,
    plan_limits,
    plan_reread,
    plan_window,
    read_clock,
    require_late_window,
)
from gobblin_assets.sources.jdbc.catalog import Catalog, Estimate, TableColumn
from gobblin_assets.sources.jdbc.dialect import ROW_ADDRESS, Dialect
from gobblin_assets.sources.jdbc.layout import Layout, bounds_partition, lay_out
from gobblin_assets.sources.jdbc.positions import Axis, write_at_least, write_below, write_interval
from gobblin_assets.sources.jdbc.questions import Asking, ask_count, ask_estimate, ask_extreme
from gobblin_assets.sources.jdbc.split import (
    Readers,
    cut_interval,
    decide_count,
    decide_fetch_size,
    equal_width_points,
    quantile_points,
)
from gobblin_assets.sources.source_port import (
    ArrowReader,
    Reader,
    ReadPlan,
    SourceRequest,
    compare_columns,
    find_asked_of_spark,
)
from gobblin_assets.spec.job_spec import DatasetSpec

WITH_NULLS = "with_nulls"
"""A unit's property: rows without a position belong to it."""

SPLIT_BY = "split_by"
"""A unit's property: ``[column]`` or ``row_address``, which its condition calls ``s0``."""

CONDITION = "condition"
"""A unit's property: which of a snapshot's rows are its own, in the source's SQL."""

_NO_CLOCK: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Planner:
    """A planner within one view of the source.

    ``processors``: of this machine. ``needs_spark`` says whether Spark reads a layout of so many rows (None: nobody
    knows how many), whatever the dataset itself asks of Spark.
    """

    catalog: Catalog
    new_id: Callable[[], uuid.UUID]
    processors: int
    needs_spark: Callable[[Layout, int | None], bool]
    _grounds: dict[DatasetUrn, "_Ground"] = field(default_factory=dict)
    _times: dict[DatasetUrn, tuple[dt.datetime, Axis, Times]] = field(default_factory=dict)

    def plan(
        self,
        request: SourceRequest,
        make_reader: Callable[[SourceRequest, Layout], Reader],
        find_arrow: Callable[[SourceRequest, Layout, Sequence[WorkUnit]], ArrowReader | None],
        *,
        needs_arrow: bool,
    ) -> Asking[UnitPlan]:
        """Yields its questions, and returns the plan."""
        ground = self._find_ground(request)
        layout = ground.layout
        notes = compare_columns(request, ground.columns, str(layout.table.name), ground.at_source)
        # The clock is read before the bounds: what commits in between is then too young, never skipped.
        clock = self.catalog.now() if _needs_clock(request, layout) else _NO_CLOCK
        mode = decide_mode(request, clock)
        late_key: tuple[str, ...] = ()
        if request.spec.extract is ExtractType.SNAPSHOT_ONLY:
            units = yield from self._plan_snapshot(request, layout)
        else:
            units, more = yield from self._plan_append(request, layout, mode, clock)
            notes += more
            if any(unit.reread_from is not None for unit in units):
                late_key = request.spec.primary_key
        return UnitPlan(
            urn=request.urn,
            partition=request.partition,
            mode=mode,
            replaces=mode is Mode.REFRESH,
            is_snapshot=request.spec.extract is ExtractType.SNAPSHOT_ONLY,
            work_units=tuple(units),
            payload=ReadPlan(
                request.spec,
                make_reader(request, layout),
                watermark_column=None if layout.axis is None else layout.axis.column,
                late_key=late_key,
                comments=ground.comments,
                constraints=ground.constraints,
                arrow=find_arrow(request, layout, units),
                needs_arrow=needs_arrow,
                rows_held=request.spec.split.fetch_size_rows or decide_fetch_size(units, len(layout.columns)),
            ),
            columns=ground.columns,
            notes=tuple(notes),
        )

    def _find_ground(self, request: SourceRequest) -> "_Ground":
        """Partitions of a dataset have one, unless the layout's conditions name the partition."""
        found = self._grounds.get(request.urn)
        if found is None or found.spec is not request.spec or bounds_partition(request):
            found = self._grounds[request.urn] = _describe_ground(request.spec, lay_out(self.catalog, request))
        return found

    def _read_clock(self, request: SourceRequest, axis: Axis, clock: dt.datetime) -> Times:
        """Asked for each partition, and worked out once where the source's clock stands still for the plan."""
        then, of_axis, times = self._times.get(request.urn, (None, None, None))
        if times is None or then != clock or of_axis is not axis:
            times = read_clock(request, axis, clock)
            self._times[request.urn] = clock, axis, times
        return times

    def _plan_append(
        self, request: SourceRequest, layout: Layout, mode: Mode, clock: dt.datetime
    ) -> Asking[tuple[list[WorkUnit], list[str]]]:
        axis = layout.axis
        if axis is None:
            raise RejectedError(
                f"extract {request.spec.extract} needs a column of positions",
                field=f"datasets[{request.urn}].watermark",
                hint="Name it: watermark: {column: updated_at}. Or use extract: snapshot_only.",
            )
        require_late_window(request, axis)
        previous = request.state.find_watermark(str(layout.table.name), request.partition.key or "")
        times, window = self._read_clock(request, axis, clock), plan_window(request, axis)
        limits = plan_limits(request, axis, mode, previous, times, window)
        yield from self._refuse_misplaced(request, layout, axis)
        is_first = previous is None or mode is Mode.REFRESH
        with_nulls, notes = yield from self._judge_nulls(request, layout, axis, first=is_first)
        notes += yield from self._count_ahead(layout, axis, plan_ahead(axis, times, window))
        top = yield from self._find_top(layout, axis, limits)
        high = plan_high(limits, mode, previous, top)
        if high is None and with_nulls:
            # Rows without a position alone make no interval to publish them in; they come with the first position.
            notes.append(f"{layout.table.name} has only rows without a position: they wait for the first one with it")
        if high is None:
            notes.append(f"{layout.table.name} has no position to start from yet: nothing to read")
            return [], notes
        whole = first_interval(limits, high)
        reread = plan_reread(request, axis, limits, previous) if mode is Mode.APPEND else None
        return (yield from self._cut(request, layout, whole, reread, with_nulls=with_nulls)), notes

    def _refuse_misplaced(self, request: SourceRequest, layout: Layout, axis: Axis) -> Asking[None]:
        """Values that compare in another way than positions do would be passed over."""
        for name, kind in zip(axis.columns, axis.types, strict=True):
            found = yield from self._count_misplaced(layout, name, kind)
            if found:
                raise RejectedError(
                    f"{found} rows of {layout.table.name}.{name} hold values that are no positions of type {kind}",
                    field=f"datasets[{request.urn}].watermark.column",
                    hint="Correct them at the source, leave them out by where, or name another column.",
                    table=str(layout.table.name),
                    column=name,
                    row_count=found,
                )

    def _count_misplaced(self, layout: Layout, name: str, kind: WatermarkType) -> Asking[int]:
        dialect, column = self.catalog.dialect, layout.table.find_column(name)
        misplaced = dialect.find_misplaced(dialect.quote(name), kind, "" if column is None else column.type_text)
        return 0 if misplaced is None else (yield from ask_count(self.catalog.dialect, layout, misplaced))

    def _judge_nulls(
        self, request: SourceRequest, layout: Layout, axis: Axis, *, first: bool
    ) -> Asking[tuple[bool, list[str]]]:
        """Whether rows without a position are read now, and what to say of them."""
        spec = request.spec.watermark
        on_null = OnNull.FAIL if spec is None else spec.on_null
        field = f"datasets[{request.urn}].watermark.on_null"
        append_only = request.spec.extract is ExtractType.APPEND_ONLY
        if on_null is OnNull.SNAPSHOT_ONLY and (append_only or request.partition.window is not None):
            raise RejectedError(
                f"snapshot_only can't be kept by {'append_only' if append_only else 'time partitions'}: "
                "rows without a position belong to no interval",
                field=field,
                hint="Use extract: snapshot_append without time partitions, or on_null: fail or ignore.",
            )
        columns = [layout.table.find_column(name) for name in axis.columns]
        if not any(column is not None and column.nullable for column in columns):
            return False, []
        dialect = self.catalog.dialect
        empty = " OR ".join(f"{dialect.quote(name)} IS NULL" for name in axis.columns)
        found = yield from ask_count(self.catalog.dialect, layout, empty)
        if not found:
            return False, []
        where = f"{layout.table.name}.{'/'.join(axis.columns)}"
        match on_null:
            case OnNull.FAIL:
                raise RejectedError(
                    f"{found} rows of {where} hold NULL, so that they have no position and would be missed",
                    field=field,
                    hint="Fill them at the source, or write on_null: ignore (leave them out) or snapshot_only (read "
                    "them with the first snapshot of a snapshot_append).",
                    table=str(layout.table.name),
                    column=axis.column,
                    row_count=found,
                )
            case OnNull.IGNORE:
                return False, [f"{found} rows of {where} hold NULL and are left out (on_null: ignore)"]
            case OnNull.SNAPSHOT_ONLY:
                said = "are read with this snapshot" if first else "wait for the next refresh"
                return first, [f"{found} rows of {where} hold NULL and {said} (on_null: snapshot_only)"]

    def _count_ahead(self, layout: Layout, axis: Axis, ahead: Ahead | None) -> Asking[list[str]]:
        """What to say of rows that are left out because their time is still to come, or never comes."""
        if ahead is None:
            return []
        dialect = self.catalog.dialect
        names = tuple(dialect.quote(name) for name in axis.columns)
        later = write_at_least(dialect, axis, names, ahead.first)
        endless = write_at_least(dialect, axis, names, ahead.last)
        if ahead.end is not None:
            later = f"({later} AND {write_below(dialect, axis, names, ahead.end)} OR {endless})"
        found = yield from ask_count(self.catalog.dialect, layout, later)
        if not found:
            return []
        never = yield from ask_count(self.catalog.dialect, layout, endless)
        where = f"{layout.table.name}.{axis.column}"
        said = {
            f"rows of {where} lie ahead of the source's clock, and wait until it gets there": found - never,
            f"rows of {where} are at infinity, or at the end of the calendar, and are left out": never,
        }
        return [f"{count} {what}" for what, count in said.items() if count]

    def _find_top(self, layout: Layout, axis: Axis, limits: Limits) -> Asking[Watermark | None]:
        """The greatest position within the limits; of a pair, the greatest key of the greatest lead."""
        dialect = self.catalog.dialect
        names = tuple(dialect.quote(name) for name in axis.columns)
        conditions = [f"{name} IS NOT NULL" for name in names]
        if limits.low is not None:
            conditions.append(write_at_least(dialect, axis, names, limits.low))
        if limits.ceiling is not None:
            conditions.append(write_below(dialect, axis, names, limits.ceiling))
        lead = yield from ask_extreme(self.catalog.dialect, layout, "MAX", names[0], axis.lead, conditions)
        if lead is None or axis.key is None:
            return None if lead is None else axis.lift(lead)
        equal = f"{dialect.in_order(names[0], axis.lead)} = {dialect.literal(axis.lead, lead)}"
        key = yield from ask_extreme(self.catalog.dialect, layout, "MAX", names[1], axis.key, [*conditions, equal])
        # Without a shared snapshot that row may be gone by now; the rows before it wait for the next run.
        return None if key is None else axis.join((lead, key))

    def _cut(
        self, request: SourceRequest, layout: Layout, whole: Interval, reread: Watermark | None, *, with_nulls: bool
    ) -> Asking[list[WorkUnit]]:
        axis = layout.axis
        if axis is None or (whole.is_empty and reread is None):
            return [self._unit(request, layout, 0, whole, reread_from=None, row_count=0, row_bytes=0)]
        dialect = self.catalog.dialect
        names = tuple(dialect.quote(name) for name in axis.columns)
        read = Interval(reread if reread is not None else whole.low, whole.high)
        condition = write_interval(dialect, axis, names, read)
        estimate = yield from ask_estimate(layout, condition)
        readers = self._find_readers(request, layout, estimate, rereads=reread is not None)
        count = decide_count(estimate, request.spec.split, readers)
        points = (yield from self._find_points(layout, axis, whole, count)) if count > 1 else []
        pieces = cut_interval(whole, points)
        rows = None if estimate.row_count is None else -(-estimate.row_count // len(pieces))
        units = []
        for number, piece in enumerate(pieces):
            unit_reread = reread if number == 0 else None
            properties = {WITH_NULLS: True} if with_nulls and number == 0 else {}
            units.append(
                self._unit(
                    request,
                    layout,
                    number,
                    piece,
                    reread_from=unit_reread,
                    row_count=rows,
                    row_bytes=estimate.row_bytes,
                    properties=properties,
                )
            )
        return units

    def _find_points(self, layout: Layout, axis: Axis, whole: Interval, count: int) -> Asking[list[Watermark]]:
        """Where to cut: by the source's own histogram where it knows one, else evenly between the extremes."""
        column = layout.table.find_column(axis.column)
        if column is not None:
            lifted = [
                axis.lift(_scalar(quantile)) for quantile in self._quantiles(layout, column, axis.leading(whole.high))
            ]
            points = quantile_points(lifted, whole, count)
            if len(points) == count - 1:
                return points
        dialect = self.catalog.dialect
        names = tuple(dialect.quote(name) for name in axis.columns)
        condition = [write_interval(dialect, axis, names, whole)]
        first = yield from ask_extreme(self.catalog.dialect, layout, "MIN", names[0], axis.lead, condition)
        last = yield from ask_extreme(self.catalog.dialect, layout, "MAX", names[0], axis.lead, condition)
        if first is None or last is None:
            return []
        return [axis.lift(value) for value in equal_width_points(first, last, count)]

    def _find_readers(self, request: SourceRequest, layout: Layout, estimate: Estimate, *, rereads: bool) -> Readers:
        slots = request.slots
        if slots is not None and not self.needs_spark(layout, estimate.row_count):
            slots = None if find_asked_of_spark(request.spec, rereads=rereads) is None else slots
        # Where reads share no snapshot, one that is divided sees its parts at different moments: only if it is large.
        return Readers(self.processors, slots, divided=self.catalog.shares_snapshot)

    def _plan_snapshot(self, request: SourceRequest, layout: Layout) -> Asking[list[WorkUnit]]:
        estimate = yield from ask_estimate(layout)
        readers = self._find_readers(request, layout, estimate, rereads=False)
        count = decide_count(estimate, request.spec.split, readers)
        pieces: list[Mapping[str, object]] = [{}]
        if count > 1:
            pieces = (
                (yield from self._cut_by_key(request, layout, count))
                or [
                    {SPLIT_BY: ROW_ADDRESS, CONDITION: condition}
                    for condition in self.catalog.cut_rows(layout.table, count)
                ]
                or pieces
            )
        rows = None if estimate.row_count is None else -(-estimate.row_count // len(pieces))
        return [
            self._unit(
                request,
                layout,
                number,
                None,
                reread_from=None,
                row_count=rows,
                row_bytes=estimate.row_bytes,
                properties=piece,
            )
            for number, piece in enumerate(pieces)
        ]

    def _cut_by_key(self, request: SourceRequest, layout: Layout, count: int) -> Asking[list[Mapping[str, object]]]:
        """Ranges of a single integer key that cover every value, open at both ends."""
        key = request.spec.primary_key or layout.table.primary_key
        column = layout.table.find_column(key[0]) if len(key) == 1 else None
        if column is None or column.watermark_type is not WatermarkType.LONG:
            return []
        if (yield from self._count_misplaced(layout, column.name, WatermarkType.LONG)):
            return []
        dialect = self.catalog.dialect
        quoted = dialect.quote(column.name)
        first = yield from ask_extreme(self.catalog.dialect, layout, "MIN", quoted, WatermarkType.LONG, [])
        last = yield from ask_extreme(self.catalog.dialect, layout, "MAX", quoted, WatermarkType.LONG, [])
        if first is None or last is None:
            return []
        ends = Interval(Watermark(WatermarkType.LONG, first), Watermark(WatermarkType.LONG, last))
        known = [_scalar(point) for point in quantile_points(self._quantiles(layout, column, last), ends, count)]
        values = sorted(set(known)) if len(set(known)) == count - 1 else equal_width_points(first, last, count)
        axis = Axis(column.name, WatermarkType.LONG)
        names = (dialect.quote("s0"),)
        # A declared key may still hold NULL if the source does not enforce it.
        conditions = (
            [f"({write_below(dialect, axis, names, axis.lift(values[0]))} OR {names[0]} IS NULL)"] if values else []
        )
        for low, high in itertools.pairwise(values):
            conditions.append(write_interval(dialect, axis, names, Interval(axis.lift(low), axis.lift(high))))
        if values:
            conditions.append(write_at_least(dialect, axis, names, axis.lift(values[-1])))
        return [{SPLIT_BY: [column.name], CONDITION: condition} for condition in conditions]

    def _quantiles(self, layout: Layout, column: TableColumn, last: Scalar) -> Sequence[Watermark]:
        # A histogram speaks of the whole table: under a filter it may be far off.
        return [] if layout.filters else self.catalog.find_quantiles(layout.table, column, last)

    def _unit(
        self,
        request: SourceRequest,
        layout: Layout,
        number: int,
        interval: Interval | None,
        *,
        reread_from: Watermark | None,
        row_count: int | None,
        row_bytes: int | None,
        properties: Mapping[str, object] | None = None,
    ) -> WorkUnit:
        return WorkUnit(
            id=WorkUnitId(self.new_id()),
            dataset=request.urn,
            partition=request.partition,
            key=str(layout.table.name),
            number=number,
            interval=interval,
            reread_from=reread_from,
            estimated_row_count=row_count,
            estimated_bytes=None if row_count is None or row_bytes is None else row_count * row_bytes,
            properties=properties or {},
        )


@dataclass(frozen=True, slots=True)
class _Ground:
    """The common ground of a dataset's partitions. ``at_source``: all columns of the table."""

    spec: DatasetSpec
    layout: Layout
    columns: Mapping[str, str]
    at_source: frozenset[str]
    comments: SourceComments
    constraints: SourceConstraints


def _describe_ground(spec: DatasetSpec, layout: Layout) -> _Ground:
    return _Ground(
        spec,
        layout,
        columns={column.name: column.type_text for column in layout.columns},
        at_source=frozenset(each.name for each in layout.table.columns),
        comments=SourceComments(
            layout.table.comment, {each.name: each.comment for each in layout.table.columns if each.comment}
        ),
        constraints=SourceConstraints(
            spec.primary_key or layout.table.primary_key,
            # A cast may make NULL of a value.
            frozenset(each.name for each in layout.table.columns if not each.nullable and each.name not in spec.casts),
        ),
    )


def _needs_clock(request: SourceRequest, layout: Layout) -> bool:
    """Whether anything of the plan depends on the time: not every source says it."""
    return request.partition.window is not None or (layout.axis is not None and layout.axis.lead.is_time)


def _scalar(position: Watermark) -> Scalar:
    if isinstance(position.value, tuple):
        raise RejectedError(f"{position} is not a single value", field="watermark.type")
    return position.value


def write_unit(dialect: Dialect, layout: Layout, unit: WorkUnit) -> str:
    """The condition on ``Layout.source_query`` with its ``hidden_columns``."""
    if unit.interval is None:
        return str(unit.properties.get(CONDITION, "1 = 1"))
    if layout.axis is None:
        raise RejectedError("an interval needs a column of positions", field=f"datasets[{unit.dataset}].watermark")
    names = tuple(dialect.quote(f"w{number}") for number in range(len(layout.axis.columns)))
    low = unit.interval.low if unit.reread_from is None else unit.reread_from
    condition = write_interval(dialect, layout.axis, names, Interval(low, unit.interval.high))
    if unit.properties.get(WITH_NULLS):
        return f"(({condition}) OR {' OR '.join(f'{name} IS NULL' for name in names)})"
    if len(names) > 1:
        # If the first column alone decides the comparison, it is true even with NULL in the second column.
        return f"({condition}) AND {names[1]} IS NOT NULL"
    return condition
