"""The kind of steps that load topics, with the client. Imported when a process first has to do with such a step."""

from typing import Final

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.destinations.kafka.kafka_topics import open_topics
from gobblin_assets.destinations.kafka.load_topic import LOAD_TOPIC, MarkedTopics, read_topic_load, write_topic_load

LOAD_TOPIC_KIND: Final = StepKind(
    LOAD_TOPIC, JsonCodec(write_topic_load, read_topic_load), opens={MarkedTopics: open_topics}
)
