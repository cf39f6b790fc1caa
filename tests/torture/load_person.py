"""The person beside workers that load rows: does what they say is to be done, once for each act of a stranger.

Ends the workers first where the product asks for it, and says what the destination holds where no mark says it.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import psycopg
import pyarrow.parquet as pq
from confluent_kafka import KafkaException
from sqlalchemy.exc import SQLAlchemyError

from gobblin_assets.commit.sequence import SequenceRecord
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.stores import Stores
from tests.support.producing import Facts, find_ends, watermarks_of
from tests.torture.commands import Commands
from tests.torture.feeder import Feeder
from tests.torture.loaded_places import IcebergPlace, LoadedPlace, PostgresPlace
from tests.torture.observer import Connection
from tests.torture.person import Sayings
from tests.torture.schedule import Injection
from tests.torture.sink_runner import JOB, PARTITIONS
from tests.torture.sink_topics import SinkTopics
from tests.torture.tally import Tally
from tests.torture.topic_account import Marks, TopicAccount, take_between
from tests.torture.troubles import REMEDY_OF, Trouble

FAILURES: Final = (GobblinError, KafkaException, SQLAlchemyError, psycopg.Error, OSError)
"""Of a person or a stranger whose servers are away at the moment."""

_EVERY_S: Final = 0.5
_OPEN_MAX: Final = 1_000
_TRIES_MAX: Final = 5
_AGAIN_S: Final = 2.0
_REACHED: Final = """
    SELECT k.name, max((l.high ->> 'value')::bigint)
      FROM gobblin.watermark_key k JOIN gobblin.dataset d USING (dataset_id)
      JOIN gobblin.ledger l ON l.key_id = k.key_id AND l.active AND l.low IS DISTINCT FROM l.high
     WHERE d.job = %s AND d.urn = %s GROUP BY k.name
"""


class LoadPerson(Feeder):
    """``open_stores``: of the log, which must be closed again. ``held``: no worker is started meanwhile."""

    def __init__(
        self,
        commands: Commands,
        sayings: Sayings,
        place: LoadedPlace,
        topics: SinkTopics,
        accounts: Mapping[str, TopicAccount],
        open_stores: Callable[[], AbstractContextManager[Stores]],
        connect: Callable[[], Connection],
        held: Callable[[], AbstractContextManager[None]],
        write_job: Callable[[], Path],
        dice: random.Random,
        tally: Tally,
    ) -> None:
        super().__init__(_EVERY_S)
        self.troubles: dict[str, Trouble] = {}
        self._commands = commands
        self._sayings = sayings
        self._place = place
        self._topics = topics
        self._accounts = accounts
        self._open_stores = open_stores
        self._connect = connect
        self._held = held
        self._write_job = write_job
        self._dice = dice
        self._tally = tally
        self._acting = threading.Lock()

    def add_some(self) -> None:
        """One look: what is said is dealt with. Of what could not be done, workers speak again."""
        with self._acting:
            for named in sorted(self._sayings.listen()):
                kind, topic = named.split()
                trouble = self.troubles.get(topic)
                if trouble is None or REMEDY_OF[trouble.act] != kind:
                    self._tally.add("sayings of what was mended before")
                    continue
                try:
                    is_done = self._deal_with(topic, trouble)
                except FAILURES as error:
                    print(f"{topic}: a person could not deal with {trouble.act}: {error!r}", flush=True)
                    is_done = False
                self._tally.add("troubles that a person ended" if is_done else "troubles that last for now")
                if is_done:
                    del self.troubles[topic]

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """Nothing is dealt with meanwhile."""
        with self._acting:
            yield

    def marks_of(self, topic: str) -> Marks:
        with self._open_stores() as stores:
            return watermarks_of(stores, JOB, topic)

    def _deal_with(self, topic: str, trouble: Trouble) -> bool:
        match trouble.act:
            case Injection.LOG_LOST | Injection.TOPIC_REMADE:
                return self._go_on_elsewhere(topic, trouble)
            case Injection.ROWS_LEFT_OUT:
                return self._drop_trigger(topic)
            case Injection.PLACE_RENAMED if self._dice.random() < 0.5:
                return self._put_back(topic)
            case _:
                return self._adopt(topic, trouble)

    # Positions ------------------------------------------------------------------------------------------

    def _go_on_elsewhere(self, topic: str, trouble: Trouble) -> bool:
        account = self._accounts[topic]
        with self._held():
            if not self._commands.run("sink", "drain", str(self._write_job())):
                return False
            before = self.marks_of(topic)
            for name in account.find_unsaid(before):
                self._tally.violate(f"{name} has begun, and nobody said so")
            asked = ("--dataset", topic, *self._choose_restart(topic, trouble))
            command = ("run", str(self._write_job()), "--no-dagster", *asked)
            recover = ("commit", "recover", "--job-file", str(self._write_job()))
            # What is sealed has to be complete first, as the command says.
            is_done = self._commands.run(*command) or (self._commands.run(*recover) and self._commands.run(*command))
            after = self.marks_of(topic)
            # An answer may be lost: what the log has counts.
            is_done = is_done or after.keys() != before.keys()
            if is_done:
                account.decide(self._find_reached(topic), after)
        return is_done

    def _choose_restart(self, topic: str, trouble: Trouble) -> Sequence[str]:
        if trouble.act is Injection.TOPIC_REMADE:
            return ["--start-over"]
        if self._dice.random() < 0.3:
            return ["--move-to-latest"]
        ends = find_ends(self._topics.bootstrap, topic, PARTITIONS)
        chosen = {number: self._dice.choice((0, 0, 1, ends[f"{topic}:{number}"])) for number in trouble.partitions}
        return [word for number, at in chosen.items() for word in ("--start-at", f"{number}={at}")]

    def _find_reached(self, topic: str) -> Marks:
        with self._connect() as connection:
            return {str(name): int(str(at)) for name, at in connection.execute(_REACHED, [JOB, topic]).fetchall()}

    # Destinations ---------------------------------------------------------------------------------------

    def _drop_trigger(self, topic: str) -> bool:
        assert isinstance(self._place, PostgresPlace)
        self._place.take_all_rows(topic)
        self._resume(topic)
        return True

    def _put_back(self, topic: str) -> bool:
        assert isinstance(self._place, PostgresPlace | IcebergPlace)
        self._place.rename_back(topic)
        self._resume(topic)
        return True

    def _adopt(self, topic: str, trouble: Trouble) -> bool:
        if trouble.act is Injection.PLACE_RENAMED:
            assert isinstance(self._place, PostgresPlace | IcebergPlace)
            trouble = replace(trouble, act=Injection.PLACE_REMOVED, gone=self._place.remove_renamed(topic))
            self.troubles[topic] = trouble
        with self._held():
            if not self._commands.run("sink", "drain", str(self._write_job())):
                return False
            with self._open_stores() as stores:
                staged = self._list_staged(stores, topic)
                marks = watermarks_of(stores, JOB, topic)
            there, doubted = self._place.rows(topic), Facts()
            if not self._place.is_exact and trouble.act is not Injection.MARKS_REMOVED:
                doubted = take_between(self._topics.facts(topic), trouble.marks, marks)
                doubted = sum(staged.values(), doubted) - trouble.gone
            asked = [
                word
                for sequence, rows in staged.items()
                for word in ("--there" if rows and rows <= there else "--missing", sequence)
            ]
            if not self._insist("sink", "adopt", str(self._write_job()), "--dataset", topic, *asked):
                return False
        # Where their marks went with them, rows of what is not complete are loaded again.
        again = Facts() if self._place.marks_apart else sum(staged.values(), Facts())
        self._accounts[topic].give_up(trouble.gone - again, doubted)
        self._resume(topic)
        return True

    def _insist(self, *arguments: str) -> bool:
        """Until the command has done its work, since an answer that was lost tells nobody to ask again."""
        for _try in range(_TRIES_MAX):
            if self._commands.run(*arguments):
                return True
            time.sleep(_AGAIN_S)
        return False

    def _list_staged(self, stores: Stores, topic: str) -> Mapping[str, Facts]:
        """The rows of each sealed publication that is not complete, by its staged files."""
        found: dict[str, Facts] = {}
        for record in self._list_open(stores, topic):
            (sealed,) = stores.commits.load_sealed(record.sequence_id)
            rows = [_read_rows(each.staging_path) for each in sealed.attempts]
            found[str(record.sequence_id)] = sum(rows, Facts())
        return found

    def _list_open(self, stores: Stores, topic: str) -> Sequence[SequenceRecord]:
        listed = stores.commits.list_open(JobName(JOB), limit=_OPEN_MAX)
        return [each for each in listed if each.urn == topic]

    def _resume(self, topic: str) -> None:
        """What is BLOCKED. What is not resumed now, a runner resumes."""
        with self._open_stores() as stores:
            listed = [each for each in self._list_open(stores, topic) if each.state is SequenceState.BLOCKED]
        for each in listed:
            self._commands.run("commit", "resume", str(each.sequence_id))


def _read_rows(staging: str) -> Facts:
    rows = Facts()
    for path in Path(staging).rglob("*.parquet"):
        columns = ["kafka_partition", "kafka_offset", "number"]
        parquet = pq.ParquetFile(path)
        if "number" in parquet.schema_arrow.names:
            table = parquet.read(columns)
            rows.update(zip(*(table[name].to_pylist() for name in columns), strict=True))
    return rows
