"""A publication of a sink into a topic of Kafka, beside a bare transactional producer of the same records."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from benchmarks.kafka_world import make_topics, open_broker
from benchmarks.sink_world import bound_at_least
from benchmarks.staged_orders import FILES, carry_out_load, stage_orders, time_load
from benchmarks.tables import Options, Samples, Table, in_turns
from benchmarks.world import World
from demo.kafka.broker import KafkaBroker
from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.destinations.kafka.json_rows import write_objects
from gobblin_assets.destinations.kafka.lane_producer import QUEUE_KIB, QUEUE_RECORDS
from gobblin_assets.destinations.kafka.load_topic import LOAD_TOPIC, LoadTopic
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.model.files import DataFile

ROWS, ROWS_QUICK = 2_000_000, 300_000
PARTITIONS: Final = 3
SHARE_MIN: Final = 0.8

_TIMEOUT_S: Final = 120.0
_OURS, _BARE = "the sink's load of staged files", "a bare transactional producer"
_OURS_CPU, _BARE_CPU = "processor time of the load", "processor time of the producer"


def measure(world: World, options: Options) -> list[Table]:
    rows = ROWS_QUICK if options.quick else ROWS
    samples = Samples()
    with open_broker(world) as broker:
        os.environ["GOBBLIN_KAFKA_BENCH_BOOTSTRAP_SERVERS"] = broker.bootstrap
        files, batches = stage_orders(world.home, rows)
        values = [value for batch in batches for value in write_objects(batch)]
        loads = _Loads(files, rows)
        make_topics(broker.bootstrap, ["bare"], PARTITIONS)
        bare = _Bare(broker, values)
        # The sink keeps a lane's producer: the first publication, which makes it, is left out, as is the bare one's.
        for load in (loads.load, bare.load):
            load()
        calls: dict[str, tuple[Callable[[], None], str]] = {
            _OURS: (loads.load, _OURS_CPU),
            _BARE: (bare.load, _BARE_CPU),
        }
        for name in in_turns(list(calls), options.runs):
            call, of_cpu = calls[name]
            time_load(samples, name, of_cpu, call)
    return [_describe(samples, rows, sum(map(len, values)) / rows)]


class _Loads:
    """Publications of one lane, one after the other, each as the executor carries it out."""

    def __init__(self, files: tuple[DataFile, ...], rows: int) -> None:
        self._files, self._rows = files, rows
        self._version = 0
        get_kind(LOAD_TOPIC)

    def load(self) -> None:
        self._version += 1
        batch = TopicBatch(
            LoadedTopic("loaded", (), PARTITIONS, 1),
            MarkPlace("gobblin_lane", "bench", "bench", "orders", 0),
            self._version,
            str(uuid.uuid4()),
            self._rows,
            sum(file.identity.size_bytes for file in self._files),
        )
        step = LoadTopic("bench", batch, self._files)
        carry_out_load(step, Path(self._files[0].name).parent)


class _Bare:
    """A producer with the same settings, to which the records are given as they are."""

    def __init__(self, broker: KafkaBroker, values: list[bytes]) -> None:
        self._values = values
        self._producer = Producer({
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "bare",
            "compression.type": "lz4",
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
        })  # fmt: skip
        self._producer.init_transactions(_TIMEOUT_S)

    def load(self) -> None:
        self._producer.begin_transaction()
        for value in self._values:
            while True:
                try:
                    self._producer.produce("bare", value)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self._producer.commit_transaction(_TIMEOUT_S)


def _describe(samples: Samples, rows: int, bytes_per_record: float) -> Table:
    share = samples.median(_BARE) / samples.median(_OURS)
    figures = [
        samples.row(name, f"{rows / samples.median(name):,.0f}") for name in (_OURS, _BARE, _OURS_CPU, _BARE_CPU)
    ]
    return Table(
        "A sink's load into a topic of Kafka",
        ("", "median", "min", "max", "records/s"),
        tuple(figures),
        (
            f"{rows:,} rows of 7 columns in {FILES} staged Parquet files, {bytes_per_record:.0f} bytes of JSON each.",
            f"One broker, {PARTITIONS} partitions, lz4, one transaction.",
            "The load verifies, reads the files, writes JSON, produces, commits with the lane's mark, and verifies.",
            "The bare producer is given records that are ready. Both have their producer from before.",
            bound_at_least("speed of the bare producer", share, SHARE_MIN),
        ),
    )
