"""A sink for the figures: its job file, its workers as processes of the command line, and what the log says of them.

A worker that counts its own processor seconds, without its imports, is a process of ``sink_child``.
"""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sqlalchemy import text

from benchmarks.kafka_world import describe_topics
from benchmarks.process_times import tree_s
from benchmarks.world import World, new_job
from gobblin_assets.db.embedded import EmbeddedServer

WAIT_S_MAX = 180.0
END_S_MAX = 60.0
POLL_S = 0.1
DELIVERED_S_MAX = 30.0

_FOREIGN = ("DAGSTER_HOME", "GOBBLIN_DATABASE_URL", "GOBBLIN_FAILPOINT")

_PUBLISHED = text("""
    SELECT s.sequence_id, s.run_id::text AS run_id, l.number AS lane, s.done_at, s.row_count,
           s.details ->> 'barrier_at' AS barrier_at, k.name AS vnode, (m.new_watermark ->> 'value')::bigint AS upto
      FROM gobblin.commit_sequence s
      JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.lane l USING (lane_id)
      JOIN gobblin.planned_move m USING (sequence_id)
      JOIN gobblin.watermark_key k USING (key_id)
     WHERE d.job = :job AND s.state = 'DONE' AND s.done_at > :after
     ORDER BY s.done_at, s.sequence_id
""")

_WATERMARKS = text("""
    SELECT coalesce(sum((k.watermark ->> 'value')::bigint), 0)
      FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id) WHERE d.job = :job
""")


@dataclass(frozen=True, slots=True)
class PublishedVnode:
    """What one publication did to one vnode. ``barrier_at`` None: it is not a sink's."""

    run_id: str
    lane: int
    vnode: str
    upto: int
    done_at: dt.datetime
    row_count: int
    barrier_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class SinkJob:
    """A job in a file of its own. ``source``: variables of the environment that say where its log is."""

    world: World
    name: str
    file: Path
    source: Mapping[str, str]

    def count_published(self) -> int:
        """Records up to the watermarks, over all partitions."""
        with self.world.engine.connect() as connection:
            return int(connection.execute(_WATERMARKS, {"job": self.name}).scalar_one())

    def list_published(self, after: dt.datetime) -> list[PublishedVnode]:
        with self.world.engine.connect() as connection:
            rows = connection.execute(_PUBLISHED, {"job": self.name, "after": after}).all()
        return [
            PublishedVnode(
                row.run_id,
                row.lane,
                row.vnode,
                row.upto,
                row.done_at,
                row.row_count,
                None if row.barrier_at is None else dt.datetime.fromisoformat(row.barrier_at),
            )
            for row in rows
        ]

    def scalar(self, query: str, **values: Any) -> Any:
        with self.world.engine.connect() as connection:
            return connection.execute(text(query), {"job": self.name, **values}).scalar_one()

    def execute(self, statement: str) -> None:
        with self.world.engine.begin() as connection:
            connection.execute(text(statement))


def make_job(world: World, bootstrap: str, topic: str, kafka: Mapping[str, Any], **options: Any) -> SinkJob:
    """A job over one topic."""
    described = describe_topics(world.destination, new_job(), [{"topic": topic, "kafka": dict(kafka)}], **options)
    return write_job(world, described, {"GOBBLIN_KAFKA_BENCH_BOOTSTRAP_SERVERS": bootstrap})


def write_job(world: World, described: Mapping[str, Any], source: Mapping[str, str]) -> SinkJob:
    file = world.home / f"{described['job']}.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(described), encoding="utf-8")
    return SinkJob(world, described["job"], file, source)


def _environment_of(world: World, variables: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that works with the world's log."""
    own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return {**own, "GOBBLIN_HOME": str(world.home), **variables}


class JobProcess:
    """A command on a job, in a process of its own, which is killed at the end of the block ``with``."""

    def __init__(self, job: SinkJob, *arguments: str, variables: Mapping[str, str] | None = None) -> None:
        self._log = job.file.with_suffix(f".{time.monotonic_ns()}.log")
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gobblin_assets.cli", *arguments],
                env=_environment_of(job.world, {**job.source, **(variables or {})}),
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_S_MAX)

    @property
    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def cpu_s(self) -> float:
        return tree_s(self.process.pid)

    def end(self) -> None:
        """RuntimeError unless it ends well."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(END_S_MAX):
            raise RuntimeError(f"it ended with {self.process.returncode}: {self.said[-2000:]}")

    def await_that(self, is_met: Callable[[], bool], what: str) -> None:
        """Wait while it works. RuntimeError if it ends, or if it takes too long."""
        until_s = time.monotonic() + WAIT_S_MAX
        while not is_met():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"{what} did not come: {self.said[-2000:]}")
            time.sleep(POLL_S)


def start_worker(job: SinkJob, *, failpoint: str | None = None) -> JobProcess:
    variables = None if failpoint is None else {"GOBBLIN_FAILPOINT": failpoint}
    return JobProcess(job, "sink", "run", str(job.file), variables=variables)


def start_child(world: World, variables: Mapping[str, str], order: Mapping[str, str]) -> "subprocess.Popen[str]":
    """A process of ``sink_child``."""
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink_child"],
        env=_environment_of(world, variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(order))
    child.stdin.close()
    child.stdin = None
    return child


def end_of(child: "subprocess.Popen[str]") -> tuple[float, float]:
    """Seconds of its processor, and of the clock."""
    said, errors = child.communicate(timeout=WAIT_S_MAX)
    if child.returncode:
        raise RuntimeError(f"the copy failed: {errors[-2000:]}")
    cpu_s, wall_s = json.loads(said.splitlines()[-1])
    return cpu_s, wall_s


def work_until(job: SinkJob, is_met: Callable[[], bool], what: str) -> tuple[float, float]:
    """Seconds of a worker's processor, and of the clock, from the end of its imports until it has ended behind that."""
    with start_child(job.world, job.source, {"job_file": str(job.file)}) as child:
        until_s = time.monotonic() + WAIT_S_MAX
        while not is_met():
            if child.poll() is not None or time.monotonic() > until_s:
                child.kill()
                raise RuntimeError(f"{what} did not come: {child.communicate()[1][-2000:]}")
            time.sleep(POLL_S)
        child.terminate()
        return end_of(child)


def postgres_s(server: EmbeddedServer) -> float:
    """Processor seconds of a server so far."""
    pid = int((server.data_directory / "postmaster.pid").read_text(encoding="utf-8").split()[0])
    return tree_s(pid)


@contextmanager
def running(processes: Sequence[JobProcess]) -> Iterator[None]:
    """End all of them, however the block ends."""
    try:
        yield
    finally:
        for each in processes:
            each.__exit__()


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as this share of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def bound_at_most(name: str, found: float, allowed: float, unit: str = "") -> str:
    return f"{name}: {found:.3f}{unit}, bound ≤ {allowed:g}{unit}: {'kept' if found <= allowed else '**missed**'}."


def bound_at_least(name: str, found: float, needed: float, unit: str = "") -> str:
    return f"{name}: {found:.3f}{unit}, bound ≥ {needed:g}{unit}: {'kept' if found >= needed else '**missed**'}."
