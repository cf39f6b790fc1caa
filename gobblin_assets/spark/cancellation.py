"""Stops the work that runs under a tag; the way depends on the kind of session.

Connect keeps a running operation on the server: ``interruptTag`` reaches it from any thread or process that
knows the session's id. In a classic session ``interruptTag`` does nothing across threads, so jobs are
tagged in the thread that starts them and cancelled by the tag. That call does not hold for later jobs: a job that is
submitted a moment after it runs (seen: a write that had made its directory and not yet its job). So ``cancel`` repeats
the call until the tagged blocks have ended. A Connect server interrupts an operation's thread once. Hadoop may swallow
the interrupt at that moment (seen), and the write goes on to its end. The write raises all the same, so its files are
never accepted; ``cancel`` reports that it did not end in time.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Condition
from typing import Any, Final, Protocol, cast

from pyspark.sql import SparkSession, is_remote

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.spark.connect_calls import interrupt
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.session import parse_address

CANCEL_S_MAX: Final = 60.0
"""An interrupted task ends at once or at its next row; a block may have some files to look at."""

CANCEL_REPEAT_S: Final = 0.2


class Cancellation(Protocol):
    """The port that a run uses: one object for all its threads. ``tag`` is any text without a comma."""

    def tagged(self, tag: str) -> AbstractContextManager[None]:
        """Tag every action that this thread starts inside the block."""
        ...

    def cancel(self, tag: str) -> None:
        """Stop all that runs under the tag; the action raises where it was called. Returns when no block of
        this tag is left, so another thread must call it; RetryableError if a block stays. A block that is entered
        later is not stopped: the caller also tells its workers to start nothing more.
        """
        ...


class ClassicCancellation:
    """``Cancellation`` for a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._blocks = _Blocks()

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        with self._blocks.entered(tag):
            self._context.addJobTag(tag)
            # Without the interrupt, a task goes on until its next row, and a slow query may never give one.
            self._context.setInterruptOnCancel(True)
            try:
                yield
            finally:
                self._context.removeJobTag(tag)
                self._context.setInterruptOnCancel(False)

    def cancel(self, tag: str) -> None:
        self._blocks.end(tag, self._context.cancelJobsWithTag)


class ConnectCancellation:
    """``Cancellation`` for a session on a Connect server."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._blocks = _Blocks()

    @contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        with self._blocks.entered(tag):
            self._spark.addTag(tag)
            try:
                yield
            finally:
                self._spark.removeTag(tag)

    def cancel(self, tag: str) -> None:
        self._blocks.end(tag, self._spark.interruptTag)


class _Blocks:
    """Counts of the threads that are inside a block of each tag."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._inside: Counter[str] = Counter()

    @contextmanager
    def entered(self, tag: str) -> Iterator[None]:
        with self._changed:
            self._inside[_checked(tag)] += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside[tag] -= 1
                self._changed.notify_all()

    def end(self, tag: str, stop: Callable[[str], object]) -> None:
        end = time.monotonic() + CANCEL_S_MAX
        while time.monotonic() < end:
            with spark_families(f"cancel {tag}"):
                stop(_checked(tag))
            with self._changed:
                if self._changed.wait_for(lambda: self._inside[tag] <= 0, CANCEL_REPEAT_S):
                    return
        raise RetryableError(f"what runs under {tag} did not end in {CANCEL_S_MAX:.0f} s", tag=tag)


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    """With this, another process can reach a session's operations on the server. None of it is a secret."""

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


def describe_interruption(identity: SessionIdentity | None, tag: str) -> Mapping[str, object] | None:
    """What ``interrupt_described`` needs, as JSON; None for a classic session."""
    if identity is None:
        return None
    return {"session_id": identity.session_id, "user": identity.user_id, "tag": tag}


def interrupt_described(remote: str | None, described: Mapping[str, object] | None) -> None:
    """End a dead attempt's work on the Connect server at ``remote``. RetryableError if it does not end.

    In a classic session nothing is left to end: its work ended with its process.
    """
    if remote is None or described is None or not described.get("session_id") or not described.get("tag"):
        return
    identity = SessionIdentity(str(described["session_id"]), str(described.get("user") or ""))
    interrupt_left_behind(remote, identity, str(described["tag"]))


def interrupt_left_behind(remote: str, identity: SessionIdentity, tag: str) -> int:
    """Stop what a dead client left running under ``tag`` on the server at ``remote``.

    Returns the number of operations that this call interrupted, after they have ended. RetryableError where the server
    does not answer or an operation does not end. This keeps the server from useless work. Cleanup is safe for another
    reason: it captures the attempt's directory first, and repeats, since a task may still make its file again (seen).
    """
    parse_address(remote)
    return interrupt(remote, session_id=identity.session_id, user_id=identity.user_id, tag=_checked(tag))


def _checked(tag: str) -> str:
    if not tag or "," in tag:
        raise RejectedError(f"expected a text without comma, found {tag!r}", field="tag", hint="Use the attempt's id.")
    return tag
