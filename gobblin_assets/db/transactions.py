"""One transaction, repeated within bounds until its outcome is known.

An exception says about the transaction:

    rolled back   the server answered (deadlock, serialization, no room): the transaction has not happened
    lost          the connection broke: before COMMIT was sent it has not happened; after that the outcome is unknown
    anything else the transaction has not happened, and repeating it would not help

A body is written so that a repetition is safe: the client makes the ids, and a guarded statement that finds its own
work done succeeds. So a lost acknowledgement is resolved by running the body again.
"""

import logging
import random
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Final, TypeVar

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_assets import failpoints
from gobblin_assets.errors import OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import Failpoint

T = TypeVar("T")

# Together about 11 seconds of waiting: longer than the restart of a server, shorter than a lease.
TRIES_MAX: Final = 10
BACKOFF_S_FIRST: Final = 0.05
BACKOFF_S_MAX: Final = 3.0

_log = logging.getLogger(__name__)

_PASSING: Final = ("53", "40", "55P03", "55006", "57014", "57P", "08", "25P03", "25P04", "25006")
"""A server without room, transactions that others have rolled back, locks that others have, bounds on time, a server
that starts, ends or is away, and one that takes no writes for now.
"""


class TransactionFault(StrEnum):
    """The outcome of a transaction, as the exception that it raised shows it."""

    ROLLED_BACK = "rolled back"
    LOST = "lost"
    FINAL = "final"


def transact(
    engine: Engine,
    name: str,
    body: Callable[[Connection], T],
    *,
    committed: Failpoint | None = None,
    tries: int = TRIES_MAX,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Run ``body`` in one transaction and return what it returned in the try that was acknowledged.

    ``committed`` is reached after each COMMIT and inside the retry, so that tests of a lost acknowledgement run the
    same code as a real loss. Errors that a repetition does not resolve (constraints, programming errors, our own
    families) pass through unchanged.

    Raises:
        RetryableError: the tries are used up, and it has not happened.
        OutcomeUnknownError: the tries are used up, and in one of them the connection broke at the COMMIT.

    """
    in_doubt = False
    for number in range(1, tries + 1):
        commit_sent = False
        try:
            with engine.connect() as connection, connection.begin() as transaction:
                result = body(connection)
                commit_sent = True
                transaction.commit()
            if committed is not None:
                failpoints.reach(committed)
        except (DBAPIError, psycopg.Error, PoolTimeoutError, OSError) as error:
            fault = decide_fault(error, commit_sent=commit_sent)
            if fault is TransactionFault.FINAL:
                raise
            in_doubt = in_doubt or (fault is TransactionFault.LOST and commit_sent)
            if number == tries:
                raise _exhausted(name, tries, error, in_doubt=in_doubt) from error
            wait_s = _backoff_s(number)
            _log.warning(
                "transaction %s: try %d of %d %s (%s); again in %.2f s",
                name,
                number,
                tries,
                fault,
                _said(error),
                wait_s,
            )
            sleep(wait_s)
        else:
            return result
    raise ValueError(f"transaction {name}: tries must be at least 1, not {tries}")


def decide_fault(error: Exception, *, commit_sent: bool) -> TransactionFault:
    """What ``error`` says, judged by its SQLSTATE; pure."""
    if isinstance(error, PoolTimeoutError):
        return TransactionFault.ROLLED_BACK
    if isinstance(error, OSError):
        # Bodies may do more than Postgres; only a broken connection, or an error at the COMMIT, belongs to the
        # transaction.
        return TransactionFault.LOST if commit_sent or isinstance(error, ConnectionError) else TransactionFault.FINAL
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return TransactionFault.LOST
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, psycopg.OperationalError):
        return TransactionFault.FINAL
    match cause.sqlstate:
        case None | "57P01" | "57P02" | "57P03":
            # An error without a SQLSTATE comes from libpq itself; the others come from a server that stops, died, or
            # starts.
            return TransactionFault.LOST
        case "40001" | "40P01":
            return TransactionFault.ROLLED_BACK
        case state if state.startswith("08"):
            return TransactionFault.LOST
        case state if state.startswith("53"):
            # No disk, memory or connections left, as the server says: this may pass.
            return TransactionFault.ROLLED_BACK
        case _:
            return TransactionFault.FINAL


def _backoff_s(number: int) -> float:
    longest = min(BACKOFF_S_MAX, BACKOFF_S_FIRST * 2.0 ** (number - 1))
    # Half of it is random, so that the clients of a restarted server don't all come back at once.
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  jitter, not a secret


def _exhausted(name: str, tries: int, error: Exception, *, in_doubt: bool) -> RetryableError | OutcomeUnknownError:
    if in_doubt:
        return OutcomeUnknownError(
            f"transaction {name}: the connection broke at the COMMIT, and {tries} tries did not bring an answer:"
            f" {_said(error)}",
            hint="Read the log first; clean nothing up.",
            transaction=name,
        )
    return RetryableError(
        f"transaction {name} did not happen in {tries} tries: {_said(error)}",
        passes=True,
        hint="Check that Postgres runs (gobblin-assets db status).",
        transaction=name,
    )


def _said(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return f"{type(cause).__name__}: {str(cause).strip()}"


def is_passing_state(state: str | None) -> bool:
    """None: there is no state, as of a lost connection."""
    return not state or state.startswith(_PASSING)
