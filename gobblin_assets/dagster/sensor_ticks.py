"""The ticks of sensors: their pace, the waits between tries that died, and the times that their cursors hold."""

import datetime as dt
from collections.abc import Sequence
from typing import Final

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from gobblin_assets.dagster.instances import aware_moment
from gobblin_assets.errors import GobblinError

INTERVAL_S: Final = 15

EACH_LOOK_S: Final = 2
"""Dagster's daemon looks at all sensors every 5 s. A sensor that asks for 5 s has it look at every other time."""

TRIES_READ_MAX: Final = 100
TRY_WAIT_S_FIRST: Final = 30.0
TRY_WAIT_S_MAX: Final = 3_600.0
UNFINISHED: Final = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

_DOUBLINGS_MAX: Final = 16
_NAMED_MAX: Final = 10
_TIMES: Final = TypeAdapter(dict[str, float])


def decide_try(ended: Sequence[dt.datetime], now: dt.datetime) -> int | None:
    """The number of the try to start now, from when earlier ones ended; None if the last one ended too recently.

    The log counts and spaces tries that failed with an error; this function spaces tries that died.
    """
    if not ended:
        return 1
    return len(ended) + 1 if (now - max(ended)).total_seconds() >= decide_try_wait_s(len(ended)) else None


def decide_try_wait_s(tries: int) -> float:
    """How long after the last of this many tries the next may begin: twice as long each time, up to an hour."""
    return min(TRY_WAIT_S_FIRST * 2.0 ** min(tries - 1, _DOUBLINGS_MAX), TRY_WAIT_S_MAX)


def find_ended_at(record: dg.RunRecord) -> dt.datetime:
    """When a run ended; of one without an end, when Dagster last heard of it."""
    if record.end_time is not None:
        return dt.datetime.fromtimestamp(record.end_time, dt.UTC)
    return aware_moment(record.update_timestamp)


def read_times(cursor: str | None) -> dict[str, float]:
    """Times by name, as a cursor has them (Unix time, s)."""
    try:
        return _TIMES.validate_json(cursor) if cursor else {}
    except ValidationError:
        # Somebody typed it into the UI; it only delays what it would have said.
        return {}


def name_some(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")


def in_one_line(error: GobblinError) -> str:
    """The error, as the reason of a tick that skips."""
    return " ".join(str(error).split())
