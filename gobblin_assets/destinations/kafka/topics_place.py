"""The topics into which the rows of a job's datasets go."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.step_world import StepPorts
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.kafka.load_topic import LOAD_TOPIC, LoadTopic, MarkedTopics
from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic, TopicBatch
from gobblin_assets.destinations.kafka.topics_kind import TopicsSpec
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.rows_place import PlaceRequest, PlannedLoad
from gobblin_assets.errors import RejectedError
from gobblin_assets.kafka.connection import read_cluster, servers_variable
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.source_kind import kind_of

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]")
_DATASET: Final = "{dataset}"
_NAME_LENGTH_MAX: Final = 249


@dataclass(frozen=True, slots=True)
class TopicsPlace:
    """The topics of a job.

    ``connection``: the name of the cluster's. ``topics``: that of each dataset. ``marks``: the topic of marks.
    """

    connection: str
    topics: Mapping[DatasetUrn, LoadedTopic]
    marks: str

    def require(self) -> None:
        with self._open() as topics:
            topics.require(self.topics.values(), self.marks)

    def uri_of(self, urn: DatasetUrn) -> str:
        return f"kafka:{self.connection}/{self.topics[urn]}"

    @property
    def can_replace(self) -> bool:
        return False

    def make_step(self, urn: DatasetUrn, load: PlannedLoad) -> CommitStep:
        size_bytes = sum(file.identity.size_bytes for file in load.files)
        batch = TopicBatch(
            self.topics[urn], load.mark, load.version, load.sequence_id, load.row_count, size_bytes, load.is_marked
        )
        return LoadTopic(self.connection, batch, load.files)

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        del urn
        with self._open() as topics:
            return topics.find_settled_mark(mark)

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        with self._open() as topics:
            return topics.find_gone(self.topics[urn], mark, is_marked=True)

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        with self._open() as topics:
            topics.adopt(self.topics[urn], marks, row_count)

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        with self._open() as topics:
            return {urn: topics.count_loaded(mark) for urn, mark in marks.items()}

    def count_rows(self, urn: DatasetUrn) -> int | None:
        """Retention and compaction take records away, and others may add some."""
        del urn
        return None

    @contextmanager
    def _open(self) -> Iterator[MarkedTopics]:
        # The kind says what opens topics. It is imported here first, since it brings the client.
        get_kind(LOAD_TOPIC)
        with StepPorts() as ports:
            yield ports.get(MarkedTopics, self.connection)


def choose_topics(request: PlaceRequest) -> "TopicsPlace":
    """The topic of each dataset. RejectedError names the field and the fix."""
    into: TopicsSpec = request.into
    read_cluster(into.connection)
    chosen: dict[str, DatasetUrn] = {}
    for urn, each in request.of_datasets.items():
        name = _name_topic(urn, each, request)
        if name in chosen:
            raise RejectedError(
                f"{chosen[name]} and {urn} would both go into {name}",
                field=f"{request.option}.topic",
                hint=f'Write {_DATASET} in it, like "out.{_DATASET}", or give one of them another urn.',
            )
        if name == into.marks_topic:
            raise RejectedError(
                f"{urn} would go into the topic of marks",
                field=f"{request.option}.marks_topic",
                hint="Name another topic.",
            )
        chosen[name] = urn
    _refuse_loops(request, chosen)
    named = {urn: name for name, urn in chosen.items()}
    return TopicsPlace(
        into.connection,
        {
            urn: LoadedTopic(named[urn], each.key, each.partitions, each.replication_factor)
            for urn, each in request.of_datasets.items()
        },
        into.marks_topic,
    )


def _name_topic(urn: DatasetUrn, into: TopicsSpec, request: PlaceRequest) -> str:
    option = request.option if into == request.into else f"datasets[{urn}].into"
    if _UNUSUAL.search(into.topic.replace(_DATASET, "")):
        raise RejectedError(
            f"expected letters, digits, '.', '_', '-' and {_DATASET}, found {into.topic!a}",
            field=f"{option}.topic",
            hint=f'Write it like "out.{_DATASET}".',
        )
    if len(set(into.key)) != len(into.key):
        raise RejectedError("a column is named twice", field=f"{option}.key", hint="Name each column once.")
    name = into.topic.replace(_DATASET, _UNUSUAL.sub("_", urn))
    _require_name(name, urn)
    return name


def _require_name(name: str, urn: DatasetUrn) -> None:
    if len(name) > _NAME_LENGTH_MAX or name in {".", ".."}:
        raise RejectedError(
            f"the topic of {urn} would be {name[:300]!a}, and names have 1 to {_NAME_LENGTH_MAX} characters",
            field=f"datasets[{urn}].urn",
            hint="Give the dataset another urn.",
        )


def _refuse_loops(request: PlaceRequest, chosen: Mapping[str, DatasetUrn]) -> None:
    """RejectedError for a job that would read what it writes."""
    into, source = request.into, request.source_address
    if source is None or not _is_same_cluster(source, servers_variable(into.connection)):
        return
    noun = kind_of(request.job.source).noun
    for urn, spec in request.specs.items():
        read = (spec.model_extra or {}).get(noun) or urn
        if read in chosen or read == into.marks_topic:
            raise RejectedError(
                f"{urn} reads the {noun} {read} of the cluster into which rows go, and the job writes it",
                field=f"{request.option}.topic",
                hint=f'Write another name, like "out.{_DATASET}".',
            )


def _is_same_cluster(source: str, into: str) -> bool:
    """As far as the variables of the two addresses and their values say."""
    return source == into or bool(_list_brokers(source) & _list_brokers(into))


def _list_brokers(variable: str) -> set[str]:
    return {each.strip().lower() for each in os.environ.get(variable, "").split(",") if each.strip()}
