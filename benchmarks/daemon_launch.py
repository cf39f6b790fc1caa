"""A small increment by a run that is launched through Dagster's queue and daemon, phase by phase.

Moments come from the run's own process (``marks``) and, where none of its code runs yet or any more, from Dagster's
event log. The log's times are of the wall clock; the clocks' difference at submission makes them monotonic times.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.run_coordinator.queued_run_coordinator import QueuedRunCoordinator

from benchmarks.dagster_dev import DagsterDev, open_dagster
from benchmarks.increment_phases import AFTER, ALL, ENDS, FRESH_ALL, POSTGRES, ROWS, SESSION, SPLIT
from benchmarks.marks import JOB_VARIABLE, LOCATION, MARKS_VARIABLE, Mark, read_marks
from benchmarks.tables import Options, Samples, Table
from benchmarks.world import World, add_events, connection_of, count_events, describe_events
from gobblin_assets.dagster.environment import REMOTE_VARIABLE
from gobblin_assets.dagster.run_config import MODE_TAG
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode

WARM_UP_RUNS = 1

QUEUE: Final = "Dagster: in the queue, until the daemon looks"
SHARE: Final = "Dagster's own share until T3"
SHARE_UNQUEUED: Final = "Dagster's own share until T3, without the queue"
LAUNCHED_ALL: Final = "submission of the run to T3 acknowledged"
UNQUEUED_ALL: Final = "submission of the run to T3 acknowledged, without the queue"

_Type = dg.DagsterEventType

# Each phase by the moment that ends it, in their order. The names of Dagster's own phases begin with Dagster.
_BEFORE: Final[dict[str, str]] = {
    _Type.RUN_ENQUEUED: "Dagster: the run is made and queued",
    _Type.RUN_STARTING: QUEUE,
    Mark.PROCESS_BEGUN: "Dagster: launch, by daemon and code server",
    Mark.LOCATION_BEGUN: "Dagster: interpreter, its imports, instance",
    Mark.LOCATION_BUILT: "our imports, definitions",
    Mark.POSTGRES_ASKED: "Dagster: start of the run",
    Mark.POSTGRES_OPENED: POSTGRES,
    Mark.RUN_CALLED: "Dagster: other resources, start of the step",
    Failpoint.LEASE_TAKEN: ENDS[Failpoint.LEASE_TAKEN],
    Failpoint.SEQUENCE_BEGUN: ENDS[Failpoint.SEQUENCE_BEGUN],
    # The session is opened within the phase that asks for it, and counted as a phase of its own.
    Mark.SESSION_ASKED: ENDS[Failpoint.ATTEMPT_REGISTERED],
    Mark.SESSION_OPENED: SESSION,
    **ENDS,
}
_OF_A_SESSION: Final = frozenset({Mark.SESSION_ASKED, Mark.SESSION_OPENED})
"""Absent where Arrow reads: such a run opens no session."""

_AFTER: Final[dict[str, str]] = {
    _Type.STEP_SUCCESS: AFTER,
    _Type.RUN_SUCCESS: "Dagster: end of step and run (after T3)",
}
_DAGSTER: Final = frozenset(name for name in _BEFORE.values() if name.startswith("Dagster"))


@dataclass(frozen=True, slots=True)
class Launched:
    """One successful run: ``submitted`` and ``moments`` are times of the monotonic clock."""

    submitted: float
    moments: Mapping[str, float]


def measure(world: World, options: Options, url: str, job: str) -> Table:
    """``url``: of the warm Connect server. ``job``: the job of the runs that were measured before in other ways."""
    marks = world.home / "marks"
    marks.mkdir()
    connection = connection_of(world.server)
    variables = {
        JOB_VARIABLE: json.dumps(describe_events(world, job, SPLIT)),
        MARKS_VARIABLE: str(marks),
        REMOTE_VARIABLE: url,
        "GOBBLIN_JDBC_BENCH_URL": connection.url,
        "GOBBLIN_JDBC_BENCH_USER": connection.user or "",
        "GOBBLIN_JDBC_BENCH_PASSWORD": connection.password or "",
    }
    samples = Samples()
    with open_dagster(world.home, LOCATION, variables) as dev:
        interval_s = _find_interval_s(dev.instance)
        for run in range(-WARM_UP_RUNS, options.runs):
            add_events(world.server, count_events(world), ROWS)
            # A run that is submitted right after the previous one would always meet the daemon at the same point of
            # its round: these waits spread the runs evenly over the round.
            time.sleep(interval_s * max(run, 0) / options.runs)
            laps = split_phases(_launch(dev, marks, job))
            if run >= 0:
                samples.add_all(laps)
    return Table(
        f"{ROWS:,} rows, from a run launched through Dagster's daemon against the same warm server",
        ("phase", "median", "min", "max"),
        tuple(samples.row(name) for name in samples.by_name),
        (
            f"`dagster dev` with the instance that is shipped; {WARM_UP_RUNS} earlier run is not counted.",
            f"The daemon checks its queue every {interval_s} s: submissions are spread evenly over this time.",
            "A session, where one is opened, is opened inside the run function; the call's time excludes this.",
        ),
    )


def _launch(dev: DagsterDev, marks: Path, job: str) -> Launched:
    submitted = time.monotonic()
    ahead = time.time() - submitted
    run_id = dev.launch(LOCATION, f"{job}_whole", {MODE_TAG: Mode.APPEND.value})
    dev.wait_for_run(run_id)
    entries = [entry for entry in dev.instance.all_logs(run_id) if entry.dagster_event is not None]
    moments: dict[str, float] = {entry.get_dagster_event().event_type: entry.timestamp - ahead for entry in entries}
    (pid,) = {pid for entry in entries if (pid := entry.get_dagster_event().pid) is not None}
    (published,) = [entry.asset_materialization for entry in entries if entry.asset_materialization is not None]
    rows = published.metadata["gobblin/rows"].value
    if rows != ROWS:
        raise RuntimeError(f"expected {ROWS} rows, published {rows}")
    return Launched(submitted, {**moments, **read_marks(marks, pid, _BEFORE)})


def _find_interval_s(instance: dg.DagsterInstance) -> int:
    coordinator = instance.run_coordinator
    if not isinstance(coordinator, QueuedRunCoordinator):
        raise RuntimeError(f"the shipped instance has no queue: {coordinator}")  # noqa: TRY004  nobody passed a type
    return coordinator.dequeue_interval_seconds


def split_phases(run: Launched) -> dict[str, float]:
    """Seconds by phase, then the sums. RuntimeError where a moment is missing or comes in another order."""
    spent: dict[str, float] = {}
    last = run.submitted
    for moment, name in {**_BEFORE, **_AFTER}.items():
        if moment in _OF_A_SESSION and moment not in run.moments:
            continue
        if moment not in run.moments or run.moments[moment] < last:
            raise RuntimeError(f"{moment} does not follow what comes before it: {run}")
        spent[name] = spent.get(name, 0.0) + run.moments[moment] - last
        last = run.moments[moment]
    finished = run.moments[Failpoint.FINISH_COMMITTED]
    share = sum(spent[name] for name in _DAGSTER)
    return {
        **spent,
        ALL: finished - run.moments[Mark.RUN_CALLED] - spent.get(SESSION, 0.0),
        FRESH_ALL: finished - run.moments[Mark.PROCESS_BEGUN],
        LAUNCHED_ALL: finished - run.submitted,
        UNQUEUED_ALL: finished - run.submitted - spent[QUEUE],
        SHARE: share,
        SHARE_UNQUEUED: share - spent[QUEUE],
    }
