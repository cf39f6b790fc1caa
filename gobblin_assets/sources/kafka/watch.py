"""Looking at topics without reading them: what is new in them, and which there are."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.lag import Lag, Unread, measure_lag
from gobblin_assets.sources.kafka.cluster import Cluster, TopicOffsets
from gobblin_assets.sources.kafka.planning import decide_ranges, find_beginners, recall_topic, topic_of
from gobblin_assets.sources.port import SourceRequest
from gobblin_assets.spec.kafka_spec import KafkaSourceSpec

_MARK_DIGITS = 12


@dataclass(frozen=True, slots=True)
class TopicNews:
    """What a run would find in a topic now.

    ``begins``: some partition's position is still to be set, by the bootstrap rule. ``unread`` does not count what
    that rule finds by a time, which is not asked for here. ``mark`` tells whether a run has got any further: it is
    another one as soon as a partition with something unread has moved.
    """

    unread: Unread
    begins: bool
    mark: str

    @property
    def count(self) -> int:
        return sum(end - first for first, end in self.unread.values())

    @property
    def lag(self) -> Lag | None:
        return measure_lag(self.unread)


class TopicWatch:
    """Over one cluster. Nothing is connected to before the first question."""

    def __init__(self, cluster: Cluster, spec: KafkaSourceSpec) -> None:
        self._cluster = cluster
        self._spec = spec

    def find_news(self, requests: Sequence[SourceRequest]) -> dict[DatasetUrn, TopicNews | GobblinError]:
        """By URN, what is new; or the error that planning would end with. One question to the brokers.

        Raises:
            RejectedError: the brokers refuse the login.
            RetryableError: no broker answers.

        """
        wanted = sorted({topic_of(request) for request in requests})
        offsets = self._cluster.find_offsets(wanted, isolation=self._spec.isolation) if wanted else {}
        return {request.urn: _judge(request, offsets[topic_of(request)]) for request in requests}

    def list_topics(self) -> list[str]:
        """The names of all topics, sorted. Raises as ``find_news`` does."""
        return sorted(self._cluster.list_topics())


def _judge(request: SourceRequest, offsets: TopicOffsets | GobblinError) -> TopicNews | GobblinError:
    if isinstance(offsets, GobblinError):
        return offsets
    try:
        return decide_news(request, offsets)
    except GobblinError as error:
        return error


def decide_news(request: SourceRequest, offsets: TopicOffsets) -> TopicNews:
    """By the rules that runs are planned by. Pure. Raises what planning would end with."""
    memory = recall_topic(request, topic_of(request), offsets)
    by_time = find_beginners(request, memory, offsets.partitions)
    decision = decide_ranges(request, memory, offsets, at_time=dict.fromkeys(by_time))
    unset = [number for number in decision.ranges if number in memory.at_bootstrap - memory.positions.keys()]
    is_first = request.state.version == 0
    return TopicNews(
        unread=decision.unread,
        begins=is_first or bool(unset),
        mark=_mark_of(decision.unread, f"{request.state.version}:{len(unset)}" if is_first or unset else ""),
    )


def _mark_of(unread: Unread, begins: str) -> str:
    positions: Mapping[str, int] = {key: first for key, (first, end) in unread.items() if end > first}
    text = "\n".join([begins, *(f"{key} {first}" for key, first in sorted(positions.items()))])
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:_MARK_DIGITS]
