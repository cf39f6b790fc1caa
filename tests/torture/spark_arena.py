"""What arenas with Spark have in common: a Postgres, a warm Connect server, one destination, fresh runners."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from gobblin_assets.errors import GobblinError
from gobblin_assets.spark import connect_server
from tests.torture.disturber import Strike, strikes_on_the_server
from tests.torture.observer import Remembered, Subject, Watch
from tests.torture.row_history import RowDestination, check_rows
from tests.torture.row_watch import Rows, RowWatch
from tests.torture.runner_process import Process
from tests.torture.runners import Runners
from tests.torture.schedule import Action, Injection, RunnerPlan, plan_calm_runner, plan_spark_runner
from tests.torture.server import Victim
from tests.torture.spark_runner import Site, start_spark
from tests.torture.tally import Tally


class Source(Protocol):
    """What the runners read, with its writer."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def rows(self, urn: str) -> Rows:
        """All rows, read in another way than the product reads them."""
        ...


class SparkArena(ABC):
    """Begins with the first rows at the source, a warm Spark server, nothing published, and no runner."""

    kind: str
    at_work_max = 3
    disturbed_every_s = 25.0

    def __init__(self, home: Path, seed: str, tally: Tally, urns: Sequence[str]) -> None:
        self.tally = tally
        self.victim = Victim(home, seed)
        self.urns = tuple(urns)
        self.home = home
        logs = home / "runners"
        logs.mkdir()
        self.runners = Runners(
            lambda number: plan_spark_runner(self.kind, seed, number, datasets=len(self.urns)),
            self.start,
            self.victim.connect,
            logs,
            tally,
            at_work_max=self.at_work_max,
        )
        self._calm_runners = 0
        self.source = self.open_source(seed)
        Path(self.site().root).mkdir()
        start_spark(self.site())

    @abstractmethod
    def open_source(self, seed: str) -> Source: ...

    @abstractmethod
    def site(self) -> Site:
        """The site with its present addresses: a server that was started again may have another port."""

    @abstractmethod
    def start(self, plan: RunnerPlan) -> Process: ...

    def strikes(self) -> Mapping[Injection, Strike]:
        return {**strikes_on_the_server(self.victim), Injection.SPARK_KILLED: self._kill_spark}

    def acts(self) -> Mapping[Injection, Strike]:
        return {}

    def plan_rest(self) -> Sequence[RunnerPlan]:
        return [self._plan_calm(Action.APPEND)]

    def plan_resume(self) -> RunnerPlan:
        return self._plan_calm(Action.RESUME)

    def feed(self) -> None:
        self.source.start()

    def stop_feeding(self) -> None:
        self.source.stop()

    @abstractmethod
    def mend(self) -> None:
        """Undo disturbances. Runners start Spark themselves: a start here would wait for one that was stopped in it."""

    def subjects(self) -> Sequence[Subject]:
        return [Subject(self.site().job, urn) for urn in self.urns]

    def watch(self) -> Watch:
        return RowWatch(self.tally)

    def judge(self, seen: Remembered) -> None:
        site = self.site()
        destination = RowDestination(
            job=site.job,
            work=Path(site.root, site.job),
            events=site.events,
            acknowledged=site.acknowledged,
            root=Path(site.root),
            sources={subject: self.source.rows(subject.urn) for subject in self.subjects()},
        )
        check_rows(self.victim.connect, [destination], seen, self.tally)

    def close(self, *, keep: bool) -> None:
        """Stop the source's writer, Spark and the server. The files stay; the caller, who made the home, owns them."""
        self.source.stop()
        with suppress(GobblinError):
            connect_server.stop_connect(self.site().spark_home)
        self.victim.stop()

    def _kill_spark(self, _lasts_s: float) -> bool:
        """Kill the Spark server; the next runner starts another one."""
        try:
            server = connect_server.find(self.site().spark_home)
        except GobblinError:
            return False
        if server is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGKILL)
        return True

    def _plan_calm(self, action: Action) -> RunnerPlan:
        self._calm_runners += 1
        return plan_calm_runner(self._calm_runners, action, lake=0, datasets=len(self.urns))
