"""Ingestion: a job's specification, sources read by Spark, packing, conversion, quality, writing, and the run."""
