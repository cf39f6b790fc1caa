from tests.support.kafka import kafka_broker, topic
from tests.support.spark import connect, spark, spark_settings

__all__ = ["connect", "kafka_broker", "spark", "spark_settings", "topic"]
