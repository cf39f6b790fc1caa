"""Child processes that are forked from a process without threads, which has imported what any of them needs.

A process has one such server for all its children. What it has not imported, each child imports again.
"""

import multiprocessing
from typing import Final

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([
    # Pyarrow's first array imports pandas, which takes longer than the work of a child.
    *("pandas", "grpc", "pyspark.sql.connect.session", "pyspark.sql.connect.functions.builtin"),
    *(f"tests.support.{name}" for name in ("lake", "sink_lake", "log_lake", "table_lake", "copy_lake")),
    *(f"tests.support.{name}" for name in ("loaded_sink", "loaded_lake", "restoring", "spark", "dagster_topics")),
    *("tests.support.ticket_shop", "gobblin_assets.cli.executors", "gobblin_assets.jobs.ingest.program"),
])  # fmt: skip
