"""Tells Dagster of the checks of a sink: when a result changes, at most once a minute, and now and then anew."""

import datetime as dt
import json
from collections.abc import Iterator
from typing import Final, cast

import dagster as dg
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.instances import telling
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.metadata import build_evaluation
from gobblin_assets.dagster.sink_sight import TELL_EVERY_S, SinkSight
from gobblin_assets.jobs.sink.sink_checks import LANES_CHECK, judge_lanes, judge_sink_lag, judge_stream_lag
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.sink_windows import DatasetLook

REFRESH_S: Final = 600.0
"""While workers are alive, the figures of a result that stays are told again so often."""

SETTLED_S: Final = 60.0
"""So long lanes may be free while workers are alive, on their way from one to the other, before a check says so."""

_FIRST_SEEN: Final = TypeAdapter(dict[str, float])


def tell_sink_checks(
    layout: JobLayout, instance: dg.DagsterInstance, sight: SinkSight, cursor: str | None, now: dt.datetime
) -> str:
    """Evaluate the checks of each dataset. Returns the cursor: by dataset, since when lanes wait for a worker.

    RetryableError as for ``tell_windows``.
    """
    seen = _read_cursor(cursor)
    waiting = {urn: seen.get(urn, now.timestamp()) for urn, look in sight.looks.items() if _has_free(look)}
    moving = {urn for urn, since in waiting.items() if sight.workers and now.timestamp() - since < SETTLED_S}
    found = {
        dg.AssetCheckKey(layout.get_key(urn), check.name): check
        for urn in sight.looks
        for check in judge_sink(layout, sight, urn)
        if check.name != LANES_CHECK or check.blocking or urn not in moving
    }
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(found))
    for key, check in found.items():
        if _is_due(check, known.get(key), now, is_at_work=bool(sight.workers)):
            with telling(key.asset_key):
                instance.report_runless_asset_event(build_evaluation(key.asset_key, check))
    return json.dumps(waiting, sort_keys=True)


def judge_sink(layout: JobLayout, sight: SinkSight, urn: DatasetUrn) -> Iterator[CheckResult]:
    """The results of a dataset's checks of its sink."""
    job = cast("JobSpec", layout.job)
    yield judge_lanes(sight.looks[urn].lanes, worker_count=len(sight.workers))
    if sight.status is not None:
        yield judge_stream_lag(sight.status, urn, lag_max=job.sink.lag_max)
    elif sight.unanswered is None:
        yield judge_sink_lag(sight.lag_of(urn), lag_max=job.sink.lag_max)


def _is_due(check: CheckResult, known: AssetCheckExecutionRecord | None, now: dt.datetime, *, is_at_work: bool) -> bool:
    event = None if known is None or known.event is None else known.event.dagster_event
    if known is None or known.event is None or event is None:
        return True
    if event.event_type is not dg.DagsterEventType.ASSET_CHECK_EVALUATION:
        # A run of the assets has planned it, and hides what was told before; no worker evaluates it.
        return True
    age_s = now.timestamp() - known.event.timestamp
    if age_s < TELL_EVERY_S:
        return False
    told = event.asset_check_evaluation_data
    changed = told.passed is not check.passed or (
        check.name == LANES_CHECK and (told.description or "") != check.description
    )
    return changed or (is_at_work and age_s >= REFRESH_S)


def _has_free(look: DatasetLook) -> bool:
    return any(lane.vnode_count and lane.holder is None for lane in look.lanes)


def _read_cursor(cursor: str | None) -> dict[str, float]:
    try:
        return _FIRST_SEEN.validate_json(cursor) if cursor else {}
    except ValidationError:
        # Somebody typed it into the UI; it only delays what it would have said.
        return {}
