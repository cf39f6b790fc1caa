"""Ways to load a topic that leave out one rule of its marks."""

import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from gobblin_assets.destinations.kafka.json_rows import write_keys, write_objects
from gobblin_assets.destinations.kafka.kafka_topics import KafkaTopics
from gobblin_assets.destinations.kafka.lane_producer import LaneProducer
from gobblin_assets.destinations.kafka.mark_reader import MarkReader
from gobblin_assets.destinations.kafka.mark_records import NO_MARK, TopicMark
from gobblin_assets.destinations.kafka.topic_batches import TopicBatch
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.failpoints import Failpoint, reach


class LooksBeforeInit(KafkaTopics):
    """The mark that counts is the one that was there before others were fenced off."""

    looked: TopicMark | None = None

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        self.looked = self._read(place, 5.0)[0]
        return super().find_mark(place)

    def _look(self, place: MarkPlace) -> TopicMark:
        del place
        return self.looked or NO_MARK


class MarkInAnotherTransaction(KafkaTopics):
    """Records are committed, and the mark in a transaction after that."""

    def _load(self, producer: LaneProducer, batch: TopicBatch, rows: Iterable[pa.RecordBatch]) -> None:
        producer.begin()
        for some in rows:
            producer.send(batch.topic.name, write_objects(some), write_keys(some, batch.topic.key))
        producer.flush()
        reach(Failpoint.LOAD_COPIED)
        producer.commit()
        producer.begin()
        assert producer.known is not None
        self._commit(producer, batch, producer.known.with_loaded(batch, ""), Failpoint.LOAD_BEFORE_COMMIT)
        reach(Failpoint.LOAD_COMMITTED)


class UncommittedReader(MarkReader):
    def _open(self, isolation: str) -> Any:
        del isolation
        return super()._open("read_uncommitted")


class ReadsUncommitted(KafkaTopics):
    """A mark counts before its transaction is committed."""

    def _open_reader(self, topic: str) -> MarkReader:
        return UncommittedReader(self.connection, topic)


class GivesUpWithoutALook(KafkaTopics):
    """The mark refuses the publication from now on, whether or not it is there."""

    def give_up(self, batch: TopicBatch) -> bool:
        with self._lane(batch) as producer:
            producer.begin()
            self._commit(producer, batch, NO_MARK.with_given_up(batch), Failpoint.GIVE_UP_BEFORE_COMMIT)
        return True


class GivesUpByTheLogAlone(KafkaTopics):
    """Whoever abandons looks whether the rows are there, and tells the destination nothing."""

    def give_up(self, batch: TopicBatch) -> bool:
        mark = self.find_mark(batch.mark)
        return mark is None or batch.sequence_id not in mark.recent


class FencesNobodyOff(KafkaTopics):
    """Each producer has an id of its own."""

    def _fence(self, batch: TopicBatch) -> LaneProducer:
        return super()._fence(replace(batch, mark=replace(batch.mark, job=uuid.uuid4().hex)))
