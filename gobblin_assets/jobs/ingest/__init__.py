"""Ingestion: tables and topics, read by Spark or Arrow, to Parquet files that the commit log publishes."""
