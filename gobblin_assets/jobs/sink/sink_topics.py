"""The topics of a sink whose rows become records of Kafka. Checked before anything is written; connects to nothing."""

import os
import re
from collections.abc import Mapping
from typing import Final

from gobblin_assets.destinations.kafka.topic_batches import LoadedTopic
from gobblin_assets.destinations.kafka.topics_place import TopicsPlace
from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.sink_tables import refuse_directories, require_staged_types
from gobblin_assets.kafka.addresses import read_cluster, servers_variable
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.sources.environment import address_variable
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.spec.sink_spec import TopicsSpec
from gobblin_assets.spec.source_kind import kind_of

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]")
_DATASET: Final = "{dataset}"
_NAME_LENGTH_MAX: Final = 249


def choose_topics(job: JobSpec, into: TopicsSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> TopicsPlace:
    """The topic of each dataset. RejectedError names the field and the fix."""
    require_staged_types(job)
    read_cluster(into.connection)
    rest = into.topic.replace(_DATASET, "")
    if _UNUSUAL.search(rest):
        raise RejectedError(
            f"expected letters, digits, '.', '_', '-' and {_DATASET}, found {into.topic!a}",
            field="sink.into.topic",
            hint=f'Write it like "out.{_DATASET}".',
        )
    if len(set(into.key)) != len(into.key):
        raise RejectedError("a column is named twice", field="sink.into.key", hint="Name each column once.")
    chosen: dict[str, DatasetUrn] = {}
    for urn, spec in specs.items():
        refuse_directories(urn, spec)
        name = into.topic.replace(_DATASET, _UNUSUAL.sub("_", urn))
        _require_name(name, urn)
        if name in chosen:
            raise RejectedError(
                f"{chosen[name]} and {urn} would both go into {name}",
                field="sink.into.topic",
                hint=f'Write {_DATASET} in it, like "out.{_DATASET}", or give one of them another urn.',
            )
        if name == into.marks_topic:
            raise RejectedError(
                f"{urn} would go into the topic of marks", field="sink.into.marks_topic", hint="Name another topic."
            )
        chosen[name] = urn
    _refuse_loops(job, into, chosen, specs)
    return TopicsPlace(
        into.connection,
        {urn: LoadedTopic(name, into.key, into.partitions, into.replication_factor) for name, urn in chosen.items()},
        into.marks_topic,
    )


def _require_name(name: str, urn: DatasetUrn) -> None:
    if len(name) > _NAME_LENGTH_MAX or name in {".", ".."}:
        raise RejectedError(
            f"the topic of {urn} would be {name[:300]!a}, and names have 1 to {_NAME_LENGTH_MAX} characters",
            field=f"datasets[{urn}].urn",
            hint="Give the dataset another urn.",
        )


def _refuse_loops(
    job: JobSpec, into: TopicsSpec, chosen: Mapping[str, DatasetUrn], specs: Mapping[DatasetUrn, DatasetSpec]
) -> None:
    """RejectedError for a sink that would read what it writes."""
    kind = kind_of(job.source)
    if kind.connection is None or not _is_same_cluster(address_variable(job.source), servers_variable(into.connection)):
        return
    for urn, spec in specs.items():
        read = (spec.model_extra or {}).get(kind.noun) or urn
        if read in chosen or read == into.marks_topic:
            raise RejectedError(
                f"{urn} reads the {kind.noun} {read} of the cluster into which rows go, and the sink writes it",
                field="sink.into.topic",
                hint=f'Write another name, like "out.{_DATASET}".',
            )


def _is_same_cluster(source: str, into: str) -> bool:
    """As far as the variables of the two addresses and their values say."""
    return source == into or bool(_list_brokers(source) & _list_brokers(into))


def _list_brokers(variable: str) -> set[str]:
    return {each.strip().lower() for each in os.environ.get(variable, "").split(",") if each.strip()}
