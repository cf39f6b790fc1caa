"""Executors: processes that take tickets of a log, run their jobs, and report how far they are."""
