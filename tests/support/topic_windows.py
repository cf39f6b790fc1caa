"""A topic whose windows are planned, published and remembered in plain values: no broker, no log."""

import datetime as dt
import itertools
import uuid
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval, join_neighbours
from gobblin_assets.model.policy import CommitPolicy, UnitResult, decide_commit
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetState, KeyId, KeyState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark, long_watermark
from gobblin_assets.sources.kafka.cluster import PartitionOffsets, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.kafka_kind import SizeEstimator
from gobblin_assets.sources.kafka.planning import TopicDecision, cut_ranges, decide_ranges, recall_topic
from gobblin_assets.sources.kafka.sizes import Sizes
from gobblin_assets.sources.kafka.windows import Taken, WindowReading, decide_reading, fill_ranges, reread_ranges
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.partition_keys import asset_partition

START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)
URN = DatasetUrn("MyTopic")
_IDS = itertools.count(1)


def interval(low: int, high: int) -> Interval:
    return Interval(long_watermark(low), long_watermark(high))


def pairs(intervals: Sequence[Interval]) -> list[tuple[int, int]]:
    return [(int(str(each.low)), int(str(each.high))) for each in intervals]


@dataclass
class Topic:
    """A dataset of hourly windows over a topic, with the ledger as T3 leaves it. A record is the number of its hour."""

    kafka: dict[str, Any] = field(default_factory=dict)
    hours: dict[int, list[int]] = field(default_factory=lambda: {0: [], 1: []})
    earliest: dict[int, int] = field(default_factory=dict)
    failing: frozenset[int] = frozenset()
    watermarks: dict[str, Watermark] = field(default_factory=dict)
    ledger: list[tuple[str, Interval, str]] = field(default_factory=list)
    facts: Mapping[str, object] = field(default_factory=dict)

    def produce(self, partition: int, hour: int, count: int) -> None:
        self.hours.setdefault(partition, []).extend([hour] * count)

    def held(self, partition: str | None = None) -> dict[str, list[Interval]]:
        found: dict[str, list[Interval]] = {}
        for key, each, window in self.ledger:
            if partition in (None, window):
                found.setdefault(key, []).append(each)
        return {key: list(join_neighbours(sorted(each, key=Interval.low_bytes))) for key, each in found.items()}

    def ahead(self) -> dict[tuple[str, str], tuple[Interval, ...]]:
        found: dict[tuple[str, str], list[Interval]] = {}
        for key, each, _window in sorted(self.ledger, key=lambda entry: entry[1].low_bytes()):
            watermark = self.watermarks.get(key)
            if watermark is None or each.high > watermark:
                found.setdefault((key, ""), []).append(each)
        return {key: tuple(each) for key, each in found.items()}

    def offsets(self) -> TopicOffsets:
        ends = {
            number: PartitionOffsets(self.earliest.get(number, 0), len(hours))
            for number, hours in self.hours.items()
            if number not in self.failing
        }
        return TopicOffsets("first", ends, dict.fromkeys(self.failing, "no leader"))

    def at(self, hour: int) -> dict[TopicPartition, int | None]:
        found = {number: bisect_left(hours, hour) for number, hours in self.hours.items()}
        return {
            TopicPartition("MyTopic", number): at if at < len(self.hours[number]) else None
            for number, at in found.items()
        }

    def request(self, window: int, mode: Mode = Mode.AUTO, **more: Any) -> SourceRequest:
        spec = DatasetSpec.model_validate(
            {
                "topic": "MyTopic",
                "kafka": {"bootstrap_with": "earliest", **self.kafka},
                "partitions": {"kind": "hourly", "start": "2013-01-01"},
                "split": {"work_unit_rows": 1_000, "max_partitions": 4},
            }
        )
        state = DatasetState(
            DatasetId(1),
            JobName("job"),
            URN,
            version=0,
            keys={(key, ""): KeyState(KeyId(1), key, "", at) for key, at in self.watermarks.items()},
            published=frozenset(window for _key, _each, window in self.ledger),
            ahead=self.ahead(),
            source_facts=self.facts,
        )
        partition = asset_partition(spec, (START + window * HOUR).strftime("%Y-%m-%d-%H:%M"))
        return SourceRequest(
            URN,
            partition,
            state,
            mode,
            **{"by_hand": True, "load_intervals": self.held, "spec": spec, **more},
        )

    def decide(
        self, request: SourceRequest, now_hour: int, taken: Taken | None = None
    ) -> tuple[WindowReading, TopicDecision]:
        reading = decide_reading(request, START + now_hour * HOUR + HOUR / 2)
        offsets, taken = self.offsets(), taken or Taken()
        memory = recall_topic(request, "MyTopic", offsets)
        window = request.partition.window
        assert window is not None
        number = int((window.start - START) / HOUR)
        match reading:
            case WindowReading.CONTINUE:
                found = decide_ranges(request, memory, offsets, at_time={})
                taken.end_before(found)
            case WindowReading.REREAD:
                found = reread_ranges(request, memory, offsets, self.held(str(request.partition)))
            case WindowReading.FILL:
                at, until = self.at(number), self.at(number + 1)
                found = fill_ranges(request, memory, offsets, self.held(), from_start=at, from_end=until)
                taken.leave_out(found)
        taken.add(found)
        return reading, found

    def publish(
        self, request: SourceRequest, reading: WindowReading, decision: TopicDecision, *, failing: Sequence[int] = ()
    ) -> dict[str, list[tuple[int, int]]]:
        """Publish like a run with the policy successful whose WorkUnits at these places fail. Returns what it read."""
        units = cut_ranges(
            request, decision, Sizes(SizeEstimator.AVERAGE_RECORD_SIZE), new_id=lambda: uuid.UUID(int=next(_IDS))
        )
        results = [
            UnitResult(
                unit,
                place not in failing,
                None if unit.is_empty or place in failing else AttemptId(uuid.UUID(int=place)),
            )
            for place, unit in enumerate(units)
        ]
        replaces = reading is WindowReading.REREAD
        decided = decide_commit(CommitPolicy.SUCCESSFUL, results, replaces=replaces)
        if not decided.publish:
            return {}
        if replaces:
            self.ledger = [entry for entry in self.ledger if entry[2] != str(request.partition)]
        self.facts = decision.facts
        published = {}
        for advance in decided.advances:
            if reading is WindowReading.CONTINUE and advance.high is not None:
                self.watermarks[advance.key] = advance.high
            read = [each for each in advance.intervals if not each.is_empty]
            for each in read:
                others = [known for key, known, _window in self.ledger if key == advance.key]
                assert not any(each.overlaps(known) for known in others), "published twice"
                self.ledger.append((advance.key, each, str(request.partition)))
            if read:
                published[advance.key] = pairs(read)
        return published

    def run(
        self, window: int, now_hour: int, mode: Mode = Mode.AUTO, *, failing: Sequence[int] = (), **more: Any
    ) -> dict[str, list[tuple[int, int]]]:
        request = self.request(window, mode, **more)
        reading, decision = self.decide(request, now_hour)
        return self.publish(request, reading, decision, failing=failing)
