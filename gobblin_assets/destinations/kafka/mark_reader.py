"""The marks in one partition of their topic: read from its beginning once, and then what came behind.

Only committed marks count. An open transaction of any lane hides what lies behind its first mark, so that the reader
waits until it has seen all that was written when it was asked.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from gobblin_assets.destinations.kafka.mark_records import PARTITION, TopicMark, decode_mark, encode_key, find_lane
from gobblin_assets.destinations.kafka.write_failures import judge_write
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.errors import GobblinError, OutcomeUnknownError
from gobblin_assets.kafka.client_reports import ClientFailure, client_failure
from gobblin_assets.kafka.connection import KafkaConnection

_POLL_S: Final = 0.05
_EOF: Final = "_PARTITION_EOF"
_UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"})


@dataclass(slots=True)
class MarkReader:
    """One thread at a time uses it. After an error it is of no use any more."""

    connection: KafkaConnection
    topic: str
    _reader: Any = field(init=False)
    _watcher: Any = field(init=False)
    _at: int = field(default=0, init=False)
    _is_there: bool = field(default=False, init=False)
    _marks: dict[bytes, bytes] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._reader = self._open("read_committed")
        # Its answers are of all that was written, committed or not.
        self._watcher = self._open("read_uncommitted")

    def _open(self, isolation: str) -> Any:
        return Consumer({
            **self.connection.admin_settings(),
            "log_level": 0,
            "log.connection.close": False,
            "group.id": "gobblin-marks",  # never joined, and nothing is committed to it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
        })  # fmt: skip

    def close(self) -> None:
        for client in (self._reader, self._watcher):
            with suppress(KafkaException, RuntimeError):
                client.close()

    def read(self, wait_s: float) -> bool:
        """Read all marks that are committed. False: others that were written may yet be, and the time is up."""
        if not self._is_there and not self._find_topic():
            return True
        end = self._find_end()
        if end < self._at:
            raise OutcomeUnknownError(
                f"the topic {self.topic} ends at {end}, and was read up to {self._at} before",
                hint="It was made again, or has lost records. What it has now is compared with the log.",
            )
        deadline = time.monotonic() + wait_s
        while self._at < end:
            message = self._reader.poll(_POLL_S)
            if message is not None:
                self._take(message)
            elif time.monotonic() > deadline:
                return False
        return True

    def find(self, place: MarkPlace) -> TopicMark | None:
        value = self._marks.get(encode_key(place))
        return None if value is None else decode_mark(value, self.topic)

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        return sum(mark.loaded_rows for mark in self.find_all(place).values())

    def find_all(self, place: MarkPlace) -> Mapping[MarkPlace, TopicMark]:
        """The marks of all lanes of the dataset, whichever lane ``place`` is of."""
        found = ((find_lane(key, place), value) for key, value in self._marks.items())
        return {lane: decode_mark(value, self.topic) for lane, value in found if lane is not None}

    def _take(self, message: Any) -> None:
        error: KafkaError | None = message.error()
        if error is None:
            key, value = message.key(), message.value()
            self._at = message.offset() + 1
            if key is not None:
                if value is None:
                    self._marks.pop(key, None)
                else:
                    self._marks[key] = value
        elif error.name() == _EOF:
            self._at = message.offset()
        elif error.fatal() or error.name() in _UNKNOWN:
            raise self._judge(client_failure(error))

    def _find_topic(self) -> bool:
        try:
            found = self._watcher.list_topics(self.topic, timeout=self.connection.timeout_s).topics[self.topic]
        except KafkaException as error:
            raise self._judge(client_failure(error.args[0])) from None
        if found.error is not None:
            if found.error.name() in _UNKNOWN:
                return False
            raise self._judge(client_failure(found.error))
        self._reader.assign([TopicPartition(self.topic, PARTITION, OFFSET_BEGINNING)])
        self._is_there = True
        return True

    def _find_end(self) -> int:
        place = TopicPartition(self.topic, PARTITION)
        try:
            found = self._watcher.get_watermark_offsets(place, timeout=self.connection.timeout_s, cached=False)
        except KafkaException as error:
            raise self._judge(client_failure(error.args[0])) from None
        if found is None:
            raise self._judge(ClientFailure("_TIMED_OUT", "no answer"))
        return int(found[1])

    def _judge(self, failure: ClientFailure) -> GobblinError:
        if failure.name in _UNKNOWN:
            return OutcomeUnknownError(
                f"the topic of marks {self.topic} is gone", hint="What is there now is compared with the log."
            )
        return judge_write(failure, self.connection, action=f"read {self.topic}")
