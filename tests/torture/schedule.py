"""The injections, their victims and their times: values that follow from the seed alone."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from gobblin_assets.failpoints import Failpoint
from tests.crash.points import (
    OF_A_CAPTURE,
    OF_A_PUBLICATION,
    OF_A_RESCALE,
    OF_A_REUSE,
    OF_A_SINK,
    OF_A_SLOT,
    OF_CLEANUP,
    OF_EXECUTION,
)
from tests.crash.test_folding import OF_A_FOLD
from tests.crash.test_kills import OF_A_REFRESH, OF_A_RUN, OF_ABANDONMENT, OF_RECOVERY, ONCE_IN_A_RUN


class Injection(StrEnum):
    """The kinds that the final table counts; each is counted when it happened, not when it was planned."""

    KILL_AT_POINT = "runner: kill -9 at a failpoint"
    KILL_AT_RANDOM = "runner: kill -9 at a random moment"
    STOP_AT_POINT = "runner: SIGSTOP past its lease, at a failpoint"
    STOP_AT_RANDOM = "runner: SIGSTOP past its lease, at a random moment"
    ACKNOWLEDGEMENT_LOST = "runner: acknowledgement lost after COMMIT, at a failpoint"
    ERROR_AFTER_EFFECT = "runner: a call took effect and reported an error"
    SOURCE_FAILED = "source: a WorkUnit can't be read"
    TWO_AT_ONCE = "two runners at once on a dataset"
    ABANDONMENT = "an open sequence is given up"
    PROXY_SWALLOWED = "proxy: COMMIT carried out, its answer swallowed"
    PROXY_DROPPED = "proxy: connection closed before COMMIT is sent on"
    PROXY_DELAYED = "proxy: the answer to COMMIT is late"
    PROXY_CUT = "proxy: connection closed at a random moment"
    SERVER_KILLED = "Postgres: kill -9 of the postmaster"
    SERVER_STOPPED = "Postgres: immediate stop"
    BACKEND_KILLED = "Postgres: kill -9 of one backend"
    SESSIONS_ENDED = "source: sessions are terminated"
    DISK_FULL = "destination: the disk is full"
    READ_ONLY = "destination: remounted read-only"
    SPARK_KILLED = "Spark: kill -9 of the Connect server"
    BROKER_KILLED = "Kafka: kill -9 of the broker"
    BROKER_PAUSED = "Kafka: SIGSTOP of the broker"
    LANES_CHANGED = "sink: another number of lanes and of workers"
    WORKERS_DRAINED = "sink: all workers are drained"
    SOURCE_KILLED = "source: kill -9 of its Postgres"
    SOURCE_STOPPED = "source: immediate stop of its Postgres"
    WALSENDER_ENDED = "source: walsenders are ended"
    STREAM_ENDED = "stream: SIGTERM, which ends it at a published boundary"
    TABLE_SWAPPED = "stranger: another table takes a table's name"
    TABLE_REMADE = "stranger: a table is dropped and made again"
    TABLE_UNPUBLISHED = "stranger: a table leaves the publication and comes back"
    PUBLICATION_ALTERED = "stranger: the publication has inserts only for a while"
    TABLE_LOCKED = "stranger: a table of the source is locked"
    FILES_REWRITTEN = "stranger: files of a source are rewritten in place, their times put back"
    LOG_LOST = "stranger: partitions of a source lose their log, and get other records"
    TOPIC_REMADE = "stranger: a topic of the source is deleted and made again"
    PLACE_LOCKED = "stranger: a table of the destination is locked"
    PLACE_RENAMED = "stranger: a table of the destination is renamed"
    PLACE_REMOVED = "stranger: a table or topic of the destination is removed"
    PLACE_REMADE = "stranger: a table or topic of the destination is removed and made again"
    MARKS_REMOVED = "stranger: the marks of a destination are removed"
    ROWS_LEFT_OUT = "stranger: a trigger leaves rows of the destination out"


class Action(StrEnum):
    """The work that a runner is started for."""

    APPEND = "append"
    REFRESH = "refresh"
    STREAM = "stream"
    RECOVER = "recover"
    ABANDON = "abandon"
    RESUME = "resume"


PROXY_FAULTS: Final = (
    Injection.PROXY_SWALLOWED,
    Injection.PROXY_DROPPED,
    Injection.PROXY_DELAYED,
    Injection.PROXY_CUT,
)
ON_THE_SERVER: Final = (Injection.SERVER_KILLED, Injection.SERVER_STOPPED, Injection.BACKEND_KILLED)
ON_THE_BROKER: Final = (Injection.BROKER_KILLED, Injection.BROKER_PAUSED)
ON_THE_SOURCE: Final = (Injection.SOURCE_KILLED, Injection.SOURCE_STOPPED, Injection.WALSENDER_ENDED)
READS: Final = (Action.APPEND, Action.REFRESH, Action.STREAM)
STOPS_TABLES: Final = (
    Injection.TABLE_SWAPPED,
    Injection.TABLE_REMADE,
    Injection.TABLE_UNPUBLISHED,
    Injection.PUBLICATION_ALTERED,
)
"""A stranger's acts that workers have to name, since changes of the tables are missing in the log."""

STOPS_TOPICS: Final = (Injection.LOG_LOST, Injection.TOPIC_REMADE)
STOPS_LOADS: Final = (
    Injection.PLACE_RENAMED,
    Injection.PLACE_REMOVED,
    Injection.PLACE_REMADE,
    Injection.MARKS_REMOVED,
    Injection.ROWS_LEFT_OUT,
)
"""The same, since the topic or the destination is not the one of before, or takes no rows."""

LOADS: Final = {f"sink-{into}": into for into in ("postgres", "kafka", "iceberg")}
"""Kinds of runners whose rows go into tables or topics, with the type of ``sink.into``."""

ON_A_MOUNT: Final = (Injection.DISK_FULL, Injection.READ_ONLY)
LEASE_TTL_S: Final = 2.0
NO_FATE: Final = "none"

# In real life the product meets such an error only here: after a COMMIT, after a rename, after a write.
_AFTER_COMMIT: Final = (
    Failpoint.LEASE_TAKEN,
    Failpoint.SEQUENCE_BEGUN,
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.FINISH_COMMITTED,
    Failpoint.CLEANUP_MARKED,
)
_AFTER_A_CALL: Final = (Failpoint.STEP_AFTER, Failpoint.ATTEMPT_WRITTEN, Failpoint.ATTEMPT_DURABLE)
_ACTIONS: Final = (
    (Action.APPEND, 74),
    (Action.REFRESH, 12),
    (Action.RECOVER, 8),
    (Action.ABANDON, 4),
    (Action.RESUME, 2),
)
# What a person or a sensor does is most of what a copy's moves can meet.
_COPY_ACTIONS: Final = (
    (Action.APPEND, 62),
    (Action.REFRESH, 6),
    (Action.RECOVER, 8),
    (Action.ABANDON, 14),
    (Action.RESUME, 10),
)
_FATES: Final = (
    (NO_FATE, 12),
    (Injection.KILL_AT_POINT, 30),
    (Injection.KILL_AT_RANDOM, 26),
    (Injection.STOP_AT_POINT, 18),
    (Injection.STOP_AT_RANDOM, 6),
    (Injection.ACKNOWLEDGEMENT_LOST, 4),
    (Injection.ERROR_AFTER_EFFECT, 4),
)
_COPY_FATES: Final = (
    (NO_FATE, 12),
    (Injection.KILL_AT_POINT, 32),
    (Injection.KILL_AT_RANDOM, 18),
    (Injection.STOP_AT_POINT, 20),
    (Injection.STOP_AT_RANDOM, 6),
    (Injection.ACKNOWLEDGEMENT_LOST, 4),
    (Injection.ERROR_AFTER_EFFECT, 8),
)
# Where files are moved, more than elsewhere.
_MOVING: Final = (Failpoint.SEAL_COMMITTED, Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER, Failpoint.EXECUTED_BEFORE_SYNC)
_SPARK_ACTIONS: Final = {
    "whole": ((Action.APPEND, 78), (Action.REFRESH, 10), (Action.RECOVER, 8), (Action.ABANDON, 4)),
    "topic": ((Action.APPEND, 48), (Action.STREAM, 32), (Action.REFRESH, 8), (Action.RECOVER, 8), (Action.ABANDON, 4)),
}
_SPARK_FATES: Final = (
    (NO_FATE, 12),
    (Injection.KILL_AT_POINT, 34),
    (Injection.KILL_AT_RANDOM, 34),
    (Injection.STOP_AT_POINT, 12),
    (Injection.STOP_AT_RANDOM, 8),
)
_SINK_ACTIONS: Final = ((Action.STREAM, 88), (Action.RECOVER, 2), (Action.ABANDON, 8), (Action.RESUME, 2))
# If nothing else ends a stream before, SIGTERM ends it some publications after its start.
_STREAM_S: Final = (4.0, 16.0)
_BY_SIGNAL: Final = (Injection.KILL_AT_RANDOM, Injection.STOP_AT_RANDOM)
_CALM_FROM: Final = 900_000
# A zombie sleeps longer than its lease lasts: 1.3 to 4 times as long. A few sleep until the torture is over.
_SLEEP_S: Final = (1.3 * LEASE_TTL_S, 4 * LEASE_TTL_S)
_NEVER_WOKEN_FRACTION: Final = 0.1
_PROXIED_FRACTION: Final = 0.25
_SPARK_PROXIED_FRACTIONS: Final = {"whole": 0.0, "topic": 0.25}
_BAD_SOURCE_FRACTION: Final = 0.12
_NEWS_ONLY_FRACTION: Final = 0.8
_TIMES_IN_A_COPY: Final = (1, 1, 1, 2, 3, 5)
# A worker publishes all the time.
_TIMES_IN_A_SINK: Final = (1, 1, 2, 3, 5, 9)


@dataclass(frozen=True, slots=True)
class RunnerPlan:
    """A runner's life. ``lake`` is the number of its destination; ``datasets`` are numbers in that destination.

    ``signal_after_s`` counts from its start, ``wake_after_s`` from the moment at which it stopped; None: it stays
    stopped until the torture is over, or too many are stopped. ``route`` is the fault of its proxy to Postgres; None:
    no proxy. ``end_after_s``: when a stream is told to stop, counted from its start or its waking. ``news_only``: a
    copy that finds nothing new publishes nothing.
    """

    number: int
    action: Action
    lake: int
    datasets: tuple[int, ...]
    policy: str
    bad_units: tuple[int, ...]
    lease_wait_s: float
    fate: str
    failpoint: str
    signal_after_s: float | None
    wake_after_s: float | None
    route: Injection | None
    end_after_s: float | None = None
    news_only: bool = False


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance of all runners, at ``at_s`` for ``lasts_s``, both in seconds of the torture."""

    at_s: float
    injection: Injection
    lasts_s: float


def plan_runner(
    seed: str,
    number: int,
    *,
    lakes: int,
    datasets: int,
    actions: Sequence[tuple[str, int]] = _ACTIONS,
    fates: Sequence[tuple[str, int]] = _FATES,
) -> RunnerPlan:
    """The fate of the ``number``-th runner, whenever it starts."""
    dice = random.Random(f"{seed}/runner/{number}")
    action = _choose(dice, actions)
    fate = _choose(dice, fates)
    chosen = tuple(sorted(dice.sample(range(datasets), dice.choice((1, 1, 2, datasets)))))
    return RunnerPlan(
        number=number,
        action=Action(action),
        lake=dice.randrange(lakes),
        datasets=chosen,
        policy=dice.choice(("full", "successful", "successful")),
        bad_units=(dice.randrange(2),) if dice.random() < _BAD_SOURCE_FRACTION else (),
        lease_wait_s=dice.choice((0.0, LEASE_TTL_S + 1, LEASE_TTL_S + 1)),
        fate=fate,
        failpoint=_plan_failpoint(dice, fate, _points_of(action)),
        signal_after_s=dice.uniform(0.02, 1.5) if fate in _BY_SIGNAL else None,
        wake_after_s=None if dice.random() < _NEVER_WOKEN_FRACTION else dice.uniform(*_SLEEP_S),
        route=dice.choice(PROXY_FAULTS) if dice.random() < _PROXIED_FRACTION else None,
    )


def plan_copy_runner(seed: str, number: int, *, lakes: int, datasets: int) -> RunnerPlan:
    """The fate of a small runner that copies: it passes other failpoints, some of them many times."""
    dice = random.Random(f"{seed}/copy/{number}")
    plan = plan_runner(seed, number, lakes=lakes, datasets=datasets, actions=_COPY_ACTIONS, fates=_COPY_FATES)
    failpoint = _plan_failpoint(dice, plan.fate, _points_of_copy(plan.action), _TIMES_IN_A_COPY)
    return replace(plan, bad_units=(), failpoint=failpoint, news_only=dice.random() < _NEWS_ONLY_FRACTION)


def plan_disturbances(
    seed: str, duration_s: float, kinds: Sequence[Injection], *, every_s: float
) -> tuple[Disturbance, ...]:
    """All kinds in turn, in an order that is drawn anew each time, about every ``every_s``, until the time is over."""
    dice = random.Random(f"{seed}/disturbances/{'+'.join(sorted(kinds))}")
    planned: list[Disturbance] = []
    at_s = every_s / 2
    while kinds and at_s < duration_s:
        for injection in dice.sample(kinds, len(kinds)):
            # Mostly short; sometimes longer than a lease lasts.
            planned.append(Disturbance(at_s, injection, 2 * LEASE_TTL_S * dice.random() ** 2))
            at_s += dice.uniform(0.5, 1.5) * every_s
    return tuple(disturbance for disturbance in planned if disturbance.at_s < duration_s)


def plan_calm_runner(number: int, action: Action, *, lake: int, datasets: int) -> RunnerPlan:
    """A runner without any fault, on all datasets of a destination; counted apart from the tortured ones."""
    return RunnerPlan(
        number=_CALM_FROM + number,
        action=action,
        lake=lake,
        datasets=tuple(range(datasets)),
        policy="full",
        bad_units=(),
        lease_wait_s=2 * LEASE_TTL_S,
        fate=NO_FATE,
        failpoint="",
        signal_after_s=None,
        wake_after_s=None,
        route=None,
    )


def plan_spark_runner(kind: str, seed: str, number: int, *, datasets: int) -> RunnerPlan:
    """The fate of a runner with Spark, which takes seconds where a small runner takes tenths of seconds."""
    dice = random.Random(f"{seed}/{kind}/{number}")
    action = _choose(dice, _SPARK_ACTIONS[kind])
    is_stream = action == Action.STREAM
    fate = _choose(dice, _SPARK_FATES)
    chosen = tuple(sorted(dice.sample(range(datasets), dice.choice((1, 1, datasets)))))
    return RunnerPlan(
        number=number,
        action=Action(action),
        lake=0,
        datasets=chosen,
        policy=dice.choice(("full", "successful")),
        bad_units=(),
        lease_wait_s=LEASE_TTL_S + 1,
        fate=fate,
        failpoint=_plan_failpoint(dice, fate, _points_of(action)),
        signal_after_s=dice.uniform(0.2, _STREAM_S[1] if is_stream else 5.0) if fate in _BY_SIGNAL else None,
        wake_after_s=None if dice.random() < _NEVER_WOKEN_FRACTION else dice.uniform(*_SLEEP_S),
        route=dice.choice(PROXY_FAULTS) if dice.random() < _SPARK_PROXIED_FRACTIONS[kind] else None,
        end_after_s=dice.uniform(*_STREAM_S) if is_stream else None,
    )


def plan_sink_runner(seed: str, number: int, *, datasets: int) -> RunnerPlan:
    """The fate of a worker of a sink, or of a person or a sensor beside it. All workers read all datasets."""
    dice = random.Random(f"{seed}/sink/{number}")
    plan = plan_runner(seed, number, lakes=1, datasets=datasets, actions=_SINK_ACTIONS)
    points: Sequence[Failpoint] = (*OF_A_SINK, *OF_A_RESCALE, Failpoint.RECOVERY_STARTED)
    is_worker = plan.action is Action.STREAM
    points = points if is_worker else _points_of(plan.action)
    # Only there an error of the system itself can come: what a worker writes is written by our own file systems.
    calls = (Failpoint.STEP_AFTER,)
    return replace(
        plan,
        datasets=tuple(range(datasets)),
        bad_units=(),
        failpoint=_plan_failpoint(dice, plan.fate, points, _TIMES_IN_A_SINK, calls),
        signal_after_s=dice.uniform(0.3, _STREAM_S[1] / 2) if plan.fate in _BY_SIGNAL else None,
        end_after_s=dice.uniform(*_STREAM_S) if is_worker else None,
    )


def plan_cdc_runner(seed: str, number: int, *, datasets: int) -> RunnerPlan:
    """The same for a worker that follows a database: one at a time reads the slot, the others stand by."""
    plan = plan_sink_runner(f"{seed}/cdc", number, datasets=datasets)
    if plan.action is not Action.STREAM:
        return plan
    dice = random.Random(f"{seed}/cdc/{number}")
    points = (*OF_A_SINK, *(OF_A_SLOT * 2), Failpoint.RECOVERY_STARTED)
    failpoint = _plan_failpoint(dice, plan.fate, points, _TIMES_IN_A_SINK, (Failpoint.STEP_AFTER,))
    return replace(plan, failpoint=failpoint)


def _points_of(action: str) -> Sequence[Failpoint]:
    """The failpoints that such a runner passes, or may pass."""
    match action:
        case Action.APPEND | Action.STREAM:
            return (*OF_A_RUN, *ONCE_IN_A_RUN, Failpoint.RECOVERY_STARTED)
        case Action.REFRESH:
            return (*OF_A_RUN, *ONCE_IN_A_RUN, *OF_A_REFRESH)
        case Action.ABANDON:
            return (Failpoint.LEASE_TAKEN, *OF_ABANDONMENT)
        case _:
            return (Failpoint.LEASE_TAKEN, *OF_RECOVERY)


def _points_of_copy(action: str) -> Sequence[Failpoint]:
    match action:
        case Action.APPEND | Action.REFRESH:
            return (
                *(Failpoint.LEASE_TAKEN, Failpoint.RECOVERY_STARTED, *OF_A_REUSE, *OF_A_PUBLICATION, *OF_A_CAPTURE),
                *(Failpoint.FINISHED_BEFORE_EVENTS, *OF_CLEANUP, *ONCE_IN_A_RUN, *OF_A_FOLD),
                *(_MOVING * 4),
            )
        case Action.ABANDON:
            return (Failpoint.LEASE_TAKEN, *OF_ABANDONMENT)
        case _:
            return (Failpoint.LEASE_TAKEN, Failpoint.RECOVERY_STARTED, *OF_A_CAPTURE, *OF_EXECUTION)


def _plan_failpoint(
    dice: random.Random,
    fate: str,
    points: Sequence[Failpoint],
    counts: Sequence[int] = (1, 1, 1, 2),
    calls: Sequence[Failpoint] = _AFTER_A_CALL,
) -> str:
    times = dice.choice(counts)
    match fate:
        case Injection.KILL_AT_POINT:
            return f"{dice.choice(points)}=kill@{times}"
        case Injection.STOP_AT_POINT:
            return f"{dice.choice(points)}=stop@{times}"
        case Injection.ACKNOWLEDGEMENT_LOST:
            return f"{dice.choice(_AFTER_COMMIT)}=lose@{times}"
        case Injection.ERROR_AFTER_EFFECT:
            return f"{dice.choice(calls)}=error@{times}"
        case _:
            return ""


def _choose(dice: random.Random, weighted: Sequence[tuple[str, int]]) -> str:
    return dice.choices([value for value, _weight in weighted], [weight for _value, weight in weighted])[0]
