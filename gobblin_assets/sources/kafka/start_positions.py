"""The positions at which a reader of epochs begins in a topic: by the rules of the runs that read topics.

So a topic's dataset may go over from runs to a reader of epochs and back: its watermarks are positions of both.
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.sources.kafka.cluster import Cluster, Isolation, TopicOffsets, TopicPartition
from gobblin_assets.sources.kafka.histories import Histories, require_histories
from gobblin_assets.sources.kafka.kafka_kind import topic_options
from gobblin_assets.sources.kafka.planning import TopicMemory, decide_ranges, find_beginners, recall_topic, topic_of
from gobblin_assets.sources.log_port import VnodeStart
from gobblin_assets.sources.source_port import SourceRequest


@dataclass(frozen=True, slots=True)
class TopicStart:
    """The vnodes to read, by their names, which are watermark keys. ``facts`` are to be stored with the dataset.

    ``notes`` say to people how positions were chosen, ``degraded`` which partitions are left out, as they have no
    leader.
    """

    topic: str
    topic_id: str
    vnodes: Mapping[str, VnodeStart]
    facts: Mapping[str, object]
    notes: tuple[str, ...]
    degraded: tuple[str, ...]

    @property
    def positions(self) -> dict[str, int]:
        return {vnode: start.position for vnode, start in self.vnodes.items()}


def find_start_positions(cluster: Cluster, request: SourceRequest, *, isolation: Isolation) -> TopicStart:
    """Ask the brokers, and choose. Called again, it finds partitions that were added; they begin at their earliest.

    Which partitions are added ones is known once ``facts`` are stored.

    Raises:
        RejectedError: the topic is unknown or was made anew; a position is out of range and the rule is ``fail``;
            offsets ahead of a watermark are published. PositionLostError: a position is no place of the log.
        RetryableError: no partition's offsets could be fetched.

    """
    topic = topic_of(request)
    offsets = cluster.find_offsets([topic], isolation=isolation)[topic]
    if isinstance(offsets, GobblinError):
        raise offsets
    memory = recall_topic(request, topic, offsets)
    histories = Histories(cluster)
    positions, offsets = histories.judge(topic, memory.positions, offsets)
    require_histories(request, positions, offsets)
    memory = replace(memory, positions=positions)
    at_time = ask_beginnings(cluster, request, memory, offsets)
    decision = decide_ranges(request, memory, offsets, at_time=at_time, is_limited=False)
    begins = {each.key.partition: each.offsets.low for each in decision.ranges.values() if each.before is None}
    found = histories.find(begins, {topic: offsets})
    vnodes: dict[str, VnodeStart] = {}
    for chosen in decision.ranges.values():
        if chosen.held:
            raise RejectedError(
                f"{chosen.key}: offsets behind the watermark {chosen.offsets.low} are published already, by a window",
                field=f"datasets[{request.urn}].partitions",
                hint="Run the window that is open now first, until it has read up to them.",
            )
        vnode, known = str(chosen.key), memory.positions.get(chosen.key.partition.partition)
        watermark = known.offset if known is not None and known.key == chosen.key else None
        vnodes[vnode] = VnodeStart(
            chosen.offsets.low,
            watermark,
            chosen.offsets.lost,
            chosen.offsets.repeated,
            chosen.before or found.get(chosen.key.partition),
        )
    return TopicStart(topic, offsets.topic_id, vnodes, decision.facts, tuple(decision.notes), tuple(decision.degraded))


def ask_beginnings(
    cluster: Cluster, request: SourceRequest, memory: TopicMemory, offsets: TopicOffsets
) -> Mapping[TopicPartition, int | None]:
    """The offsets of partitions that begin at a time, by the bootstrap rule. RetryableError: a broker does not say."""
    beginners = find_beginners(request, memory, offsets.partitions)
    if not beginners:
        return {}
    given = topic_options(request.spec).kafka.bootstrap_timestamp
    if not isinstance(given, dt.datetime):
        given = dt.datetime.combine(given or dt.date.min, dt.time())
    moment = given if given.tzinfo is not None else given.replace(tzinfo=dt.UTC)
    return cluster.find_offsets_at(dict.fromkeys(beginners, moment))
