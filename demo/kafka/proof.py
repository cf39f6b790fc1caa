"""The proof: every committed record of the broker against every published row and dead letter, as multisets.

Two readers that share nothing with the product: a plain consumer that sees committed records only, and other libraries
than Spark's for Avro and JSON.
"""

import datetime as dt
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from demo.kafka.page_views import Fault, from_avro, from_json
from demo.kafka.places import JOB, WEB
from demo.kafka.stream import Account
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.dataset_reader import read_dataset

ANSWER_S_MAX: Final = 60.0
_BATCH_MAX: Final = 10_000
_BATCH_WAIT_S: Final = 0.2

# Fields of a record that are compared, after its position and its role.
_Content = tuple[Any, ...]
Facts = Counter[tuple[int, int, Role, _Content]]


@dataclass(frozen=True, slots=True)
class Found:
    partition: int
    offset: int
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """``missing`` records are at the broker only; ``extra`` records are published only: doubled, aborted or altered.

    ``faults``: how often each kind of broken record got each reason. ``days``: published rows by directory, with the
    number of late ones.
    """

    topic: str
    written: int
    committed: int
    rows: int
    letters: int
    missing: int
    extra: int
    faults: Counter[tuple[str, str]]
    days: Counter[str]
    late_by_day: Counter[str]

    @property
    def is_equal(self) -> bool:
        return self.missing == self.extra == 0 and self.committed == self.rows + self.letters


def compare(
    topic: str,
    account: Account,
    versions: Mapping[int, int],
    *,
    bootstrap: str,
    spark: SparkSession,
    published: PublishedFiles,
) -> Verdict:
    """``versions``: the versions of the web site's schema, by schema id."""
    written = sum(1 for _found in read_log(bootstrap, topic, isolation="read_uncommitted"))
    committed: Facts = Counter()
    late_by_day: Counter[str] = Counter()
    for found in read_log(bootstrap, topic, isolation="read_committed"):
        fault = account.broken.get((found.partition, found.offset))
        fact = _fact_of(topic, found, fault, versions)
        committed[fact] += 1
        if fault is None and fact[3][0] in account.late_view_ids:
            late_by_day[fact[3][3]] += 1
    rows = _rows(read_dataset(spark, topic, job=JOB, database=published))
    letters, reasons = _letters(read_dataset(spark, topic, job=JOB, database=published, role=Role.DEAD_LETTER))
    both = rows + letters
    return Verdict(
        topic=topic,
        written=written,
        committed=committed.total(),
        rows=rows.total(),
        letters=letters.total(),
        missing=(committed - both).total(),
        extra=(both - committed).total(),
        faults=Counter((account.broken.get(place, "nothing"), reason) for place, reason in reasons),
        days=Counter(content[3] for _p, _o, _role, content in rows.elements()),
        late_by_day=late_by_day,
    )


def read_log(bootstrap: str, topic: str, *, isolation: str) -> Iterator[Found]:
    """Every record that this isolation shows, from the beginning to the end."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "log_level": 0,
        "group.id": uuid.uuid4().hex,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
    })  # fmt: skip
    try:
        unread = set(consumer.list_topics(topic, timeout=ANSWER_S_MAX).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in unread])
        heard_at = time.monotonic()
        while unread:
            messages = consumer.consume(_BATCH_MAX, _BATCH_WAIT_S)
            heard_at = time.monotonic() if messages else heard_at
            if time.monotonic() - heard_at > ANSWER_S_MAX:
                raise TimeoutError(f"{topic}: the broker sent nothing for {ANSWER_S_MAX:.0f} s")
            for message in messages:
                error = message.error()
                if error is None:
                    yield Found(message.partition(), message.offset(), message.key(), message.value())
                elif error.name() == "_PARTITION_EOF":
                    unread.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _fact_of(topic: str, found: Found, fault: Fault | None, versions: Mapping[int, int]) -> Any:
    place = (found.partition, found.offset)
    if fault in (Fault.CUT, Fault.ERROR_PAGE):
        return *place, Role.DEAD_LETTER, (found.value,)
    fields = from_avro(found.value, versions) if topic == WEB else from_json(found.value)
    content = (fields["view_id"], fields["page"])
    if fault is not None:
        return *place, Role.DEAD_LETTER, content
    day = fields["viewed_at"].astimezone(dt.UTC).date().isoformat()
    return *place, Role.DATA, (*content, found.key.decode(), day)


def _rows(frame: DataFrame) -> Facts:
    names = ("kafka_partition", "kafka_offset", "view_id", "page", "kafka_key", "day")
    return Counter(
        (partition, offset, Role.DATA, tuple(content))
        for partition, offset, *content in _collect(frame.select(*names[:-1], f.col("day").cast("string")))
    )


def _letters(frame: DataFrame) -> tuple[Facts, list[tuple[tuple[int, int], str]]]:
    """The dead letters, with their reasons. A record that could be decoded has its columns, any other its bytes."""
    facts: Facts = Counter()
    reasons = []
    columns = frame.select(
        f.coalesce("dead_letter_partition", "kafka_partition"),
        f.coalesce("dead_letter_offset", "kafka_offset"),
        "dead_letter_reason",
        "dead_letter_value",
        "view_id",
        "page",
    )
    for partition, offset, reason, value, *fields in _collect(columns):
        facts[partition, offset, Role.DEAD_LETTER, tuple(fields) if value is None else (value,)] += 1
        reasons.append(((partition, offset), reason))
    return facts, reasons


def _collect(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    arrow = frame.toArrow()
    return zip(*(column.to_pylist() for column in arrow.columns), strict=True)
