"""Topics of Kafka as a kind of destination."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gobblin_assets.spec.destination_kind import DestinationKind, IntoSpec


class TopicsSpec(IntoSpec):
    """Topics of Kafka, into which the rows of the job's datasets go, instead of files below its destination."""

    type: Literal["kafka"]
    connection: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")] = Field(
        description="Of a Kafka connection: the variables GOBBLIN_KAFKA_<CONNECTION>_BOOTSTRAP_SERVERS and so on."
    )
    topic: Annotated[str, Field(min_length=1, max_length=249)] = Field(
        "{dataset}", description="The topic of each dataset; {dataset} is its urn. Topics are made, unless they exist."
    )
    key: tuple[str, ...] = Field(
        (), description="Columns that make a record's key: one as its plain value, several as a JSON array."
    )
    partitions: int = Field(-1, ge=-1, le=100_000, description="Of a topic that is made; -1: the brokers' default.")
    replication_factor: int = Field(
        -1, ge=-1, le=1_000, description="Of a topic that is made, that of marks too; -1: the brokers' default."
    )
    marks_topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,249}$")] = Field(
        "gobblin_lane", description="The compacted topic with one partition that says what was loaded."
    )


KAFKA: Final = DestinationKind(
    name="kafka",
    spec=TopicsSpec,
    variables="KAFKA",
    address="BOOTSTRAP_SERVERS",
    place="gobblin_assets.destinations.kafka.topics_place:choose_topics",
    of_datasets=frozenset({"topic", "key", "partitions", "replication_factor"}),
    steps={"load_topic": "gobblin_assets.destinations.kafka.load_topic_kind:LOAD_TOPIC_KIND"},
)
