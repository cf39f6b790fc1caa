from tests.support.dagster_topics import events
from tests.support.mariadb import mariadb
from tests.support.mysql import mysql
from tests.support.spark import connect, spark, spark_settings
from tests.support.topics import ingest

__all__ = [
    "connect",
    "events",
    "ingest",
    "mariadb",
    "mysql",
    "spark",
    "spark_settings",
]
