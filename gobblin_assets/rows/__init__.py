"""Rows on Spark: names and types of columns, converters, quality, event time, writing and reading Parquet."""
