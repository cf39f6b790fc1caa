"""The bounds of what is read of a dataset partition: pure decisions over positions and clocks."""

import datetime as dt
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import ExtractType, Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.watermark import Watermark, WatermarkType, parse_position
from gobblin_assets.sources.jdbc.positions import (
    Axis,
    ahead_of,
    last_of,
    moment_value,
    parse_zone,
    step_back,
)
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import WatermarkSpec

Window = tuple[Watermark | None, Watermark | None]
"""From where to where a partition goes; None: no limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one reading of a partition.

    ``floor``: where the partition itself begins. ``low``: where this reading begins. ``ceiling``: exclusive;
    rows at or above it are too young, or belong to a later partition. None: no limit.
    """

    floor: Watermark | None
    low: Watermark | None
    ceiling: Watermark | None


@dataclass(frozen=True, slots=True)
class Times:
    """The times of a dataset's positions by the source's clock. ``old_enough``: rows at or above it are too young.

    ``ahead``: the least position that lies ahead of the clock. None: positions are no times, or there is no such one.
    """

    old_enough: Watermark | None
    ahead: Watermark | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """Positions ahead of the source's clock. ``first``: the least of them. ``end``: where the partition ends; None: it
    has no end. ``last``: the last position of the type; the time of rows there, or above, never comes.
    """

    first: Watermark
    end: Watermark | None
    last: Watermark


def decide_mode(request: SourceRequest, clock: dt.datetime) -> Mode:
    """APPEND or REFRESH. AUTO refreshes a complete, published window that is materialized again by hand."""
    if request.spec.extract is ExtractType.SNAPSHOT_ONLY:
        return Mode.REFRESH
    if request.mode is not Mode.AUTO:
        return request.mode
    if not request.by_hand or (request.partition.key or "") not in request.state.published:
        return Mode.APPEND
    window = request.partition.window
    lag_s = request.spec.watermark.commit_lag_s if request.spec.watermark else 0.0
    complete = window is not None and window.end <= clock - dt.timedelta(seconds=lag_s)
    return Mode.REFRESH if complete else Mode.APPEND


def read_clock(request: SourceRequest, axis: Axis, clock: dt.datetime) -> Times:
    """``clock`` is the source's, not later than what its queries see. All partitions of a dataset have the same."""
    spec, zone = _spec_of(request), _zone_of(request, axis)
    # If a wall clock will show a time twice, its rows wait for the second pass: both passes lie above the watermark.
    # The lag is for timestamps. Dates count as whole days, so today is still open.
    lag_s = 0.0 if axis.lead is WatermarkType.DATE else spec.commit_lag_s
    old_enough = moment_value(axis.lead, clock - dt.timedelta(seconds=lag_s), zone)
    ahead = ahead_of(axis.lead, clock, zone)
    return Times(
        None if old_enough is None else axis.lift(old_enough),
        None if ahead is None else axis.lift(ahead),
    )


def plan_limits(
    request: SourceRequest, axis: Axis, mode: Mode, previous: Watermark | None, times: Times, window: Window
) -> Limits:
    """``previous`` is the published watermark, ``window`` the partition's, as ``plan_window`` gives it."""
    spec = _spec_of(request)
    field = f"datasets[{request.urn}].watermark"
    floor, end = window
    if spec.start is not None:
        given = axis.lift(axis.leading(parse_position(axis.lead, spec.start, field=f"{field}.start")))
        floor = given if floor is None else max(floor, given)
    if floor is not None and end is not None:
        floor = min(floor, end)
    if previous is not None and previous.type is not axis.type:
        raise RejectedError(
            f"the dataset's watermark is a {previous.type}, but {axis.column} gives a {axis.type}",
            field=field,
            hint="Go back to the column it had, or reset the dataset to start it over.",
        )
    low = floor if mode is Mode.REFRESH or previous is None else previous
    ceilings = [bound for bound in (end, times.old_enough) if bound is not None]
    ceiling = min(ceilings, default=None)
    # If the clock was set back, the interval must still not end before it begins.
    if ceiling is not None and low is not None:
        ceiling = max(ceiling, low)
    return Limits(floor, low, ceiling)


def plan_high(limits: Limits, mode: Mode, previous: Watermark | None, top: Watermark | None) -> Watermark | None:
    """The pinned upper bound; ``top`` is the greatest position within the limits. None: there is no position yet.

    A refresh never ends below the published watermark: otherwise the watermark would go back.
    """
    high = limits.low if top is None else top.successor()
    if top is not None and high == top:
        raise RejectedError(
            f"the greatest position is {top}, and no position follows it",
            field="watermark.column",
            hint="A column of positions must not use the last value of its type.",
        )
    if high is not None and limits.ceiling is not None:
        high = min(high, limits.ceiling)
    if mode is Mode.REFRESH and previous is not None:
        high = previous if high is None else max(high, previous)
    return high


def plan_reread(request: SourceRequest, axis: Axis, limits: Limits, previous: Watermark | None) -> Watermark | None:
    """Where the late window begins, which is read again; None without a window, or if nothing was published yet."""
    window = _spec_of(request).late_window
    if not window or previous is None or limits.low is None:
        return None
    back = step_back(axis, limits.low, window)
    if limits.floor is not None:
        back = max(back, limits.floor)
    return back if back < limits.low else None


def plan_window(request: SourceRequest, axis: Axis) -> Window:
    """The partition's window as positions; (None, None) when it has none."""
    window = request.partition.window
    if window is None:
        return None, None
    field = f"datasets[{request.urn}].watermark"
    if axis.lead is WatermarkType.DATE:
        # Dates belong to the calendar of the partitions, even dates that the zone's clocks skipped.
        if window.days is None:
            raise RejectedError(
                f"{axis.column} holds dates, and the window from {window.start} to {window.end} cuts through a day",
                field=f"datasets[{request.urn}].partitions.kind",
                hint="Use daily or longer partitions, or a timestamp column.",
            )
        return axis.lift(window.days[0]), axis.lift(window.days[1])
    zone = _zone_of(request, axis)
    edges = [moment_value(axis.lead, edge, zone) for edge in (window.start, window.end)]
    if edges[0] is None or edges[1] is None:
        raise RejectedError(
            f"time partitions need a date or timestamp column, found {axis.column} of type {axis.lead}",
            field=f"{field}.column",
            hint="Name a time column, or use partitions of another kind.",
        )
    return axis.lift(edges[0]), axis.lift(edges[1])


def plan_ahead(axis: Axis, times: Times, window: Window) -> Ahead | None:
    """None: positions are not times, or the partition's window is over."""
    value = None if times.ahead is None else axis.leading(times.ahead)
    if times.ahead is None or not isinstance(value, dt.date):
        return None
    start, end = window
    first = times.ahead if start is None else max(times.ahead, start)
    return Ahead(first, end, axis.lift(last_of(value))) if end is None or first < end else None


def require_late_window(request: SourceRequest, axis: Axis) -> None:
    """Refuse a late window without a key, or of texts."""
    spec = _spec_of(request)
    urn = request.urn
    if spec.late_window and not request.spec.primary_key:
        raise RejectedError(
            "a late window needs a key, to tell a late row from one that was published",
            field=f"datasets[{urn}].primary_key",
            hint="List the columns that identify a row, or set watermark.late_window to 0.",
        )
    if spec.late_window and axis.lead is WatermarkType.STRING:
        raise RejectedError(
            "texts have no distance, so that no window can be measured",
            field=f"datasets[{urn}].watermark.late_window",
            hint="Use 0, or a number or time column.",
        )


def first_interval(limits: Limits, high: Watermark) -> Interval:
    """The whole interval of this reading."""
    low = limits.low
    return Interval(low, high if low is None else max(low, high))


def _zone_of(request: SourceRequest, axis: Axis) -> ZoneInfo:
    """The zone of the column's values. Dates belong to the calendar of time partitions, if there are any."""
    field = f"datasets[{request.urn}]"
    if axis.lead is WatermarkType.DATE and request.spec.partitions.kind.is_time:
        return parse_zone(request.spec.partitions.zone, field=f"{field}.partitions.zone")
    return parse_zone(_spec_of(request).zone, field=f"{field}.watermark.zone")


def _spec_of(request: SourceRequest) -> WatermarkSpec:
    if request.spec.watermark is None:
        what = "time partitions" if request.partition.window is not None else f"extract {request.spec.extract}"
        raise RejectedError(
            f"{what} need a column of positions",
            field=f"datasets[{request.urn}].watermark",
            hint="Name it: watermark: {column: updated_at}. Or use extract: snapshot_only without time partitions.",
        )
    return request.spec.watermark
