"""Where small runners are tortured: a home with a server, two destinations, their sources, and the logs."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from tests.support.lake import Lake
from tests.torture import isolation
from tests.torture.disturber import Strike, strikes_on_the_disk, strikes_on_the_server
from tests.torture.feeder import Feeder
from tests.torture.observer import Remembered, Subject, Watch
from tests.torture.proxy import Proxies
from tests.torture.row_history import RowDestination, check_rows
from tests.torture.row_watch import RowWatch
from tests.torture.runner_process import Process
from tests.torture.runners import Runners
from tests.torture.schedule import (
    LEASE_TTL_S,
    ON_A_MOUNT,
    Action,
    Injection,
    RunnerPlan,
    plan_calm_runner,
    plan_runner,
)
from tests.torture.server import Victim
from tests.torture.small_runner import TortureLake, start_small_runner
from tests.torture.tally import Tally

TMPFS_SIZE: Final = "48m"
_FIRST_ROWS: Final = 20
FEED_EVERY_S: Final = 0.3
FED_ROWS: Final = (1, 1, 2, 2, 3, 12)


class SmallArena:
    """Begins with the first rows in the sources, nothing published, and no runner.

    ``refused``: why a mount is not possible here; None: it may be possible.
    """

    kind = "small"
    at_work_max = 8
    disturbed_every_s = 7.0
    names = (("orders", "a/b c.Ü", "päge views"), ("clicks", "x.y/z", "customers"))

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self.tally = tally
        self.victim = Victim(home, seed)
        logs = home / "runners"
        logs.mkdir()
        self._lakes = tuple(
            self.make_lake(
                database_url=self.victim.url,
                directory=str(home / name),
                urns=urns,
                lease_ttl_s=LEASE_TTL_S,
                job_name=f"torture_{name}",
            )
            for name, urns in zip(("disk", "small_disk"), self.names, strict=True)
        )
        for lake in self._lakes:
            Path(lake.root).mkdir(parents=True)
            self.fill(lake, random.Random(f"{seed}/{lake.job_name}"))
        self._mount = Path(self._lakes[1].root)
        refused = refused or isolation.mount_tmpfs(self._mount, TMPFS_SIZE)
        self._is_mounted = refused is None
        for injection in ON_A_MOUNT if refused is not None else ():
            tally.skip(injection, f"not done: {refused}")
        self._proxies = Proxies(home, self.victim, seed, tally)
        self.runners = Runners(
            lambda number: self.plan_runner(seed, number),
            self.start,
            self.victim.connect,
            logs,
            tally,
            at_work_max=self.at_work_max,
        )
        self._feeder = self.open_feeder(random.Random(f"{seed}/feeder"))
        self._calm_runners = 0

    @property
    def lakes(self) -> Sequence[Lake]:
        """The lakes with their present addresses: a server that was started again may have another port."""
        return self._lakes

    def make_lake(self, **options: Any) -> Lake:
        """A lake with empty sources."""
        return TortureLake(**options)

    def fill(self, lake: Lake, _dice: random.Random) -> None:
        """Put the first data into its sources."""
        for urn in lake.urns:
            lake.add_rows(urn, _FIRST_ROWS)

    def open_feeder(self, dice: random.Random) -> Feeder:
        return _Lines(self._lakes, dice)

    def plan_runner(self, seed: str, number: int) -> RunnerPlan:
        return plan_runner(seed, number, lakes=len(self.names), datasets=len(self.names[0]))

    def strikes(self) -> Mapping[Injection, Strike]:
        on_the_disk = strikes_on_the_disk(self._mount) if self._is_mounted else {}
        return {**strikes_on_the_server(self.victim), **on_the_disk}

    def acts(self) -> Mapping[Injection, Strike]:
        return {}

    def start(self, plan: RunnerPlan) -> Process:
        lake = replace(self.lakes[plan.lake], database_url=self._proxies.url(plan.route))
        return start_small_runner(plan, lake, self.runners.logs)

    def plan_rest(self) -> Sequence[RunnerPlan]:
        return [self.plan_calm(Action.APPEND, number) for number in range(len(self._lakes))]

    def plan_resume(self) -> RunnerPlan:
        return self.plan_calm(Action.RESUME, 0)

    def feed(self) -> None:
        self._feeder.start()

    def stop_feeding(self) -> None:
        self._feeder.stop()

    def mend(self) -> None:
        self._proxies.calm_down()

    def subjects(self) -> Sequence[Subject]:
        return [Subject(lake.job_name, urn) for lake in self._lakes for urn in lake.urns]

    def watch(self) -> Watch:
        return RowWatch(self.tally)

    def judge(self, seen: Remembered) -> None:
        destinations = [
            RowDestination(
                job=lake.job_name,
                work=Path(lake.root, lake.job_name),
                events=lake.events,
                acknowledged=lake.acknowledged,
                root=Path(lake.root),
                sources={Subject(lake.job_name, urn): Counter(lake.source_rows(urn)) for urn in lake.urns},
            )
            for lake in self.lakes
        ]
        check_rows(self.victim.connect, destinations, seen, self.tally)

    def close(self, *, keep: bool) -> None:
        """Stop the feeder, the proxies and the server. With ``keep``, copy the mounted files before the unmount."""
        self._feeder.stop()
        self._proxies.close()
        self.victim.stop()
        if self._is_mounted:
            if keep:
                shutil.copytree(self._mount, self._mount.with_name("lake as it was"), symlinks=True)
            isolation.unmount(self._mount)

    def plan_calm(self, action: Action, lake: int) -> RunnerPlan:
        self._calm_runners += 1
        return plan_calm_runner(self._calm_runners, action, lake=lake, datasets=len(self._lakes[lake].urns))


class _Lines(Feeder):
    """Adds rows to the sources, a few at a time, sometimes many."""

    def __init__(self, lakes: Sequence[Lake], dice: random.Random) -> None:
        super().__init__(FEED_EVERY_S)
        self._lakes = lakes
        self._dice = dice
        self._lengths = {urn: _FIRST_ROWS for lake in lakes for urn in lake.urns}

    def add_some(self) -> None:
        lake = self._dice.choice(self._lakes)
        urn = self._dice.choice(lake.urns)
        start, count = self._lengths[urn], self._dice.choice(FED_ROWS)
        self._lengths[urn] += count
        lines = (json.dumps([number, f"{urn}-{number}"]) for number in range(start, start + count))
        with lake.source_of(urn).open("a", encoding="utf-8") as out:
            out.write("".join(f"{line}\n" for line in lines))
