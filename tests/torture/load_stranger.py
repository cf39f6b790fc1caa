"""Somebody who has rights at the topics that workers read and at the place that they load, and asks nobody.

Each act takes something away that the workers can't go on without. What was there is noted, so that it is known what
must be published all the same; and the workers have to say what has happened.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from demo.kafka.broker import KafkaBroker
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.sources.kafka.keys import find_positions
from tests.support.kafka import delete_topics, lose_logs, make_topic
from tests.support.producing import find_ends
from tests.torture.disturber import Strike
from tests.torture.load_person import FAILURES, LoadPerson
from tests.torture.loaded_places import IcebergPlace, LoadedPlace, PostgresPlace
from tests.torture.person import Sayings
from tests.torture.schedule import Injection
from tests.torture.sink_runner import JOB, PARTITIONS
from tests.torture.sink_topics import SinkTopics
from tests.torture.stranger import LONGER
from tests.torture.topic_account import TopicAccount
from tests.torture.troubles import REMEDY_OF, Trouble

_MOMENT_S: Final = 0.5
_OTHERS_MAX: Final = 120
"""Records that a partition gets after it has lost its log: fewer than it had, or more."""


class LoadStranger:
    """``calm``: held while servers and brokers are disturbed; an act needs them. One thread acts at a time."""

    def __init__(
        self,
        broker: KafkaBroker,
        topics: SinkTopics,
        place: LoadedPlace,
        person: LoadPerson,
        sayings: Sayings,
        accounts: Mapping[str, TopicAccount],
        open_stores: Callable[[], AbstractContextManager[Stores]],
        calm: threading.Lock,
        dice: random.Random,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._place = place
        self._person = person
        self._sayings = sayings
        self._accounts = accounts
        self._open_stores = open_stores
        self._calm = calm
        self._dice = dice

    def strikes(self) -> Mapping[Injection, Strike]:
        acts: dict[Injection, Callable[[str, float], Trouble | None]] = {
            Injection.LOG_LOST: lambda topic, _lasts_s: self._lose_logs(topic),
            Injection.TOPIC_REMADE: self._remake_topic,
            Injection.PLACE_REMOVED: lambda topic, _lasts_s: self._remove(topic, Injection.PLACE_REMOVED),
            Injection.PLACE_REMADE: lambda topic, _lasts_s: self._remove(topic, Injection.PLACE_REMADE),
        }
        strikes: dict[Injection, Strike] = {}
        place = self._place
        if isinstance(place, PostgresPlace | IcebergPlace):
            acts[Injection.PLACE_RENAMED] = lambda topic, _lasts_s: self._rename(topic, place)
        if isinstance(place, PostgresPlace):
            acts[Injection.ROWS_LEFT_OUT] = lambda topic, _lasts_s: self._leave_rows_out(topic, place)
            strikes[Injection.PLACE_LOCKED] = lambda lasts_s: place.lock(self._choose(), LONGER * lasts_s)
        if place.marks_apart:
            strikes[Injection.MARKS_REMOVED] = lambda _lasts_s: self._remove_marks()
        return {**strikes, **{act: self._acting(strike) for act, strike in acts.items()}}

    def _acting(self, strike: Callable[[str, float], Trouble | None]) -> Strike:
        """At a topic that is not in trouble yet; whether it was done. The workers have to say it from then on."""

        def do(lasts_s: float) -> bool:
            with self._person.looking_away(), self._calm:
                topic = self._choose()
                if topic in self._person.troubles:
                    return False
                try:
                    trouble = strike(topic, lasts_s)
                except FAILURES:
                    return False
                if trouble is not None:
                    self._note(topic, trouble)
            return trouble is not None

        return do

    def _note(self, topic: str, trouble: Trouble) -> None:
        self._person.troubles[topic] = trouble
        self._sayings.expect(trouble.act, [f"{REMEDY_OF[trouble.act]} {topic}"])

    def _choose(self) -> str:
        free = [topic for topic in self._accounts if topic not in self._person.troubles]
        return self._dice.choice(free or list(self._accounts))

    # Sources --------------------------------------------------------------------------------------------

    def _lose_logs(self, topic: str) -> Trouble | None:
        """Of partitions whose positions have a record before them: of others nothing is known (docs/TOPICS.md)."""
        with self._topics.quiet():
            with self._open_stores() as stores:
                urn = DatasetUrn(topic)
                state = stores.datasets.load(JobName(JOB), [urn]).get(urn)
            known = {} if state is None else find_positions(state, topic)
            numbers = [number for number, at in known.items() if at.mark is not None and at.offset > 0]
            if not numbers:
                return None
            chosen = sorted(self._dice.sample(numbers, min(self._dice.choice((1, 1, 2, PARTITIONS)), len(numbers))))
            facts, ends = self._topics.facts(topic), find_ends(self._broker.bootstrap, topic, PARTITIONS)
            self._accounts[topic].lose(chosen, facts, ends)
            lose_logs(self._broker, *(f"{topic}-{number}" for number in chosen))
            for number in chosen:
                self._topics.send_to(topic, number, self._dice.randrange(1, _OTHERS_MAX))
        return Trouble(Injection.LOG_LOST, chosen)

    def _remake_topic(self, topic: str, lasts_s: float) -> Trouble | None:
        if not self._person.marks_of(topic):
            return None
        with self._topics.quiet():
            facts, ends = self._topics.facts(topic), find_ends(self._broker.bootstrap, topic, PARTITIONS)
            delete_topics(self._broker.bootstrap, topic)
            self._accounts[topic].lose(range(PARTITIONS), facts, ends)
            time.sleep(lasts_s)
            make_topic(self._broker.bootstrap, topic, PARTITIONS)
            self._topics.send_to(topic, self._dice.randrange(PARTITIONS), self._dice.randrange(1, _OTHERS_MAX))
        return Trouble(Injection.TOPIC_REMADE)

    # Destinations ---------------------------------------------------------------------------------------

    def _remove(self, topic: str, act: Injection) -> Trouble | None:
        marks = self._person.marks_of(topic)
        if not self._place.rows(topic):
            return None
        gone = self._place.remove(topic, remake=act is Injection.PLACE_REMADE)
        return Trouble(act, marks=marks, gone=gone)

    def _rename(self, topic: str, place: PostgresPlace | IcebergPlace) -> Trouble | None:
        if not place.rows(topic):
            return None
        place.rename(topic)
        return Trouble(Injection.PLACE_RENAMED)

    def _leave_rows_out(self, topic: str, place: PostgresPlace) -> Trouble | None:
        if not place.rows(topic):
            return None
        place.leave_rows_out(topic)
        return Trouble(Injection.ROWS_LEFT_OUT)

    def _remove_marks(self) -> bool:
        """They are of all topics."""
        with self._person.looking_away(), self._calm:
            try:
                if self._person.troubles or not all(map(self._place.rows, self._accounts)):
                    return False
                self._place.remove_marks()
            except FAILURES:
                return False
            for topic in self._accounts:
                self._note(topic, Trouble(Injection.MARKS_REMOVED))
        return True


def in_turns(strikes: Mapping[Injection, Strike], calm: threading.Lock) -> Mapping[Injection, Strike]:
    """The strikes, none of which meets an act of a stranger in the middle."""

    def wait(strike: Strike) -> Strike:
        def do(lasts_s: float) -> bool:
            with calm:
                is_done = strike(lasts_s)
                # A server that lost a backend ends all its sessions, and takes new ones a moment later.
                time.sleep(_MOMENT_S)
            return is_done

        return do

    return {injection: wait(strike) for injection, strike in strikes.items()}
