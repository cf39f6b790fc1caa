"""The part of ``SparkEngine`` that needs Spark's own modules: the engine imports it when it first needs them."""

import os
from collections.abc import Callable, Iterable

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.settings import read_settings
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.s3 import S3_CAPABILITY
from gobblin_assets.spark.session import (
    count_session_slots,
    find_ui,
    is_session_lost,
    open_session,
    runs_spark_itself,
)
from gobblin_assets.spark.starvation import watch_executors

__all__ = [
    "SparkExtractor",
    "SparkRewriter",
    "count_session_slots",
    "find_ui",
    "find_warm",
    "interrupt_attempt",
    "is_session_lost",
    "open_session",
    "runs_spark_itself",
    "watch_executors",
]


def interrupt_attempt(remote: str | None, attempt: AttemptRecord) -> None:
    """End the attempt on the server ``remote``, else on the warm server of GOBBLIN_HOME."""
    if remote is None and attempt.interruption is not None:
        # The process that began the attempt may have used the warm server, even if this one would not.
        server = connect_server.find(read_settings().home)
        remote = None if server is None else server.url
    interrupt_described(remote, attempt.interruption)


def find_warm(needed: Iterable[str], say: Callable[[str], None], *, hdfs_user: str | None = None) -> str | None:
    """The URL of GOBBLIN_HOME's warm server, if it answers, and has these connectors, stores and ``hdfs_user``."""
    server = connect_server.find(read_settings().home)
    if server is None:
        return None
    wanted = set(needed)
    missing = sorted(wanted - set(server.capabilities))
    if missing:
        why = f"has no connector for {', '.join(missing)}"
    elif S3_CAPABILITY in wanted and not server.reaches_s3_by(os.environ):
        why = "was started with other variables of S3 (GOBBLIN_S3_…, AWS_…)"
    elif hdfs_user not in {None, server.hdfs_user}:
        why = f"reaches HDFS as {server.hdfs_user or 'nobody'}, and not as {hdfs_user} (GOBBLIN_HDFS_…)"
    else:
        say(f"Spark: the warm Connect server on port {server.port}")
        return server.url
    options = " ".join(f"--capability {name}" for name in (*server.capabilities, *missing))
    say(
        f"Spark: a session of this process, since the warm server {why}; "
        f"to use it: gobblin-assets spark stop, then spark start {options}"
    )
    return None
