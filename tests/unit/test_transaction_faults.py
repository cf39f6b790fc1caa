"""The meaning of each kind of exception for the transaction in which it was raised."""

import errno

import psycopg
import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from gobblin_assets.db.engine import scrub
from gobblin_assets.db.transactions import TransactionFault, decide_fault


def wrapped(error: psycopg.Error, *, connection_invalidated: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", {}, error, connection_invalidated=connection_invalidated)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (errors.DeadlockDetected(), TransactionFault.ROLLED_BACK),
        (errors.SerializationFailure(), TransactionFault.ROLLED_BACK),
        (errors.DiskFull(), TransactionFault.ROLLED_BACK),
        (errors.TooManyConnections(), TransactionFault.ROLLED_BACK),
        (errors.AdminShutdown(), TransactionFault.LOST),
        (errors.CrashShutdown(), TransactionFault.LOST),
        (errors.CannotConnectNow(), TransactionFault.LOST),
        (errors.ConnectionFailure(), TransactionFault.LOST),
        (psycopg.OperationalError("server closed the connection unexpectedly"), TransactionFault.LOST),
        (errors.UniqueViolation(), TransactionFault.FINAL),
        (errors.ExclusionViolation(), TransactionFault.FINAL),
        (errors.UndefinedTable(), TransactionFault.FINAL),
        (errors.LockNotAvailable(), TransactionFault.FINAL),
        (errors.QueryCanceled(), TransactionFault.FINAL),
    ],
)
def test_the_sqlstate_decides_wrapped_or_not(error: psycopg.Error, fault: TransactionFault) -> None:
    for commit_sent in (False, True):
        assert decide_fault(error, commit_sent=commit_sent) is fault
        assert decide_fault(wrapped(error), commit_sent=commit_sent) is fault


def test_a_connection_that_sqlalchemy_gave_up_is_lost_whatever_the_error() -> None:
    error = wrapped(psycopg.InternalError(), connection_invalidated=True)

    assert decide_fault(error, commit_sent=False) is TransactionFault.LOST


def test_a_full_pool_means_that_nothing_happened() -> None:
    assert decide_fault(PoolTimeoutError(), commit_sent=False) is TransactionFault.ROLLED_BACK


def test_an_operating_system_error_is_ours_only_on_a_connection_or_at_the_commit() -> None:
    input_output = OSError(errno.EIO, "injected")

    assert decide_fault(input_output, commit_sent=False) is TransactionFault.FINAL
    assert decide_fault(input_output, commit_sent=True) is TransactionFault.LOST
    assert decide_fault(ConnectionResetError(), commit_sent=False) is TransactionFault.LOST


def test_scrub_knows_a_secret_in_every_spelling() -> None:
    message = "plain a b/c, quoted a%20b%2Fc, form a+b%2Fc, other x"

    assert scrub(message, {"a b/c"}) == "plain ***, quoted ***, form ***, other x"
