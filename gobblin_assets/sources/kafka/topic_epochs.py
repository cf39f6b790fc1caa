"""A topic as a sink's log: its records are decoded by Arrow, and read by one consumer in this process."""

from collections.abc import Callable, Sequence

from gobblin_assets.errors import CorruptionError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.epoch_source import LogStart, RowDecoder, VnodeStart
from gobblin_assets.sources.kafka.arrow_decoding import ArrowDecoder
from gobblin_assets.sources.kafka.cluster import Cluster
from gobblin_assets.sources.kafka.epoch_log import KafkaEpochLog, TimeBarriers
from gobblin_assets.sources.kafka.epoch_markers import MarkerBarriers
from gobblin_assets.sources.kafka.kafka_spec import KafkaSourceSpec, topic_options
from gobblin_assets.sources.kafka.start_positions import find_start_positions
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.sink_spec import SinkSpec


class TopicEpochs:
    """``EpochSource`` of one topic."""

    def __init__(
        self,
        cluster: Cluster,
        connection: KafkaConnection,
        source: KafkaSourceSpec,
        sink: SinkSpec,
        urn: DatasetUrn,
        dataset: DatasetSpec,
    ) -> None:
        options = topic_options(dataset)
        self._cluster = cluster
        self._connection = connection
        self._source = source
        self._sink = sink
        self._urn = urn
        self._dataset = dataset
        self._topic = options.topic or urn
        self._with_headers = "headers" in options.kafka.keep
        self._decoder: ArrowDecoder | None = None
        # Also of the reader, which looks up what it is assigned.
        self._starts: dict[str, VnodeStart] = {}

    @property
    def stream(self) -> None:
        """Each topic is read by itself."""

    @property
    def decoder(self) -> RowDecoder:
        """RejectedError names an option that only Spark carries out."""
        if self._decoder is None:
            read = topic_options(self._dataset).kafka
            self._decoder = ArrowDecoder(read, self._topic, field=f"datasets[{self._urn}].kafka")
        return self._decoder

    def find_start(self, state: DatasetState) -> LogStart:
        request = SourceRequest(
            urn=self._urn, partition=WHOLE, state=state, mode=Mode.APPEND, by_hand=False, spec=self._dataset
        )
        found = find_start_positions(self._cluster, request, isolation=self._source.isolation)
        self._starts |= found.vnodes
        return LogStart(
            found.vnodes, facts=found.facts, notes=found.notes, degraded=found.degraded, memory=found.topic_id
        )

    def open_reader(self, starts: Sequence[LogStart], say: Callable[[str], None]) -> KafkaEpochLog:
        del say
        (start,) = starts
        if not isinstance(start.memory, str):
            raise CorruptionError(f"{self._urn}: where its topic begins was not asked")
        barriers: TimeBarriers | MarkerBarriers = TimeBarriers(self._sink.every_s)
        if self._sink.barriers == "log":
            barriers = MarkerBarriers(self._sink.alignment_s)
        return KafkaEpochLog(
            self._connection,
            topic_ids={self._topic: start.memory},
            barriers=barriers,
            starts=self._starts,
            isolation=self._source.isolation,
            with_headers=self._with_headers,
            # Records whose rows come from Spark are only counted.
            with_times=self._decoder is not None and self._decoder.needs_times,
        )
