"""Topics of Kafka that are loaded by transactions, each with the mark of its lane.

A load begins with ``init_transactions``: from then on nobody else commits under the lane's id, and what others had
begun is ended. Only then the mark is looked at. The records and the lane's new mark are one transaction. A producer
that was initialized, and what it has seen of the mark, are kept for the lane's next publication.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pyarrow as pa

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.kafka.json_rows import require_columns, write_keys, write_objects
from gobblin_assets.destinations.kafka.lane_producer import (
    ALONE,
    RECORD_BYTES_MIN,
    LaneProducer,
    choose_batch_bytes,
    choose_timeout_s,
)
from gobblin_assets.destinations.kafka.mark_reader import MarkReader
from gobblin_assets.destinations.kafka.mark_records import (
    NO_MARK,
    TopicMark,
    encode_key,
    encode_mark,
    find_gone,
    say_gone_marks,
)
from gobblin_assets.destinations.kafka.shared_clients import CLIENTS, make_client_key
from gobblin_assets.destinations.kafka.topic_admin import PreparedTopic, TopicAdmin
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.kafka.write_failures import TooLargeError
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, PlaceGoneError, decide_batch, require_row_count
from gobblin_assets.destinations.row_forms import prefetch_written
from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.kafka.connection import KafkaConnection, read_cluster

GLANCE_S: Final = 1.0
"""Of a look that decides nothing: what is open after so long counts as not there."""

LOOK_S: Final = 45.0
"""Of a look that decides: a transaction is ended by the brokers before that."""


@dataclass(slots=True)
class PreparedTopics:
    """Topics that were looked at, each with the topic of marks.

    ``alone``: the names of topics that have refused batches, and get records one by one.
    """

    topics: dict[tuple[LoadedTopic, str], PreparedTopic] = field(default_factory=dict)
    alone: set[str] = field(default_factory=set)

    def find(self, batch: TopicBatch) -> PreparedTopic | None:
        return self.topics.get((batch.topic, batch.mark.marks))

    def close(self) -> None:
        self.topics.clear()


@dataclass(slots=True)
class KafkaTopics:
    """``MarkedTopics`` of one cluster. One thread at a time uses it; it connects when it is first needed."""

    connection: KafkaConnection
    _readers: dict[str, MarkReader] = field(default_factory=dict, init=False)
    _seen: dict[MarkPlace, TopicMark] = field(default_factory=dict, init=False)
    _prepared: PreparedTopics = field(init=False)

    def __post_init__(self) -> None:
        key = make_client_key(self.connection, PreparedTopics, "")
        self._prepared = CLIENTS.take(key, PreparedTopics) or PreparedTopics()

    def close(self) -> None:
        for topic, reader in self._readers.items():
            CLIENTS.give_back(make_client_key(self.connection, MarkReader, topic), reader)
        self._readers.clear()
        CLIENTS.give_back(make_client_key(self.connection, PreparedTopics, ""), self._prepared)

    def require(self, topics: Iterable[LoadedTopic], marks: str) -> None:
        """Connect, and raise if the cluster or one of the topics can't be loaded."""
        TopicAdmin(self.connection).require(topics, marks)

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        # What this process has just committed may not be visible yet, and nothing takes it back.
        found = self._seen.get(place) or self._read(place, GLANCE_S)[0]
        return None if found is None else found.mark

    def find_settled_mark(self, place: MarkPlace) -> LaneMark | None:
        return self._look(place).mark

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        self._look(place)
        return self._readers[place.marks].count_loaded(place)

    def find_gone(self, topic: LoadedTopic, place: MarkPlace, *, is_marked: bool) -> str | None:
        ids = TopicAdmin(self.connection).find_ids([place.marks, topic.name]) if is_marked else {}
        if is_marked and place.marks not in ids:
            return say_gone_marks(place)
        marks = self._read_all(place).values()
        if not any(mark.loaded_rows for mark in marks):
            return None
        ids = ids or TopicAdmin(self.connection).find_ids([topic.name])
        return find_gone(topic, ids.get(topic.name), place.dataset, marks)

    def prepare(self, batch: TopicBatch, columns: pa.Schema) -> None:
        require_columns(columns, batch.topic.key)
        if self._prepared.find(batch) is None:
            if (gone := self.find_gone(batch.topic, batch.mark, is_marked=batch.is_marked)) is not None:
                raise PlaceGoneError(gone, batch.mark.dataset)
            admin = TopicAdmin(self.connection)
            admin.prepare_marks(batch.mark.marks, batch.topic.replication_factor)
            self._prepared.topics[batch.topic, batch.mark.marks] = admin.prepare(batch.topic)

    def load(self, batch: TopicBatch, rows: Iterable[pa.RecordBatch]) -> None:
        with self._lane(batch) as producer:
            verdict = decide_batch(_known(producer).mark, batch)
            if verdict is StepVerdict.DO:
                self._load(producer, batch, rows)
            elif verdict is not StepVerdict.DONE:
                raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")

    def _load(self, producer: LaneProducer, batch: TopicBatch, rows: Iterable[pa.RecordBatch]) -> None:
        producer.begin()
        count = 0
        for values, keys in prefetch_written(rows, partial(_write_records, key=batch.topic.key)):
            producer.send(batch.topic.name, values, keys)
            count += len(values)
        require_row_count(batch, count)
        producer.flush()
        reach(Failpoint.LOAD_COPIED)
        known = _known(producer)
        mark = known.with_loaded(batch, self._require_same(batch, known))
        self._commit(producer, batch, mark, Failpoint.LOAD_BEFORE_COMMIT)
        reach(Failpoint.LOAD_COMMITTED)

    def _require_same(self, batch: TopicBatch, known: TopicMark) -> str:
        """The id of the topic that has the records now. PlaceGoneError if it is not the one of before."""
        topic, dataset = batch.topic, batch.mark.dataset
        found = TopicAdmin(self.connection).find_ids([topic.name]).get(topic.name)
        # They were read after others had been fenced off. To read them again would wait for others' transactions.
        marks = self._readers[batch.mark.marks].find_all(batch.mark)
        gone = find_gone(topic, found, dataset, {**marks, batch.mark: known}.values())
        if gone is not None:
            raise PlaceGoneError(gone, dataset)
        prepared = self._prepared.find(batch)
        if found is None or (prepared is not None and prepared.topic_id != found):
            raise RetryableError(f"the topic {topic} was deleted while records were loaded into it", passes=True)
        return found

    def give_up(self, batch: TopicBatch) -> bool:
        admin, marks = TopicAdmin(self.connection), batch.mark.marks
        if batch.is_marked and not admin.find_ids([marks]):
            raise PlaceGoneError(say_gone_marks(batch.mark), batch.mark.dataset)
        admin.prepare_marks(marks, batch.topic.replication_factor)
        with self._lane(batch) as producer:
            known = _known(producer)
            verdict = decide_batch(known.mark, batch)
            if verdict is StepVerdict.DO:
                producer.begin()
                self._commit(producer, batch, known.with_given_up(batch), Failpoint.GIVE_UP_BEFORE_COMMIT)
        return verdict is not StepVerdict.DONE

    def adopt(self, topic: LoadedTopic, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Let the topics go on behind these marks; both are made unless they exist. Marks that are there stay.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        admin = TopicAdmin(self.connection)
        any_place = next(iter(marks))
        admin.prepare_marks(any_place.marks, topic.replication_factor)
        topic_id = admin.prepare(topic).topic_id
        self._prepared.topics.clear()
        self._look(any_place)
        # Also lanes whose first publication is there, and not complete in the log.
        for place in {**self._read_all(any_place), **marks}:
            batch = TopicBatch(topic, place, 0, "", 0, 0)
            with self._lane(batch) as producer:
                known = _known(producer)
                if not known.mark.has_loaded and place in marks:
                    known = TopicMark(marks[place], max(0, row_count - self.count_loaded(place)))
                adopted = replace(known, topic=topic.name, topic_id=topic_id)
                if adopted != producer.known:
                    producer.begin()
                    self._commit(producer, batch, adopted)

    def _commit(
        self, producer: LaneProducer, batch: TopicBatch, mark: TopicMark, before: Failpoint | None = None
    ) -> None:
        """The mark comes last: as long as it is there and not committed, it hides the marks behind it."""
        producer.send_mark(batch.mark.marks, encode_key(batch.mark), encode_mark(mark))
        producer.flush()
        if before is not None:
            reach(before)
        producer.commit()
        producer.known = mark

    @contextmanager
    def _lane(self, batch: TopicBatch) -> Iterator[LaneProducer]:
        """The lane's producer, which nobody else has, and which knows the mark. It is kept unless something fails."""
        producer = self._take(batch) or self._fence(batch)
        try:
            if producer.known is None:
                producer.known = self._look(batch.mark)
            yield producer
        except ConnectionError as error:
            self._drop(producer)
            raise OutcomeUnknownError(f"no answer to a load into {batch.topic}: {error}") from None
        except TooLargeError as error:
            self._drop(producer)
            if error.is_alone or producer.batch_bytes_max == ALONE:
                raise
            self._prepared.alone.add(batch.topic.name)
            raise RetryableError(
                f"batches of records are larger than the topic takes: {error.message}",
                hint="Its records are sent one by one from now on.",
            ) from None
        except Exception:
            self._drop(producer)
            raise
        self._seen[batch.mark] = _known(producer)
        CLIENTS.give_back(make_client_key(self.connection, LaneProducer, batch.transactional_id), producer)

    def _drop(self, producer: LaneProducer) -> None:
        producer.close()
        # Somebody may have changed the topics.
        self._prepared.topics.clear()

    def _take(self, batch: TopicBatch) -> LaneProducer | None:
        """The producer of the lane's last publication, if it is of use and nobody has written a mark since."""
        kept = CLIENTS.take(make_client_key(self.connection, LaneProducer, batch.transactional_id), LaneProducer)
        if kept is None:
            return None
        try:
            found, is_all = self._read(batch.mark, GLANCE_S)
        except GobblinError:
            kept.close()
            raise
        known = kept.known
        # Where all is read, what it remembers is there, unless somebody has taken it away.
        is_as_known = (
            (found or NO_MARK) == known
            if is_all
            else found is None or (known is not None and not found.is_newer(known))
        )
        is_unfit = kept.timeout_s < _timeout_of(batch) or kept.record_bytes_max < self._record_bytes_max(batch)
        if not is_as_known or is_unfit or kept.batch_bytes_max != self._batch_bytes_max(batch):
            kept.close()
            return None
        return kept

    def _fence(self, batch: TopicBatch) -> LaneProducer:
        return LaneProducer(
            self.connection,
            batch.transactional_id,
            _timeout_of(batch),
            self._record_bytes_max(batch),
            self._batch_bytes_max(batch),
        ).open()

    def _read_all(self, place: MarkPlace) -> Mapping[MarkPlace, TopicMark]:
        """The marks of all lanes of the dataset that are seen at a glance."""
        self._read(place, GLANCE_S)
        return self._readers[place.marks].find_all(place)

    def _look(self, place: MarkPlace) -> TopicMark:
        found, is_all = self._read(place, LOOK_S)
        if not is_all:
            raise _hidden(place)
        return found or NO_MARK

    def _read(self, place: MarkPlace, wait_s: float) -> tuple[TopicMark | None, bool]:
        """The lane's mark, and whether all is read that was written before."""
        topic = place.marks
        if topic not in self._readers:
            kept = CLIENTS.take(make_client_key(self.connection, MarkReader, topic), MarkReader)
            self._readers[topic] = kept or self._open_reader(topic)
        reader = self._readers[topic]
        try:
            is_all = reader.read(wait_s)
        except Exception:
            del self._readers[topic]
            reader.close()
            raise
        return reader.find(place), is_all

    def _open_reader(self, topic: str) -> MarkReader:
        return MarkReader(self.connection, topic)

    def _record_bytes_max(self, batch: TopicBatch) -> int:
        return max(RECORD_BYTES_MIN, self._topic_bytes(batch))

    def _batch_bytes_max(self, batch: TopicBatch) -> int:
        if batch.topic.name in self._prepared.alone:
            return ALONE
        return choose_batch_bytes(self._topic_bytes(batch))

    def _topic_bytes(self, batch: TopicBatch) -> int:
        prepared = self._prepared.find(batch)
        return 0 if prepared is None else prepared.record_bytes


def _known(producer: LaneProducer) -> TopicMark:
    if producer.known is None:
        raise AssertionError("the mark is looked at before anything else")
    return producer.known


def _timeout_of(batch: TopicBatch) -> int:
    return choose_timeout_s(batch.row_count, batch.byte_count)


def _hidden(place: MarkPlace) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"{place} can't be read: a transaction has been open for {LOOK_S:.0f} s in front of it",
        hint="The brokers end it after a while. It is asked again.",
    )


@contextmanager
def open_topics(name: str) -> Iterator[KafkaTopics]:
    """The topics of the cluster of a connection, by its name."""
    topics = KafkaTopics(read_cluster(name))
    try:
        yield topics
    finally:
        topics.close()


_Records = tuple[list[bytes], list[bytes | None] | None]
"""Values, and their keys; None: they have none."""


def _write_records(batch: pa.RecordBatch, key: tuple[str, ...]) -> _Records:
    return write_objects(batch), write_keys(batch, key) if key else None
