"""Flows that are due, from their slots to their status: one at a time by each kind of executor, and many in Dagster.

The service and the executors are the commands as a person types them, over an embedded Postgres that waits for its
disk; Dagster is `dagster dev` with the instance that the product ships. A flow's first run loads its table.
"""

import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import dagster as dg
from sqlalchemy import text

from benchmarks.dagster_dev import DagsterDev, open_dagster
from benchmarks.service_world import EXECUTOR, Asker, describe_flow, executing, serve_flows, write_topology
from benchmarks.tables import Options, Samples, Table, verdict
from benchmarks.world import World, connection_of
from gobblin_assets.dagster.runner_location import EXECUTOR_VARIABLE, PACK_VARIABLE
from gobblin_assets.dagster.ticket_sensors import PACK_MAX_DEFAULT, TICKET_TAG

DAGSTER_CLAIMED_S_MAX, OWN_S_MAX, PROCESS_CLAIMED_S_MAX = 12.0, 2.0, 2.0
TOGETHER_S_MAX, STATUS_S_MAX = 120.0, 3.0

_LOCATION: Final = "gobblin_assets.dagster.runner_location"
_GROUP: Final = "due"
_ROWS: Final = 1_000
_TOGETHER, _TOGETHER_QUICK = 100, 10
_DUE_IN_S: Final = 2.0
_SPREAD_S: Final = 5.0
_WAIT_S_MAX: Final = 900.0
_LOOK_S: Final = 0.02

_SENT, _WAITED, _ASKED, _STARTED, _STEP, _OWN, _CLAIMED, _SHOWN, _ENDED = (
    "due until its ticket is sent",
    "Dagster: sent until the sensor's next look",
    "the look until Dagster has the run",
    "Dagster: until the run's step begins",
    "the step until the claim",
    "of it ours",
    "due until claimed",
    "the job's report until the flow's status",
    "due until COMPLETE",
)
_BY_PROCESS: Final = "sent until claimed"

# Its slots are a year apart: a flow is due once, when the measure says so.
_SCHEDULE: Final = {"schedule": "30 4 1 1 *", "run_immediately": False}

_DUE: Final = text("""
    UPDATE gobblin_service.flow
       SET next_fire_at = clock_timestamp() + make_interval(secs => :after_s),
           due_at = clock_timestamp() + make_interval(secs => :after_s)
     WHERE flow_group = :group AND flow_name = ANY (:names)
""")
_MOMENTS: Final = text("""
    SELECT t.ticket_id, extract(epoch FROM e.fire_at)::float8 AS due, extract(epoch FROM t.sent_at)::float8 AS sent,
           extract(epoch FROM c.claimed_at)::float8 AS claimed, extract(epoch FROM r.at)::float8 AS reported
      FROM gobblin_service.flow f
      JOIN gobblin_service.flow_execution e USING (flow_id)
      JOIN gobblin_service.job_execution j USING (execution_id)
      JOIN gobblin.job_ticket t USING (ticket_id)
      JOIN gobblin.ticket_claim c ON c.ticket_id = t.ticket_id AND c.attempt = 1
      JOIN gobblin.ticket_report r ON r.ticket_id = t.ticket_id AND r.kind = 'ended'
     WHERE f.flow_group = :group AND f.flow_name = :name
""")
_OPEN: Final = text("""
    SELECT count(*) FROM gobblin_service.flow f LEFT JOIN gobblin_service.flow_execution e USING (flow_id)
     WHERE f.flow_group = :group AND f.flow_name = ANY (:names) AND e.ended_at IS NULL
""")
_TAKEN: Final = text("""
    SELECT count(*) FILTER (WHERE e.status <> 'COMPLETE') AS bad,
           extract(epoch FROM max(e.ended_at) - min(e.fire_at))::float8 AS seconds
      FROM gobblin_service.flow f JOIN gobblin_service.flow_execution e USING (flow_id)
     WHERE f.flow_group = :group AND f.flow_name = ANY (:names)
""")


def measure_claims(world: World, options: Options) -> list[Table]:
    """One flow at a time, each due at any moment of the looks of services and sensors."""
    world.make_events(_ROWS)
    by_process, by_dagster = Samples(), Samples()
    count = 2 * options.runs
    with serve_flows(world, write_topology(world)) as served:
        asker = Asker(served.port)
        with executing(world):
            for name in _create(asker, "process", count + 1):
                _measure_process(world, asker, name, by_process)
        with _open_executor(world, PACK_MAX_DEFAULT) as dev:
            for name in _create(asker, "dagster", count + 1):
                _measure_dagster(world, asker, dev, name, by_dagster)
    # The first one of each is the first of its executor as well.
    return [_write_claims(_without_first(by_process)), _write_dagster(_without_first(by_dagster))]


def measure_packs(world: World, options: Options) -> list[Table]:
    """Many flows that are due at once, some in each run of Dagster, beside a run for each."""
    world.make_events(_ROWS)
    count = _TOGETHER_QUICK if options.quick else _TOGETHER
    together = Samples()
    packed, unpacked = f"{PACK_MAX_DEFAULT} in a run", "each in a run of its own"
    with serve_flows(world, write_topology(world)) as served:
        asker = Asker(served.port)
        for name, pack_max, rounds in ((packed, PACK_MAX_DEFAULT, options.runs), (unpacked, 1, 1)):
            with _open_executor(world, pack_max):
                _run_together(world, _create(asker, f"first{pack_max}of", 1))
                for round_ in range(rounds):
                    together.add(name, _run_together(world, _create(asker, f"pack{pack_max}_{round_}of", count)))
    return [
        Table(
            f"{count} flows of {_ROWS:,} rows that are due at once in Dagster",
            ("from the slot until the last one is COMPLETE", "median", "min", "max"),
            tuple(together.row(name) for name in together.by_name),
            (
                verdict("packed", together.median(packed), TOGETHER_S_MAX),
                "Dagster runs 4 at once, as the shipped instance says. Unpacked: measured once.",
            ),
        )
    ]


def _open_executor(world: World, pack_max: int) -> AbstractContextManager[DagsterDev]:
    connection = connection_of(world.server)
    variables = {
        EXECUTOR_VARIABLE: EXECUTOR,
        PACK_VARIABLE: str(pack_max),
        "GOBBLIN_JDBC_BENCH_URL": connection.url,
        "GOBBLIN_JDBC_BENCH_USER": connection.user or "",
        "GOBBLIN_JDBC_BENCH_PASSWORD": connection.password or "",
    }
    return open_dagster(world.home, _LOCATION, variables)


def _create(asker: Asker, name: str, count: int) -> list[str]:
    names = [f"{name}{number}" for number in range(count)]
    for each in names:
        asker.ask("POST", "/flows", describe_flow(_GROUP, each) | _SCHEDULE)
    return names


def _make_due(world: World, names: Sequence[str], after_s: float) -> None:
    with world.engine.begin() as connection:
        connection.execute(_DUE, {"after_s": after_s, "group": _GROUP, "names": [*names]})


def _run_one(world: World, asker: Asker, name: str) -> tuple[Any, float]:
    """The moments of the flow (Unix time, s), and when its status was seen to be COMPLETE."""
    _make_due(world, [name], _DUE_IN_S + random.uniform(0.0, _SPREAD_S))
    until = time.monotonic() + _WAIT_S_MAX
    while True:
        found = asker.ask("GET", f"/flows/{_GROUP}/{name}/executions?limit=1")["executions"]
        shown, status = time.time(), found[0]["status"] if found else ""
        if status == "COMPLETE":
            break
        if status in {"FAILED", "CANCELLED"} or time.monotonic() > until:
            raise RuntimeError(f"the flow {name} is {status or 'not fired'}: {found}")
        time.sleep(_LOOK_S)
    with world.engine.connect() as connection:
        return connection.execute(_MOMENTS, {"group": _GROUP, "name": name}).one(), shown


def _measure_process(world: World, asker: Asker, name: str, samples: Samples) -> None:
    moments, shown = _run_one(world, asker, name)
    samples.add(_SENT, moments.sent - moments.due)
    samples.add(_BY_PROCESS, moments.claimed - moments.sent)
    samples.add(_CLAIMED, moments.claimed - moments.due)
    samples.add(_SHOWN, shown - moments.reported)
    samples.add(_ENDED, shown - moments.due)


def _measure_dagster(world: World, asker: Asker, dev: DagsterDev, name: str, samples: Samples) -> None:
    moments, shown = _run_one(world, asker, name)
    (record,) = dev.instance.get_run_records(dg.RunsFilter(tags={TICKET_TAG: str(moments.ticket_id)}))
    run_id = record.dagster_run.run_id
    # A look may have begun before the ticket came, which it saw.
    looked = max(_find_look(dev, run_id), moments.sent)
    asked, started = (
        dev.instance.get_records_for_run(run_id, of_type=kind).records[0].timestamp
        for kind in (dg.DagsterEventType.RUN_ENQUEUED, dg.DagsterEventType.STEP_START)
    )
    samples.add(_SENT, moments.sent - moments.due)
    samples.add(_WAITED, looked - moments.sent)
    samples.add(_ASKED, asked - looked)
    samples.add(_STARTED, started - asked)
    samples.add(_STEP, moments.claimed - started)
    samples.add(_OWN, (moments.sent - moments.due) + (asked - looked) + (moments.claimed - started))
    samples.add(_CLAIMED, moments.claimed - moments.due)
    samples.add(_SHOWN, shown - moments.reported)
    samples.add(_ENDED, shown - moments.due)


def _find_look(dev: DagsterDev, run_id: str) -> float:
    """When the tick began that asked for the run (Unix time, s)."""
    for state in dev.instance.all_instigator_state():
        for tick in dev.instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=20):
            if run_id in tick.run_ids:
                return tick.timestamp
    raise RuntimeError(f"no tick asked for the run {run_id}")


def _run_together(world: World, names: Sequence[str]) -> float:
    """Seconds from the slot of all of them until the last one is COMPLETE."""
    _make_due(world, names, _DUE_IN_S)
    until, given = time.monotonic() + _WAIT_S_MAX, {"group": _GROUP, "names": [*names]}
    while time.monotonic() < until:
        time.sleep(_LOOK_S)
        with world.engine.connect() as connection:
            if not connection.execute(_OPEN, given).scalar_one():
                taken = connection.execute(_TAKEN, given).one()
                if taken.bad:
                    raise RuntimeError(f"{taken.bad} of {len(names)} flows are not COMPLETE")
                return float(taken.seconds)
    raise RuntimeError(f"flows are open after {_WAIT_S_MAX:g} s")


def _without_first(samples: Samples) -> Samples:
    return Samples({name: values[1:] for name, values in samples.by_name.items()})


def _write_claims(found: Samples) -> Table:
    return Table(
        "A flow that is due, by `executor serve`",
        ("phase", "median", "min", "max"),
        tuple(found.row(name) for name in found.by_name),
        (
            f"A table of {_ROWS:,} rows; one flow at a time. Its status is asked for every {_LOOK_S:g} s.",
            verdict(f"{_CLAIMED}, p50", found.median(_CLAIMED), PROCESS_CLAIMED_S_MAX),
            verdict(f"{_SHOWN}, p50", found.median(_SHOWN), STATUS_S_MAX),
        ),
    )


def _write_dagster(found: Samples) -> Table:
    return Table(
        "A flow that is due, by Dagster",
        ("phase", "median", "min", "max"),
        tuple(found.row(name) for name in found.by_name),
        (
            f"A table of {_ROWS:,} rows; one flow at a time, due at any moment between two looks of the sensor.",
            "Ours: all but the wait for the sensor's look, Dagster's queue and the start of the run's process.",
            verdict(f"{_CLAIMED}, p50", found.median(_CLAIMED), DAGSTER_CLAIMED_S_MAX),
            verdict(f"{_OWN}, p50", found.median(_OWN), OWN_S_MAX),
            verdict(f"{_SHOWN}, p50", found.median(_SHOWN), STATUS_S_MAX),
        ),
    )
