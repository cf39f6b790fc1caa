"""Exactly-once data ingestion: partitioned Dagster assets, read by Spark, published through a log in Postgres."""

__version__ = "0.1.0"
