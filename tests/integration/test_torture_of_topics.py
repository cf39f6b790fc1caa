"""The arena of topics under test: its producer loses and doubles nothing, and a lost or doubled record is reported."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from demo.kafka.broker import KafkaBroker, start_broker
from tests.support.kafka import produce
from tests.support.spark import wait_until
from tests.support.topics import JOB, Ingestion, Open
from tests.torture.observer import Observer, Remembered, Subject
from tests.torture.row_history import RowDestination, check_rows
from tests.torture.row_watch import RowWatch, find_active, rows_below
from tests.torture.spark_runner import EventsFile
from tests.torture.tally import Tally
from tests.torture.test_history import change_rows, connect_to, double_a_row, drop_a_row
from tests.torture.topic_log import TopicLog
from tests.torture.topic_runner import SCHEMA

Change = Callable[[pa.Table], pa.Table]


def await_records(tally: Tally) -> None:
    before = tally.of("records produced")
    wait_until(lambda: tally.of("records produced") > before, "more records")


@pytest.mark.thorough
def test_a_broker_that_is_killed_costs_the_producer_nothing(tmp_path: Path) -> None:
    tally = Tally()
    with start_broker(tmp_path) as broker:
        log = TopicLog(broker.bootstrap, ["orders", "clicks"], "any", tally)
        log.start()
        for _ in range(2):
            await_records(tally)
            broker.kill()
            broker.restart()
        log.stop()

        found = {urn: log.rows(urn) for urn in ("orders", "clicks")}

    assert found == {urn: rows_below(Subject(JOB, urn), rows.total()) for urn, rows in found.items()}
    assert sum(rows.total() for rows in found.values()) == tally.of("records produced")
    assert tally.violations == []


class Published:
    """A topic with records, all of which are published once."""

    def __init__(self, folder: Path, broker: KafkaBroker, ingest: Open) -> None:
        self.subject = Subject(JOB, f"orders-{uuid.uuid4().hex[:6]}")
        self.bootstrap = broker.bootstrap
        self.tally = Tally()
        self.log = TopicLog(broker.bootstrap, [self.subject.urn], "any", self.tally)
        self.events = folder / "events.log"
        self.ingestion: Ingestion = ingest({"topic": self.subject.urn, "kafka": SCHEMA}, events=EventsFile(self.events))
        assert not self.ingestion.run().failed
        self.connect = connect_to(self.ingestion.database_url)

    def judge(self) -> str:
        root = Path(self.ingestion.root)
        sources = {self.subject: self.log.rows(self.subject.urn)}
        destination = RowDestination(JOB, root / JOB, self.events, self.events, root, sources)
        check_rows(self.connect, [destination], Remembered({}, {}), self.tally)
        return "\n".join(self.tally.violations)

    def change(self, change: Change) -> None:
        with self.connect() as connection:
            _position, paths = find_active(connection, self.subject)
        change_rows(next(iter(paths)), change)


@pytest.fixture
def published(tmp_path: Path, kafka_broker: KafkaBroker, ingest: Open) -> Published:
    return Published(tmp_path, kafka_broker, ingest)


DAMAGES = pytest.mark.parametrize(
    ("change", "said"), [(drop_a_row, "1 rows are missing"), (double_a_row, "1 rows are too many")]
)


def test_what_is_published_once_has_no_differences(published: Published) -> None:
    assert published.judge() == ""


@DAMAGES
def test_a_record_that_is_lost_or_doubled_is_said(published: Published, change: Change, said: str) -> None:
    published.change(change)

    assert f"is not exactly its source: {said}" in published.judge()


def test_a_record_behind_the_watermark_is_said(published: Published) -> None:
    produce(published.bootstrap, published.subject.urn, [b'{"number": 60, "value": "stray"}'])

    assert "is not exactly its source: 1 rows are missing" in published.judge()


@DAMAGES
def test_an_observer_sees_it_at_once(published: Published, change: Change, said: str) -> None:
    observer = Observer(published.connect, [published.subject], RowWatch(published.tally), published.tally)
    wait_until(lambda: published.tally.of("samples") > 0, "a sample")
    assert published.tally.violations == []

    published.change(change)

    wait_until(lambda: bool(published.tally.violations), "what the observer says")
    observer.stop()
    assert said in "\n".join(published.tally.violations)
