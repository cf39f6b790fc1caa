"""The part of ``SparkEngine`` that needs Spark's own modules: the engine imports it when it first needs them."""

from collections.abc import Callable, Iterable

from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.jobs.ingest.extractor import SparkExtractor
from gobblin_assets.jobs.ingest.rewriter import SparkRewriter
from gobblin_assets.settings import read_settings
from gobblin_assets.spark import connect_server
from gobblin_assets.spark.cancellation import interrupt_described
from gobblin_assets.spark.session import open_session, runs_spark_itself

__all__ = ["SparkExtractor", "SparkRewriter", "find_warm", "interrupt_attempt", "open_session", "runs_spark_itself"]


def interrupt_attempt(remote: str | None, attempt: AttemptRecord) -> None:
    """End the attempt on the server ``remote``, else on the warm server of GOBBLIN_HOME."""
    if remote is None and attempt.interruption is not None:
        # The process that began the attempt may have used the warm server, even if this one would not.
        server = connect_server.find(read_settings().home)
        remote = None if server is None else server.url
    interrupt_described(remote, attempt.interruption)


def find_warm(needed: Iterable[str], say: Callable[[str], None]) -> str | None:
    """The URL of GOBBLIN_HOME's warm server, if it answers and has these connectors."""
    server = connect_server.find(read_settings().home)
    if server is None:
        return None
    missing = sorted(set(needed) - set(server.capabilities))
    if missing:
        options = " ".join(f"--capability {name}" for name in (*server.capabilities, *missing))
        say(
            f"Spark: a session of this process, since the warm server has no connector for {', '.join(missing)}; "
            f"to use it: gobblin-assets spark stop, then spark start {options}"
        )
        return None
    say(f"Spark: the warm Connect server on port {server.port}")
    return server.url
