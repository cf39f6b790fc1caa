"""Topics whose asset partitions are windows of ingestion, on a real broker, a real Spark and a real Postgres."""

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from demo.kafka.broker import KafkaBroker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.job_kind import StartAt
from tests.support.kafka import Record, delete_records, produce
from tests.support.topics import Ingestion, Open

pytestmark = pytest.mark.turns(of=8)

FIRST = dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)
STREAM_S_MAX = 120.0
HOUR = dt.timedelta(hours=1)
MakeTopic = Callable[..., str]


class WindowClock(SystemClock):
    """A clock in the middle of an hour, counted from the first."""

    hour = 0

    def now(self) -> dt.datetime:
        return FIRST + self.hour * HOUR + HOUR / 2


def key_of(hour: int) -> str:
    return (FIRST + hour * HOUR).strftime("%Y-%m-%d-%H:%M")


class Windows:
    """A topic of two partitions with hourly windows, and the records sent to it."""

    def __init__(self, ingest: Open, broker: KafkaBroker, name: str, **kafka: Any) -> None:
        self.clock = WindowClock()
        self.name = name
        self.sent: Counter[str] = Counter()
        self._broker = broker
        dataset = {
            "topic": name,
            "kafka": {"value": {"format": "string"}, "bootstrap_with": "earliest", **kafka},
            "partitions": {"kind": "hourly", "start": "2026-03-01"},
        }
        self.ingestion: Ingestion = ingest(dataset, clock=self.clock)

    def produce(self, hour: int, *texts: str) -> None:
        """Send records whose time lies in the hour, alternately into the two partitions."""
        at_ms = int((FIRST + hour * HOUR + HOUR / 4).timestamp() * 1000)
        records = [Record(each.encode(), None, n % 2, at_ms) for n, each in enumerate(texts)]
        produce(self._broker.bootstrap, self.name, records)
        self.sent.update(texts)

    def run(self, hours: Sequence[int] | None = None, *, now: int, mode: Mode = Mode.AUTO, **more: Any) -> None:
        self.clock.hour = now
        keys = None if hours is None else [key_of(hour) for hour in hours]
        report = self.ingestion.run(mode=mode, partitions=keys, **more)
        assert not report.failed, report.failed

    def refuse(self, hours: Sequence[int], *, now: int) -> str:
        self.clock.hour = now
        (failed,) = self.ingestion.run(partitions=[key_of(hour) for hour in hours]).failed
        assert failed.error_family == "RejectedError"
        return str(failed.error)

    def rows(self) -> Counter[str]:
        return Counter({value: count for (value,), count in self.ingestion.rows(self.name, "value").items()})

    def rows_by_hour(self) -> dict[str, int]:
        """Rows of the active segments, by asset partition."""
        query = text(
            "SELECT g.partition, sum(g.row_count)::int FROM gobblin.segment g JOIN gobblin.commit_sequence s"
            " USING (sequence_id) WHERE g.sealed AND g.retired_by IS NULL AND s.state = 'DONE' GROUP BY g.partition"
        )
        with self.ingestion.engine.connect() as connection:
            return {row.partition: row.sum for row in connection.execute(query)}

    def watermarks(self) -> Mapping[str, str]:
        return self.ingestion.watermarks(self.name)


@pytest.fixture
def windows(ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic) -> Windows:
    return Windows(ingest, kafka_broker, topic("windows", partitions=2))


@pytest.mark.core
def test_windows_are_continued_filled_and_read_again_and_every_record_is_there_once(windows: Windows) -> None:
    name = windows.name
    windows.produce(0, "a0", "a1", "a2")
    windows.run(now=0)
    assert windows.rows_by_hour() == {key_of(0): 3}

    # No run happened at one o'clock.
    windows.produce(1, "b0", "b1")
    windows.produce(2, "c0", "c1", "c2", "c3")
    windows.run([1], now=2)
    assert windows.rows_by_hour() == {key_of(0): 3, key_of(1): 2}
    assert windows.watermarks() == {f"{name}:0": "2", f"{name}:1": "1"}
    assert "the watermarks stay" in windows.ingestion.notes(name)[-1]

    windows.run(now=2)
    assert windows.rows() == windows.sent
    assert windows.rows_by_hour() == {key_of(0): 3, key_of(1): 2, key_of(2): 4}
    assert windows.watermarks() == {f"{name}:0": "5", f"{name}:1": "4"}

    # Late records by their time; they belong to the window that reads them.
    windows.produce(0, "late")
    windows.run(now=3)
    windows.run([0, 1, 3], now=4)
    assert windows.rows() == windows.sent
    assert windows.rows_by_hour() == {key_of(0): 3, key_of(1): 2, key_of(2): 4, key_of(3): 1}
    assert windows.watermarks() == {f"{name}:0": "6", f"{name}:1": "4"}


def test_a_backfill_over_windows_in_one_run_shares_out_what_the_topic_has(windows: Windows) -> None:
    for hour in range(4):
        windows.produce(hour, *(f"{hour}-{number}" for number in range(6)))
    windows.run([3, 1, 0, 2], now=3)
    windows.run(now=3)

    assert windows.rows() == windows.sent
    assert windows.rows_by_hour() == {key_of(hour): 6 for hour in range(4)}
    assert windows.watermarks() == {f"{windows.name}:0": "12", f"{windows.name}:1": "12"}


def test_a_stream_goes_on_in_the_next_window_when_it_begins(windows: Windows) -> None:
    windows.ingestion.options = {"stream": {"publish_every_s": 0.2}}
    windows.produce(0, "a0", "a1", "a2")
    deadline = time.monotonic() + STREAM_S_MAX

    def wait_for_stop(seconds: float) -> bool:
        assert time.monotonic() < deadline, windows.ingestion.lines
        published = windows.rows_by_hour()
        if windows.clock.hour == 0 and published == {key_of(0): 3}:
            windows.clock.hour = 1
            windows.produce(0, "late")
            windows.produce(1, "b0", "b1")
        time.sleep(seconds)
        return published == {key_of(0): 3, key_of(1): 3}

    assert not windows.ingestion.stream(wait_for_stop).failed

    assert windows.rows() == windows.sent
    assert windows.rows_by_hour() == {key_of(0): 3, key_of(1): 3}
    assert windows.watermarks() == {f"{windows.name}:0": "4", f"{windows.name}:1": "2"}


def test_what_retention_took_is_not_replaced(windows: Windows, kafka_broker: KafkaBroker) -> None:
    windows.produce(0, "a", "b", "c", "d")
    windows.run(now=0)
    delete_records(kafka_broker.bootstrap, windows.name, {0: 1})

    said = windows.refuse([0], now=1)

    assert f"{windows.name}:0 was published from 0 to 2, and the log has 1 to 2" in said
    assert windows.rows() == windows.sent


def test_a_window_that_has_not_begun_is_refused(windows: Windows) -> None:
    assert "begins at 2026-03-01 15:00 UTC" in windows.refuse([5], now=1)


def test_a_topic_without_windows_is_read_again_as_a_whole(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("whole", partitions=2)
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}}})
    for batch in range(2):
        produce(kafka_broker.bootstrap, name, [Record(b"%d-%d" % (batch, n), None, n % 2) for n in range(4)])
        assert not ingestion.run().failed
    files = {Path(each) for each in ingestion.read(name).inputFiles()}
    before = ingestion.rows(name, "value")

    assert not ingestion.run(mode=Mode.REFRESH).failed

    assert ingestion.rows(name, "value") == before
    assert not files & {Path(each) for each in ingestion.read(name).inputFiles()}
    assert ingestion.watermarks(name) == {f"{name}:0": "4", f"{name}:1": "4"}


@pytest.mark.core
def test_an_offset_given_by_hand_is_gone_on_from_and_one_outside_of_the_log_changes_nothing(
    ingest: Open, kafka_broker: KafkaBroker, topic: MakeTopic
) -> None:
    name = topic("by_hand")
    ingestion = ingest({"topic": name, "kafka": {"value": {"format": "string"}}})
    produce(kafka_broker.bootstrap, name, [b"a", b"b", b"c", b"d"])

    (failed,) = ingestion.run(restart=StartAt({0: 5})).failed
    assert f"{name}:0: expected an offset from 0 to 4, found 5" in str(failed.error)
    assert ingestion.watermarks(name) == {}

    assert not ingestion.run(restart=StartAt({0: 2})).failed
    assert ingestion.rows(name, "value") == Counter({("c",): 1, ("d",): 1})
    assert "2 offsets are left out" in ingestion.notes(name)[-1]

    assert not ingestion.run(restart=StartAt({0: 1})).failed
    assert ingestion.rows(name, "value") == Counter({("b",): 1, ("c",): 2, ("d",): 2})
    assert "3 offsets are read that were read before" in ingestion.notes(name)[-1]
    assert ingestion.watermarks(name) == {f"{name}:0": "4", f"{name}:0#1": "4"}
    assert not ingestion.run().failed
    assert sum(ingestion.rows(name, "value").values()) == 5
