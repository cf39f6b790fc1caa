"""What is of no family becomes the failure of the work in which it came up."""

import errno
import pickle

import pytest

from gobblin_assets.errors import CorruptionError, FencedError, RetryableError
from gobblin_assets.model.defects import explain_exception, find_family, traceback_of


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EACCES, "Permission denied"), False),
        (OSError(errno.EIO, "Input/output error"), False),
        (TimeoutError("timed out"), True),
        (ConnectionResetError("reset by peer"), True),
        (MemoryError(), True),
    ],
    ids=repr,
)
def test_what_the_system_refuses_may_be_there_later(error: Exception, passes: bool) -> None:
    found = find_family("orders", error)

    assert isinstance(found, RetryableError)
    assert found.passes is passes
    assert pickle.loads(pickle.dumps(found)).passes is passes
    assert not traceback_of(found)


def test_all_else_is_a_defect_whose_traceback_is_said_once() -> None:
    said: list[str] = []

    found = explain_exception("orders", _raised(), said.append)
    again = explain_exception("orders", found, said.append)

    assert again is found
    assert isinstance(found, CorruptionError)
    assert "orders: an unexpected ZeroDivisionError" in str(found)
    assert said == [traceback_of(found)]
    assert "_raised" in said[0]


def test_a_family_is_itself_and_a_contradiction_goes_through() -> None:
    fenced = FencedError("taken over")
    assert find_family("orders", fenced) is fenced
    with pytest.raises(AssertionError, match="two owners"):
        find_family("orders", AssertionError("two owners"))


def _raised() -> Exception:
    try:
        raise ZeroDivisionError("of rows")
    except ZeroDivisionError as error:
        return error
