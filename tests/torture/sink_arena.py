"""Where a sink is tortured: a Kafka broker, a Postgres for the log, one destination, workers that come and go."""

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Final

from demo.kafka.broker import start_broker
from gobblin_assets.commit.published.verification import Verification, VerificationProgress
from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from tests.support.producing import published_facts
from tests.torture import isolation
from tests.torture.disturber import Strike, strikes_on_the_broker, strikes_on_the_disk, strikes_on_the_server
from tests.torture.history import Destination, check_history, check_log
from tests.torture.observer import Remembered, Subject, Watch
from tests.torture.proxy import Proxies
from tests.torture.row_history import check_storage
from tests.torture.row_watch import find_active
from tests.torture.runner_process import Process
from tests.torture.runners import Runners
from tests.torture.schedule import ON_A_MOUNT, Action, Injection, RunnerPlan, plan_calm_runner, plan_sink_runner
from tests.torture.server import Victim
from tests.torture.sink_runner import JOB, SinkSite, start_sink_runner
from tests.torture.sink_topics import SinkTopics
from tests.torture.sink_watch import SinkWatch
from tests.torture.tally import Tally

TOPICS: Final = ("orders", "clicks")
TMPFS_SIZE: Final = "128m"
WORKERS: Final = (4, 7, 2)
LANES: Final = (1, 3, 4, 7)


class SinkArena:
    """Begins with the first records in the topics, nothing published, and no worker.

    ``refused``: why a mount is not possible here; None: it may be possible.
    """

    kind = "sink"
    at_work_max = WORKERS[0]
    disturbed_every_s = 6.0

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self.tally = tally
        self._broker = start_broker(home / "kafka")
        self.victim = Victim(home, seed)
        self._home = home
        logs = home / "runners"
        logs.mkdir()
        self._mount = Path(self._site().root)
        self._mount.mkdir()
        refused = refused or isolation.mount_tmpfs(self._mount, TMPFS_SIZE)
        self._is_mounted = refused is None
        for injection in ON_A_MOUNT if refused is not None else ():
            tally.skip(injection, f"not done: {refused}")
        self._proxies = Proxies(home, self.victim, seed, tally)
        self.runners = Runners(
            lambda number: plan_sink_runner(seed, number, datasets=len(TOPICS)),
            self.start,
            self.victim.connect,
            logs,
            tally,
            at_work_max=self.at_work_max,
        )
        self._topics = SinkTopics(self._broker.bootstrap, TOPICS, seed, tally)
        self._dice = random.Random(f"{seed}/lanes")
        self._worker_counts = cycle((*WORKERS[1:], WORKERS[0]))
        self._calm_runners = 0

    def _site(self) -> SinkSite:
        """With the present addresses: a server that was started again may have another port."""
        return SinkSite(str(self._home), self.victim.url, self._broker.bootstrap, TOPICS)

    def strikes(self) -> Mapping[Injection, Strike]:
        return {
            **strikes_on_the_server(self.victim),
            **(strikes_on_the_disk(self._mount) if self._is_mounted else {}),
            **strikes_on_the_broker(self._broker),
            Injection.LANES_CHANGED: self._change_lanes,
            Injection.WORKERS_DRAINED: self._drain,
        }

    def acts(self) -> Mapping[Injection, Strike]:
        return {}

    def start(self, plan: RunnerPlan) -> Process:
        return start_sink_runner(
            plan, replace(self._site(), database_url=self._proxies.url(plan.route)), self.runners.logs
        )

    def plan_rest(self) -> Sequence[RunnerPlan]:
        return [self._plan_calm(Action.STREAM)]

    def plan_resume(self) -> RunnerPlan:
        return self._plan_calm(Action.RESUME)

    def feed(self) -> None:
        self._topics.start()

    def stop_feeding(self) -> None:
        self._topics.stop()

    def mend(self) -> None:
        self._proxies.calm_down()

    def subjects(self) -> Sequence[Subject]:
        return [Subject(JOB, topic) for topic in TOPICS]

    def watch(self) -> Watch:
        return SinkWatch(self.tally)

    def judge(self, seen: Remembered) -> None:
        work = self._mount / JOB
        engine = open_external(self.victim.url)
        try:
            stores = open_stores(engine)
            states = stores.datasets.load(JobName(JOB), [DatasetUrn(topic) for topic in TOPICS])
            for topic in TOPICS:
                self._judge_topic(stores, states.get(DatasetUrn(topic)), topic)
        finally:
            engine.dispose()
        with self.victim.connect() as connection:
            visible = [path for subject in self.subjects() for path in find_active(connection, subject)[1]]
            check_storage(JOB, self._mount, visible, self.tally)
            check_history(connection, Destination(JOB, work, None, None), self.subjects(), seen, self.tally)
            check_log(connection, self.tally)

    def close(self, *, keep: bool) -> None:
        """Stop the writers, the proxies and the servers. With ``keep``, copy the mounted files before the unmount."""
        self._topics.stop()
        self._proxies.close()
        self.victim.stop()
        self._broker.kill()
        if self._is_mounted:
            if keep:
                shutil.copytree(self._mount, self._mount.with_name("lake as it was"), symlinks=True)
            isolation.unmount(self._mount)

    def _judge_topic(self, stores: Stores, state: DatasetState | None, topic: str) -> None:
        """The topic is the dataset, as multisets, and the files of the ledger are whole."""
        sent, found = self._topics.facts(topic), published_facts(stores, JOB, topic)
        self.tally.add("records at the source", sent.total())
        self.tally.add("records published", found.total())
        missing, extra = sent - found, found - sent
        if missing or extra or state is None:
            self.tally.violate(
                f"{topic}: {missing.total()} records are missing, such as {[*missing][:3]}; {extra.total()} are too "
                f"many, such as {[*extra][:3]}"
            )
            return
        self._verify(stores, state, topic)

    def _verify(self, stores: Stores, state: DatasetState | None, topic: str) -> None:
        """The files of the ledger are whole."""
        if state is None:
            self.tally.violate(f"{topic}: nothing is known of it")
            return
        verification = Verification(
            store=stores.commits,
            published=stores.published,
            open_file_system=open_file_system,
            destination=self._site().root,
            job=JobName(JOB),
            progress=VerificationProgress(SystemClock(), lambda _line: None),
        )
        verified = verification.verify(DatasetUrn(topic), state.dataset_id, checksums=True)
        for fault in verified.faults:
            self.tally.violate(f"{topic}: {fault}")

    # Disturbances ---------------------------------------------------------------------------------------

    def _change_lanes(self, _lasts_s: float) -> bool:
        self.runners.at_work_max = next(self._worker_counts)
        count = self._dice.choice(LANES)
        return self._ask(lambda stores: self._spread(stores, count))

    def _drain(self, _lasts_s: float) -> bool:
        return self._ask(lambda stores: stores.sink_workers.drain(JobName(JOB)))

    def _ask(self, act: Callable[[Stores], object]) -> bool:
        """Whether the log answered."""
        engine = open_external(self.victim.url)
        try:
            act(open_stores(engine))
        except GobblinError:
            return False
        finally:
            engine.dispose()
        return True

    def _spread(self, stores: Stores, count: int) -> None:
        states = stores.datasets.load(JobName(JOB), [DatasetUrn(topic) for topic in TOPICS])
        for state in states.values():
            stores.lanes.spread(state.dataset_id, count)

    def _plan_calm(self, action: Action) -> RunnerPlan:
        self._calm_runners += 1
        return plan_calm_runner(self._calm_runners, action, lake=0, datasets=len(TOPICS))
