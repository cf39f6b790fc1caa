"""Ingestion: tables and topics, read by Spark, to Parquet files that the commit log publishes."""
