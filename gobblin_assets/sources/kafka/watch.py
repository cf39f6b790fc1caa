"""A watch over topics: what is new in them, and which there are, without reading records."""

import hashlib
from collections.abc import Mapping, Sequence

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.lag import Unread
from gobblin_assets.sources.connection import LogNews
from gobblin_assets.sources.kafka.cluster import Cluster, TopicOffsets
from gobblin_assets.sources.kafka.histories import require_histories
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec
from gobblin_assets.sources.kafka.planning import decide_ranges, find_beginners, recall_topic, topic_of
from gobblin_assets.sources.source_port import SourceRequest

_MARK_DIGITS = 12


class TopicWatch:
    """``LogWatch`` over one cluster."""

    def __init__(self, cluster: Cluster, spec: KafkaSourceSpec) -> None:
        self._cluster = cluster
        self._spec = spec

    def find_news(self, requests: Sequence[SourceRequest]) -> dict[DatasetUrn, LogNews | GobblinError]:
        wanted = sorted({topic_of(request) for request in requests})
        offsets = self._cluster.find_offsets(wanted, isolation=self._spec.isolation) if wanted else {}
        return {request.urn: _judge(request, offsets[topic_of(request)]) for request in requests}

    def list_names(self) -> list[str]:
        return sorted(self._cluster.list_topics())


def _judge(request: SourceRequest, offsets: TopicOffsets | GobblinError) -> LogNews | GobblinError:
    if isinstance(offsets, GobblinError):
        return offsets
    try:
        return decide_news(request, offsets)
    except GobblinError as error:
        return error


def decide_news(request: SourceRequest, offsets: TopicOffsets) -> LogNews:
    """What is new, by the rules that runs are planned by. Pure. Raises the error that planning would end with."""
    memory = recall_topic(request, topic_of(request), offsets)
    require_histories(request, memory.positions, offsets)
    by_time = find_beginners(request, memory, offsets.partitions)
    decision = decide_ranges(request, memory, offsets, at_time=dict.fromkeys(by_time))
    unset = [number for number in decision.ranges if number in memory.at_bootstrap - memory.positions.keys()]
    is_first = request.state.version == 0
    return LogNews(
        unread=decision.unread,
        begins=is_first or bool(unset),
        mark=_mark_of(decision.unread, f"{request.state.version}:{len(unset)}" if is_first or unset else ""),
    )


def _mark_of(unread: Unread, begins: str) -> str:
    positions: Mapping[str, int] = {key: first for key, (first, end) in unread.items() if end > first}
    text = "\n".join([begins, *(f"{key} {first}" for key, first in sorted(positions.items()))])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:_MARK_DIGITS]
