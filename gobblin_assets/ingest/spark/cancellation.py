"""Stopping what runs under a tag: how, depends on the kind of session.

Connect keeps a running operation on the server: ``interruptTag`` reaches it from any thread or process that
knows the session's id. In a classic session ``interruptTag`` does nothing across threads, so jobs are
tagged in the thread that starts them and cancelled by the tag. Neither reaches what has not started yet:
whoever cancels also tells its workers to start nothing more.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from pyspark.sql import SparkSession, is_remote

from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.spark.connect_calls import interrupt
from gobblin_assets.ingest.spark.session import parse_address
from gobblin_assets.ingest.spark.spark_errors import spark_families


class Cancellation(Protocol):
    """The port that a run uses; ``tag`` is any text without a comma."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Tag every action that this thread starts inside the block."""
        ...

    def cancel(self, tag: str) -> None:
        """From any thread: stop all that runs under the tag. The action raises where it was called."""
        ...


class ClassicCancellation:
    """For a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self._context.addJobTag(_checked(tag))
        # Without the interrupt a task goes on until its next row, which a slow query may never give.
        self._context.setInterruptOnCancel(True)
        try:
            yield
        finally:
            self._context.removeJobTag(tag)
            self._context.setInterruptOnCancel(False)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(_checked(tag))


class ConnectCancellation:
    """For a session on a Connect server."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self._spark.addTag(_checked(tag))
        try:
            yield
        finally:
            self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        with spark_families(f"interrupt {tag}"):
            self._spark.interruptTag(_checked(tag))


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """What lets another process reach a session's operations on the server. None of it is a secret."""

    session_id: str
    user_id: str


def open_cancellation(spark: SparkSession) -> Cancellation:
    """The implementation for this session's kind."""
    return ConnectCancellation(spark) if is_remote() else ClassicCancellation(spark)


def find_session_identity(spark: SparkSession) -> SessionIdentity | None:
    """The identity on the Connect server; None for a classic session, whose jobs end with its process."""
    if not is_remote():
        return None
    client = cast("Any", spark).client
    return SessionIdentity(session_id=client._session_id, user_id=client._user_id or "")  # noqa: SLF001  Connect shows neither


def interrupt_left_behind(remote: str, identity: SessionIdentity, tag: str) -> int:
    """Stop what a client that is gone left running under ``tag`` on the server at ``remote``.

    The number of operations found, after all of them have ended. RetryableError where the server does not
    answer or an operation does not end: nothing of the attempt may be touched then.
    """
    parse_address(remote)
    return interrupt(remote, session_id=identity.session_id, user_id=identity.user_id, tag=_checked(tag))


def _checked(tag: str) -> str:
    if not tag or "," in tag:
        raise RejectedError(f"expected a text without comma, found {tag!r}", field="tag", hint="Use the attempt's id.")
    return tag
