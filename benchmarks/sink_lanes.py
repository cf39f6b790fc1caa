"""Lanes under way: what cuts of 16 lanes each second cost, and how long lanes that change hands rest.

A topic of 256 partitions gets a record a second in each.
"""

import datetime as dt
import sys
import time
from collections.abc import Sequence

from benchmarks.kafka_world import make_topics, open_broker
from benchmarks.sink_producer import records_meanwhile
from benchmarks.sink_world import (
    WAIT_S_MAX,
    JobProcess,
    PublishedVnode,
    SinkJob,
    bound_at_most,
    make_job,
    postgres_s,
    running,
    start_worker,
)
from benchmarks.tables import Options, Samples, Table
from benchmarks.world import World
from gobblin_assets.failpoints import Failpoint

VNODES, LANES = 256, 16
EVERY_S, TTL_S = 1.0, 10.0
RECORDS_PER_S = float(VNODES)
OPEN_SEQUENCES = 256
ROUND_S, ROUND_S_QUICK = 8.0, 4.0
CORES_MAX = 1.0
HANDOVER_S_MAX = EVERY_S + 1.0
KILLED_S_MAX = TTL_S + 2 * EVERY_S
RECOVERY_S_MAX = 10.0

_KAFKA = {"value": {"format": "bytes"}, "keep": ["partition", "offset"]}
_WORKER, _POSTGRES, _BOTH = "a cut a second: the worker", "a cut a second: Postgres", "a cut a second: both"
_READING = "no cuts: both"
_JOINED, _GAP, _KILLED, _RECOVERED = "join", "gap", "killed", "recovered"
_NEVER_S = 3_600.0
_LONG_AGO = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)

_OPEN = """
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND s.state = 'PREPARED'
"""
_COUNT_OPEN = f"SELECT count(*) {_OPEN}"
_LIST_OPEN = f"SELECT array_agg(s.sequence_id) {_OPEN}"
_COUNT_ENDED = "SELECT count(*) FROM gobblin.commit_sequence WHERE sequence_id = ANY (:ids) AND state = 'DONE'"
_RECOVERY_S = """
    SELECT extract(epoch FROM max(s.done_at) - (SELECT max(r.started_at) FROM gobblin.run r WHERE r.job = :job))
      FROM gobblin.commit_sequence s WHERE s.sequence_id = ANY (:ids)
"""
# As waiting would.
_EXPIRE = tuple(
    f"UPDATE gobblin.{table} SET expires_at = clock_timestamp() - interval '1 second'"
    for table in ("lease", "sink_worker")
)


def measure(world: World, options: Options) -> list[Table]:
    with open_broker(world, heap_mb=1_536) as broker:
        make_topics(broker.bootstrap, ["lanes"], VNODES)
        cores, changes = Samples(), Samples()
        with records_meanwhile(broker.bootstrap, "lanes", VNODES, RECORDS_PER_S):
            _measure_cores(world, broker.bootstrap, options, cores)
            for _run in range(options.runs):
                sys.stderr.write("  lanes change hands …\n")
                _measure_changes(_make_job(world, broker.bootstrap, LANES, 0.0), changes)
            sys.stderr.write(f"  {OPEN_SEQUENCES} open sequences …\n")
            for _run in range(min(options.runs, 3)):
                _measure_recovery(_make_job(world, broker.bootstrap, OPEN_SEQUENCES, 0.0), changes)
    return [_describe(cores, changes)]


def _make_job(world: World, bootstrap: str, lanes: int, age_s: float) -> SinkJob:
    """``age_s`` 0: every barrier is a cut."""
    sink = {"lanes": lanes, "every_s": EVERY_S, "roll": {"age_s": age_s}}
    return make_job(world, bootstrap, "lanes", _KAFKA, sink=sink, lease={"ttl_s": TTL_S})


def _measure_cores(world: World, bootstrap: str, options: Options, cores: Samples) -> None:
    """Of a worker alone, in windows of some seconds: first with cuts, then without."""
    for names, age_s in (((_WORKER, _POSTGRES, _BOTH), 0.0), ((None, None, _READING), _NEVER_S)):
        job = _make_job(world, bootstrap, LANES, age_s)
        with start_worker(job) as worker:
            _await_lanes(job, worker, LANES)
            time.sleep(2 * EVERY_S)
            for _run in range(options.runs):
                begun_s, worker_s, log_s = time.monotonic(), worker.cpu_s(), postgres_s(world.server)
                time.sleep(ROUND_S_QUICK if options.quick else ROUND_S)
                used = (worker.cpu_s() - worker_s, postgres_s(world.server) - log_s)
                spent_s = time.monotonic() - begun_s
                for name, value in zip(names, (*used, sum(used)), strict=True):
                    if name is not None:
                        cores.add(name, value / spent_s)
            worker.end()


def _await_lanes(job: SinkJob, worker: JobProcess, lanes: int) -> str:
    """Wait until all lanes have published; returns the worker's run."""
    run_ids: set[str] = set()

    def have_published() -> bool:
        found = job.list_published(_LONG_AGO)
        run_ids.update(each.run_id for each in found)
        return len({each.lane for each in found}) == lanes

    worker.await_that(have_published, f"the first publications of {lanes} lanes")
    (run_id,) = run_ids
    return run_id


def _measure_changes(job: SinkJob, changes: Samples) -> None:
    """A second worker joins, takes its share, and is killed."""
    first = start_worker(job)
    with running([first]):
        first_id = _await_lanes(job, first, LANES)
        second = start_worker(job)
        with running([second]):
            found: list[PublishedVnode] = []

            def is_shared() -> bool:
                found[:] = job.list_published(_LONG_AGO)
                return len({each.lane for each in found if each.run_id != first_id}) == LANES // 2

            second.await_that(is_shared, f"publications of {LANES // 2} lanes by the second worker")
            (second_id,) = {each.run_id for each in found} - {first_id}
            taken = _first_at(found, second_id)
            left = {each.lane: each.done_at.timestamp() for each in found if each.run_id == first_id}
            changes.add(_JOINED, max(taken.values()) - _begun_at(job, second_id))
            changes.add(_GAP, max(at - left[lane] for lane, at in taken.items()))
            time.sleep(2 * EVERY_S)
            killed_at = dt.datetime.now(dt.UTC)
            second.process.kill()
            again: dict[int, float] = {}

            def are_held_again() -> bool:
                again.update(_first_at(job.list_published(killed_at), first_id))
                return taken.keys() <= again.keys()

            first.await_that(are_held_again, "publications of the killed worker's lanes by the other one")
            changes.add(_KILLED, max(again[lane] for lane in taken) - killed_at.timestamp())
        first.end()


def _first_at(published: Sequence[PublishedVnode], run_id: str) -> dict[int, float]:
    """When the run first published of each lane, in seconds since the epoch."""
    found: dict[int, float] = {}
    for each in published:
        if each.run_id == run_id:
            found.setdefault(each.lane, each.done_at.timestamp())
    return found


def _begun_at(job: SinkJob, run_id: str) -> float:
    return float(job.scalar("SELECT extract(epoch FROM started_at) FROM gobblin.run WHERE run_id = :id", id=run_id))


def _measure_recovery(job: SinkJob, changes: Samples) -> None:
    """A worker is killed when all of its lanes have sealed and none is published; the next one completes them."""
    with start_worker(job) as worker:
        _await_lanes(job, worker, OPEN_SEQUENCES)
        worker.end()
    with start_worker(job, failpoint=f"{Failpoint.SEALED_BEFORE_EXECUTE.value}=kill") as killed:
        killed.process.wait(WAIT_S_MAX)
    count = int(job.scalar(_COUNT_OPEN))
    if count != OPEN_SEQUENCES:
        raise RuntimeError(f"{count} of {OPEN_SEQUENCES} sequences are open: {killed.said[-2000:]}")
    open_ = job.scalar(_LIST_OPEN)
    for statement in _EXPIRE:
        job.execute(statement)
    with start_worker(job) as worker:
        worker.await_that(lambda: not int(job.scalar(_COUNT_ENDED, ids=open_)) < count, "the end of all open sequences")
        changes.add(_RECOVERED, float(job.scalar(_RECOVERY_S, ids=open_)))
        worker.end()


def _describe(cores: Samples, changes: Samples) -> Table:
    def row(name: str, values: Samples, key: str, unit: str) -> tuple[str, ...]:
        found = values.by_name[key]
        return (name, *(f"{value:.2f} {unit}" for value in (values.median(key), min(found), max(found))))

    rows = (
        *(row(name, cores, name, "cores") for name in cores.by_name),
        row("a worker joins: from its start to publications of all its lanes", changes, _JOINED, "s"),
        row("of these, the longest a lane rests between two publications", changes, _GAP, "s"),
        row("a worker is killed: until all its lanes are published again", changes, _KILLED, "s"),
        row(f"{OPEN_SEQUENCES} open sequences, from the worker's start to the last T3", changes, _RECOVERED, "s"),
    )
    return Table(
        f"{VNODES} vnodes in {LANES} lanes, a cut a second",
        ("", "median", "min", "max"),
        rows,
        (
            f"A record a second in each of {VNODES} partitions; a worker reads all of them. Leases last {TTL_S:.0f} s.",
            (
                "The commit is what a cut a second costs beyond reading; reading alone takes "
                f"{cores.median(_READING):.2f} cores, the worker and Postgres together."
            ),
            f"{OPEN_SEQUENCES} lanes have an open sequence each, of a worker that was killed behind its seal.",
            bound_at_most(
                "commit, worker and Postgres", cores.median(_BOTH) - cores.median(_READING), CORES_MAX, " cores"
            ),
            bound_at_most("hand-over of a lane", changes.median(_GAP), HANDOVER_S_MAX, " s"),
            bound_at_most("lanes of a killed worker", changes.median(_KILLED), KILLED_S_MAX, " s"),
            bound_at_most("recovery", changes.median(_RECOVERED), RECOVERY_S_MAX, " s"),
        ),
    )
