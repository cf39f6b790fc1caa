from tests.support.spark import connect, spark, spark_settings

__all__ = ["connect", "spark", "spark_settings"]
