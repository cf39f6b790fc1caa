"""A worker of a sink over topics, or a person beside it, in a process of its own."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from sqlalchemy import Engine

from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.sink.running import open_worker, read_sink_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import RunId
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import JobSpec
from gobblin_assets.state.leases import Holder
from tests.support.producing import dataset_of, find_ends, watermarks_of
from tests.torture import children
from tests.torture.runner_process import FORKS, Ending, Lines, Process, live
from tests.torture.schedule import LEASE_TTL_S, Action, RunnerPlan
from tests.torture.small_runner import operate

JOB: Final = "sink"
PARTITIONS: Final = 6
"""Of each topic."""

_EVERY_S: Final = 0.3
_ROLL_S: Final = 0.6
# A calm worker takes all lanes and cleans, and then works up to the ends of the topics.
_CALM_S: Final = (2.0, 90.0)
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True)
class SinkSite:
    """The paths and addresses of the arena, sent to workers unchanged."""

    home: str
    database_url: str
    bootstrap: str
    topics: tuple[str, ...]

    @property
    def root(self) -> str:
        return f"{self.home}/lake"

    @property
    def environment(self) -> Mapping[str, str]:
        return {"GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS": self.bootstrap}

    def job(self) -> JobSpec:
        return parse_job(self.describe())

    def describe(self) -> dict[str, Any]:
        """The job file."""
        return {
            "job": JOB,
            "source": {"type": "kafka", "connection": "shop"},
            "destination": self.root,
            "datasets": [dataset_of(topic) for topic in self.topics],
            "lease": {"ttl_s": LEASE_TTL_S},
            "retire_grace_s": 0,
            "log": {"fold_keep": 10, "fold_min": 5, "fold_age_s": 5},
            "sink": {"lanes": 4, "every_s": _EVERY_S, "roll": {"age_s": _ROLL_S}},
        }

    def is_published(self, stores: Stores) -> bool:
        """Whether all vnodes are published up to the ends of the topics."""
        return all(
            watermarks_of(stores, JOB, topic) == find_ends(self.bootstrap, topic, PARTITIONS) for topic in self.topics
        )


class WorkSite(Protocol):
    """What a worker's process is told. ``environment``: its variables."""

    @property
    def database_url(self) -> str: ...

    @property
    def environment(self) -> Mapping[str, str]: ...

    def job(self) -> JobSpec: ...

    def is_published(self, stores: Stores) -> bool:
        """Whether all that is at the source is published."""
        ...


def start_sink_runner(plan: RunnerPlan, site: WorkSite, logs: Path) -> Process:
    return children.start(FORKS.Process(target=_work, args=(plan, site, logs)))


def _work(plan: RunnerPlan, site: WorkSite, logs: Path) -> None:
    stopping = threading.Event()
    if plan.action is Action.STREAM:
        signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
    os.environ.update(site.environment)
    live(plan, logs, lambda: _act(plan, site, stopping))


def _act(plan: RunnerPlan, site: WorkSite, stopping: threading.Event) -> Ending:
    job, lines = site.job(), Lines()
    engine = open_external(site.database_url)
    stores = open_stores(engine)
    if plan.action is not Action.STREAM:
        return operate(plan, stores.commits, _operations(plan, stores))
    ending = _Ending(site, engine, stopping, is_calm=plan.end_after_s is None)
    with open_worker(job, read_sink_datasets(job), stores, ending.wait, lines.append, SparkEngine()) as worker:
        worker.run()
    if ending.is_late or (ending.is_calm and not ending.is_reached):
        return Ending.FAILED
    return Ending.COMMITTED if any(worker._progress.figures.values()) else Ending.NOTHING


class _Ending:
    """When a worker ends: it is told to, or it is a calm one and has published everything (``is_reached``).

    A calm one that a person ended before has not done its work.
    """

    def __init__(self, site: WorkSite, engine: Engine, stopping: threading.Event, *, is_calm: bool) -> None:
        self.is_late = self.is_reached = False
        self._site = site
        self._stores = open_stores(engine)
        self._stopping = stopping
        self.is_calm = is_calm
        self._begun = self._looked = time.monotonic()

    def wait(self, seconds: float) -> bool:
        return self._stopping.wait(seconds) or (self.is_calm and self._is_over())

    def _is_over(self) -> bool:
        now = time.monotonic()
        least, most = _CALM_S
        self.is_late = now - self._begun > most
        if now - self._begun < least or now - self._looked < _LOOK_EVERY_S:
            return self.is_late
        self._looked = now
        with suppress(GobblinError):
            self.is_reached = self._site.is_published(self._stores)
        return self.is_reached or self.is_late


def _operations(plan: RunnerPlan, stores: Stores) -> LogOperations:
    clock = SystemClock()
    return LogOperations(
        store=stores.commits,
        leases=stores.leases,
        open_file_system=open_file_system,
        interrupt=lambda _attempt: None,
        clock=clock,
        holder=Holder(f"torture:{plan.number}", RunId(clock.new_id())),
        say=Lines().append,
        lease_ttl_s=LEASE_TTL_S,
    )
