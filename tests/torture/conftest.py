from tests.support.kafka import kafka_broker, topic
from tests.support.spark import spark, spark_settings
from tests.support.topics import ingest

__all__ = ["ingest", "kafka_broker", "spark", "spark_settings", "topic"]
