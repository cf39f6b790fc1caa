"""Kafka as a kind of source."""

from typing import Final

from gobblin_assets.sources.kafka.kafka_spec import KafkaSourceSpec, TopicOptions
from gobblin_assets.sources.kafka.topic_rules import REFUSED, check_source, check_topic
from gobblin_assets.spec.source_kind import Scaffold, SourceKind

KAFKA: Final = SourceKind(
    name="kafka",
    noun="topic",
    title="Kafka",
    spec=KafkaSourceSpec,
    dataset_options=TopicOptions,
    refused=REFUSED,
    connection="gobblin_assets.sources.kafka.cluster_connection:ClusterConnection",
    shown_as="kafka",
    scaffold=Scaffold(
        dataset="page_views",
        address="broker.example.com:9092",
        beside="_REGISTRY_URL, _USERNAME, _PASSWORD",
        datasets="""\
  datasets:
    # A topic, read on from where the last run ended. Write a list of those that you have.
{datasets}
""",
    ),
    check_job=check_source,
    check_dataset=check_topic,
    has_dead_letters=True,
)
