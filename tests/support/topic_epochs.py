"""What a reader of a topic's epochs gave, collected by epochs, for tests."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.client_messages import RECORD_SCHEMA
from gobblin_assets.sources.kafka.cluster import Isolation
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.epoch_log import KafkaEpochLog, TimeBarriers
from gobblin_assets.sources.kafka.start_positions import TopicStart, find_start_positions
from gobblin_assets.sources.log_port import Barrier, LogItem, StreamChunk, UpdateVnodeBitmap
from tests.support.kafka import Record
from tests.support.spark import wait_until
from tests.support.topic_plans import Follower

_SOON = TimeBarriers(0.05)


@dataclass
class Epochs:
    """What a reader gave, cut by its barriers. ``open``: the values since the last one, by vnode."""

    log: KafkaEpochLog
    closed: list[tuple[Barrier, Counter[tuple[str, bytes]]]] = field(default_factory=list)
    open: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def read_until(self, reached: Callable[[], bool], what: str) -> None:
        def is_reached() -> bool:
            for item in self.log.read(wait_s=0.2):
                self._take(item)
            return reached()

        wait_until(is_reached, what)

    def read_to(self, positions: Mapping[str, int]) -> None:
        self.read_until(lambda: self.positions == positions, f"a barrier at {positions}, last one at {self.positions}")

    @property
    def positions(self) -> Mapping[str, int]:
        return self.closed[-1][0].positions if self.closed else {}

    @property
    def values(self) -> Counter[tuple[str, bytes]]:
        """All values in front of a barrier."""
        return sum((values for _barrier, values in self.closed), Counter())

    def _take(self, item: LogItem) -> None:
        match item:
            case StreamChunk():
                assert item.chunk.schema == RECORD_SCHEMA
                self.open.update((item.vnode, value) for value in item.chunk["value"].to_pylist())
            case Barrier():
                assert item.is_checkpoint
                assert not self.closed or item.epoch > self.closed[-1][0].epoch
                self.closed.append((item, self.open))
                self.open = Counter()
            case UpdateVnodeBitmap():
                assert not self.open, "what came before must be cut first"


def start_positions(
    bootstrap: str, topic: str, follower: Follower | None = None, isolation: Isolation = "read_committed"
) -> TopicStart:
    request = (follower or Follower(topic=topic)).request()
    return find_start_positions(ConfluentCluster(KafkaConnection(bootstrap)), request, isolation=isolation)


@contextmanager
def following(
    bootstrap: str,
    topic: str,
    positions: Mapping[str, int] | None = None,
    *,
    epoch: int = 0,
    timeout_s: float = 30.0,
    **options: object,
) -> Iterator[Epochs]:
    start = start_positions(bootstrap, topic)
    settings: dict[str, object] = {"topic_ids": {topic: start.topic_id}, "barriers": _SOON, **options}
    connection = KafkaConnection(bootstrap, timeout_s=timeout_s)
    with closing(KafkaEpochLog(connection, **settings)) as log:  # type: ignore[arg-type]  # any option
        chosen = start.positions if positions is None else positions
        log.assign(chosen, epochs=dict.fromkeys(chosen, epoch) if epoch else {})
        yield Epochs(log)


def numbered(topic: str, numbers: range, partitions: int) -> tuple[list[Record], Counter[tuple[str, bytes]]]:
    """Records, and what a reader gives for them."""
    records = [Record(b"%d" % number, partition=number % partitions) for number in numbers]
    return records, Counter((f"{topic}:{record.partition}", record.value or b"") for record in records)
