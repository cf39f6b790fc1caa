"""The query of Structured Streaming that hands a batch over, as Spark shows it inside ``foreachBatch``.

Spark runs the function in the thread that runs the query, and sets the query's id there as a local property. When the
batch was planned stands in the query's log of offsets. PySpark has no call for that log: it is reached through the
queries that the JVM lists, and whoever asks can do without.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark.sql import DataFrame, SparkSession, is_remote

from gobblin_assets.errors import RejectedError

_QUERY_ID: Final = "sql.streaming.queryId"


def find_query_id(frame: DataFrame) -> str:
    """The id, kept in the checkpoint, of the query whose ``foreachBatch`` calls. RejectedError if none calls."""
    if is_remote():
        raise RejectedError(
            "expected a session inside this process, found one on a Spark Connect server, which does not say which "
            "query hands a batch over",
            field="foreachBatch",
            hint="Start the query in a program with a session of its own, by SparkSession.builder.master(...).",
        )
    found = frame.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise RejectedError(
            "expected a call by foreachBatch of a running query, found none in this thread",
            field="foreachBatch",
            hint="Give the function to writeStream.foreachBatch, or call it in a function that you give there, in the "
            "same thread. With PYSPARK_PIN_THREAD=false, Spark does not say which query calls: leave that out.",
        )
    return str(found)


def find_planned_at_ms(frame: DataFrame, query_id: str, batch_id: int) -> int | None:
    """When Spark planned the batch, in milliseconds since 1970; the same each time that it hands the batch over.

    None where the JVM does not show it.
    """
    session = cast("Any", frame.sparkSession)
    try:
        number = session._jvm.java.util.UUID.fromString(query_id)  # noqa: SLF001  the only way to the JVM's queries
        query = session._jsparkSession.sharedState().activeStreamingQueries().get(number)  # noqa: SLF001  the same
        return int(query.offsetLog().get(batch_id).get().metadata().get().batchTimestampMs())
    except (Py4JError, AttributeError, TypeError, ValueError):
        return None


@contextmanager
def session_with(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings inside the block, and as it was behind it."""
    before: dict[str, str | None] = {key: spark.conf.get(key, None) for key in conf}
    for key, value in conf.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)
