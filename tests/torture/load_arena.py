"""Where sinks that load rows are tortured: the arena of a sink, and a stranger at its topics and its destination."""

import json
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gobblin_assets.db.engine import open_external
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.producing import find_ends, published_facts, watermarks_of
from tests.torture import children
from tests.torture.commands import Commands
from tests.torture.disturber import Strike
from tests.torture.history import Destination, check_history, check_log
from tests.torture.load_person import LoadPerson
from tests.torture.load_stranger import LoadStranger, in_turns
from tests.torture.loaded_places import IcebergPlace, KafkaPlace, LoadedPlace, PostgresPlace
from tests.torture.mutants import ACTS_OF, become
from tests.torture.observer import Remembered
from tests.torture.person import Sayings
from tests.torture.row_history import check_storage
from tests.torture.row_watch import find_active
from tests.torture.runners import RUNNER_S_MAX
from tests.torture.schedule import Action, Injection, RunnerPlan
from tests.torture.sink_arena import TOPICS, SinkArena
from tests.torture.sink_runner import JOB, PARTITIONS, SinkSite
from tests.torture.tally import Tally
from tests.torture.topic_account import TopicAccount, find_newest
from tests.torture.troubles import hear_of_topics


@dataclass(frozen=True)
class LoadSite(SinkSite):
    """``into``: where rows go. ``variables``: how a worker reaches it. ``mutant``: the fault that workers have."""

    into: Mapping[str, Any] = field(kw_only=True)
    variables: Mapping[str, str] = field(kw_only=True)
    mutant: str = field(kw_only=True)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**super().environment, **self.variables}

    def job(self) -> JobSpec:
        become(self.mutant)
        return super().job()

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        for dataset in described["datasets"]:
            dataset["kafka"]["reset_on_out_of_range"] = "fail"
        described["sink"]["into"] = dict(self.into)
        return described

    def is_published(self, stores: Stores) -> bool:
        """By the newest key of each partition."""
        for topic in self.topics:
            marks, ends = watermarks_of(stores, JOB, topic), find_ends(self.bootstrap, topic, PARTITIONS)
            if {str(key.partition): marks[str(key)] for key in find_newest(marks).values()} != ends:
                return False
        return True


class LoadArena(SinkArena):
    """``into``: a type of ``sink.into``. ``mutant``: the fault that workers have on purpose; empty: none."""

    disturbed_every_s = 9.0

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None, into: str, mutant: str) -> None:
        self.kind = f"sink-{into}"
        self._mutant = mutant
        self._place: LoadedPlace | None = None
        super().__init__(home, seed, tally, refused)
        self._place = self._open_place(into)
        self._calm = threading.Lock()
        self._accounts = {topic: TopicAccount() for topic in TOPICS}
        self._sayings = Sayings(self.runners.logs, hear_of_topics, tally)
        self._commands = Commands(home, self._variables)
        self._person = LoadPerson(
            self._commands,
            self._sayings,
            self._place,
            self._topics,
            self._accounts,
            self._open_stores,
            self.victim.connect,
            self.runners.held,
            self._write_job,
            random.Random(f"{seed}/person"),
            tally,
        )
        self._stranger = LoadStranger(
            self._broker,
            self._topics,
            self._place,
            self._person,
            self._sayings,
            self._accounts,
            self._open_stores,
            self._calm,
            random.Random(f"{seed}/stranger"),
        )

    def _variables(self) -> Mapping[str, str]:
        return {**self._site().environment, "GOBBLIN_DATABASE_URL": self.victim.url}

    def _open_place(self, into: str) -> LoadedPlace:
        match into:
            case "postgres":
                return PostgresPlace(self.victim)
            case "iceberg":
                return IcebergPlace(self.victim, self._home / "warehouse")
            case _:
                return KafkaPlace(self._broker.bootstrap)

    def _site(self) -> SinkSite:
        site, place = super()._site(), self._place
        if place is None:
            return site
        return LoadSite(
            *(site.home, site.database_url, site.bootstrap, site.topics),
            into=place.into,
            variables=place.variables(),
            mutant=self._mutant,
        )

    def strikes(self) -> Mapping[Injection, Strike]:
        return in_turns(super().strikes(), self._calm)

    def acts(self) -> Mapping[Injection, Strike]:
        strikes = self._stranger.strikes()
        return {act: strikes[act] for act in strikes if act in ACTS_OF.get(self._mutant, strikes)}

    def plan_rest(self) -> Sequence[RunnerPlan]:
        """Once the person has done what was said."""
        with self._person.looking_away():
            return [self._plan_calm(Action.STREAM)]

    def feed(self) -> None:
        """Once the first rows are at the destination: a stranger finds something to take away from the beginning."""
        children.join(self.start(self._plan_calm(Action.STREAM)), RUNNER_S_MAX)
        super().feed()
        self._person.start()

    def stop_feeding(self) -> None:
        # Each act is met by something that has to be loaded.
        self._topics.send_everywhere()
        super().stop_feeding()

    def judge(self, seen: Remembered) -> None:
        self._person.stop()
        self._sayings.judge()
        for topic, trouble in self._person.troubles.items():
            self.tally.violate(f"{topic}: what was said did not help, or nothing was said: {trouble.act}")
        with self._open_stores() as stores:
            for topic in TOPICS:
                self._judge_loads(stores, topic)
        if not self._commands.run("verify", str(self._write_job())):
            self.tally.violate(f"verify finds faults: see person.txt in {self._home}")
        gaps = {gap for account in self._accounts.values() for gap in account.list_gaps()}
        with self.victim.connect() as connection:
            visible = [path for subject in self.subjects() for path in find_active(connection, subject)[1]]
            check_storage(JOB, self._mount, visible, self.tally)
            destination = Destination(JOB, self._mount / JOB, None, None)
            check_history(connection, destination, self.subjects(), seen, self.tally, gaps)
            check_log(connection, self.tally)

    def close(self, *, keep: bool) -> None:
        self._person.stop()
        super().close(keep=keep)

    def _judge_loads(self, stores: Stores, topic: str) -> None:
        assert self._place is not None
        account, bootstrap = self._accounts[topic], self._broker.bootstrap
        marks, ends = watermarks_of(stores, JOB, topic), find_ends(bootstrap, topic, PARTITIONS)
        wanted, wrong = account.expect(marks, self._topics.facts(topic), ends)
        for each in wrong:
            self.tally.violate(each)
        found = published_facts(stores, JOB, topic) + self._place.rows(topic)
        self.tally.add("records that had to be published", wanted.total())
        self.tally.add("records published", found.total())
        self.tally.add("records that went with their place", account.destroyed.total())
        self.tally.add("records that may have gone with their place", account.doubted.total())
        missing, extra = account.compare(wanted, found)
        if missing or extra:
            self.tally.violate(
                f"{topic}: {missing.total()} records are missing, such as {[*missing][:3]}; {extra.total()} are too "
                f"many, such as {[*extra][:3]}"
            )
        self._verify(stores, stores.datasets.load(JobName(JOB), [DatasetUrn(topic)]).get(DatasetUrn(topic)), topic)

    @contextmanager
    def _open_stores(self) -> Iterator[Stores]:
        engine = open_external(self.victim.url)
        try:
            yield open_stores(engine)
        finally:
            engine.dispose()

    def _write_job(self) -> Path:
        path = self._home / f"{JOB}.yaml"
        path.write_text(json.dumps(self._site().describe()), encoding="utf-8")
        return path
