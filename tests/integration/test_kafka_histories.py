"""A position is a place in one history: a log that lost its end and grew again is not read on as if it were the same.

The brokers' files are removed while the broker is down, as after an unclean election or a disk that was wiped.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.run.job_kind import Restart, StartAt
from tests.support.kafka import delete_records, lose_logs, make_topic, produce
from tests.support.spark_sink import OpenSpark, SparkSink
from tests.support.topics import Ingestion, Open

_LOST = "is no place of the log that the topic has now"
_TEXT = {"value": {"format": "string"}}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker whose files are removed."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-kafka-"))
    with start_broker(folder) as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


def values_of(name: str, count: int) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(count)]


def texts(ingestion: Ingestion, topic: str) -> Counter[str]:
    return Counter({value: count for (value,), count in ingestion.rows(topic, "value").items()})


def as_texts(*values: Sequence[bytes]) -> Counter[str]:
    return Counter(value.decode() for each in values for value in each)


def failure_of(ingestion: Ingestion, topic: str) -> str:
    (failed,) = ingestion.run(topic).failed
    return failed.error or ""


@pytest.mark.turns("what readers of topics meet", of=8)
def test_a_log_that_lost_its_end_and_grew_again_is_not_read_on_until_a_person_decides(
    ingest: Open, broker: KafkaBroker
) -> None:
    """Of five topics alike, each is decided upon in another way."""
    topics = [make_topic(broker.bootstrap, name) for name in ("longer", "equal", "over", "moved", "given")]
    longer, equal, over, moved, given = topics
    ingestion = ingest(*({"topic": topic, "kafka": _TEXT} for topic in topics), bootstrap=broker.bootstrap)
    old, new = values_of("old", 100), values_of("new", 150)
    for topic in topics:
        produce(broker.bootstrap, topic, old)
    assert not ingestion.run().failed
    lose_logs(broker, *(f"{topic}-0" for topic in topics))
    for topic in topics:
        produce(broker.bootstrap, topic, new[:100] if topic == equal else new)

    for topic in topics:
        assert _LOST in failure_of(ingestion, topic)
        assert texts(ingestion, topic) == as_texts(old)
    # What was detected stands, also where the record that showed it is gone.
    delete_records(broker.bootstrap, longer, {0: 100})
    assert _LOST in failure_of(ingestion, longer)
    assert not ingestion.run(over, restart=Restart.START_OVER).failed
    assert not ingestion.run(moved, restart=Restart.MOVE_TO_LATEST).failed
    assert not ingestion.run(given, restart=StartAt({0: 100})).failed

    last = values_of("last", 10)
    for topic in (over, moved, given):
        produce(broker.bootstrap, topic, last)
        assert not ingestion.run(topic).failed
    assert texts(ingestion, over) == as_texts(old, new, last)
    assert texts(ingestion, moved) == as_texts(old, last)
    assert texts(ingestion, given) == as_texts(old, new[100:], last)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_a_stream_stops_where_the_log_goes_on_in_another_history(ingest: Open, broker: KafkaBroker) -> None:
    topic = make_topic(broker.bootstrap, "streamed")
    ingestion = ingest(
        {"topic": topic, "kafka": _TEXT}, bootstrap=broker.bootstrap, options={"stream": {"publish_every_s": 0.5}}
    )
    old, new = values_of("old", 100), values_of("new", 150)
    produce(broker.bootstrap, topic, old)
    until_s = time.monotonic() + 120
    is_cut = False

    def wait_for_stop(seconds: float) -> bool:
        nonlocal is_cut
        assert time.monotonic() < until_s, ingestion.lines
        if not is_cut and ingestion.watermarks(topic) == {f"{topic}:0": "100"}:
            lose_logs(broker, f"{topic}-0")
            produce(broker.bootstrap, topic, new)
            is_cut = True
        time.sleep(seconds)
        return False

    (failed,) = ingestion.stream(wait_for_stop).failed
    assert _LOST in (failed.error or "")
    assert texts(ingestion, topic) == as_texts(old)


@pytest.mark.parametrize("by_spark", [False, True])
@pytest.mark.turns("what readers of topics meet", of=8)
def test_a_worker_of_a_sink_stops_there_while_it_reads_and_so_does_the_next(
    broker: KafkaBroker,
    spark: SparkSession,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    by_spark: bool,
) -> None:
    monkeypatch.setenv("GOBBLIN_KAFKA_SHOP_BOOTSTRAP_SERVERS", broker.bootstrap)
    topic = make_topic(broker.bootstrap, f"sunk-{by_spark}", settings={"retention.ms": "-1"})
    sink = SparkSink(
        database_url,
        str(tmp_path / "lake"),
        [{"topic": topic, "kafka": _TEXT}],
        OpenSpark(spark),
        lambda: {f"{topic}:0": 100},
        by_spark=by_spark,
    )
    old, new = values_of("old", 100), values_of("new", 150)
    produce(broker.bootstrap, topic, old)
    is_cut = False

    def is_detected() -> bool:
        nonlocal is_cut
        if not is_cut and sink.is_published():
            lose_logs(broker, f"{topic}-0")
            produce(broker.bootstrap, topic, new)
            is_cut = True
        return any(_LOST in line for line in sink.lines)

    sink.work(is_detected)
    # What was detected stands, also where the record that showed it is gone.
    delete_records(broker.bootstrap, topic, {0: 100})
    sink.lines.clear()
    sink.work(is_detected)
    assert sink.rows(topic, "value") == {(text,): 1 for text in as_texts(old)}
    assert sink.watermarks() == {f"{topic}:0": 100}
    sink.close()
