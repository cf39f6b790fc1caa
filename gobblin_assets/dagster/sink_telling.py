"""One look at a sink for Dagster: what is due is told, in the order that hides nothing."""

import datetime as dt

import dagster as dg

from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.sink_reports import observe, report_healed, report_sink_checks, report_windows
from gobblin_assets.dagster.sink_sight import SinkSight
from gobblin_assets.run.stores import Stores


def tell_of_sink(
    layout: JobLayout,
    stores: Stores,
    instance: dg.DagsterInstance,
    sight: SinkSight,
    cursor: str | None,
    now: dt.datetime,
) -> tuple[int, str]:
    """Report windows, observations and checks that are due; how many windows, and the cursor of the checks.

    RetryableError when Dagster does not take an event: the next tick reports it.
    """
    # Before the windows: a window that passes would hide an earlier one that still fails.
    report_healed(layout, instance, sight)
    count = report_windows(layout, stores, instance, sight)
    observe(layout, stores, instance, sight)
    return count, report_sink_checks(layout, instance, sight, cursor, now)
