"""Errors cross processes unchanged, as worker pools pass them on by pickling; a database can store their texts."""

import pickle

import pytest

from gobblin_assets import errors
from gobblin_assets.errors import ErrorFamily, GobblinError, RejectedError, family_of
from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.seal_decision import QualityFailedError

FAMILIES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, GobblinError)]


@pytest.mark.parametrize("kind", [kind for kind in FAMILIES if kind is not RejectedError])
def test_a_family_comes_back_with_its_hint_and_fields(kind: type[GobblinError]) -> None:
    error = pickle.loads(pickle.dumps(kind("it is gone", hint="Put it back.", path="/lake")))

    assert type(error) is kind
    assert (str(error), error.message, error.hint) == ("it is gone. Put it back.", "it is gone", "Put it back.")
    assert error.fields == {"path": "/lake"}


def test_a_rejection_still_names_its_field() -> None:
    error = pickle.loads(pickle.dumps(RejectedError("expected a number", field="retry", hint="Write 3.", found="x")))

    assert (str(error), error.field) == ("retry: expected a number. Write 3.", "retry")
    assert error.fields == {"field": "retry", "found": "x"}


def test_an_error_of_another_shape_comes_back_too() -> None:
    checks = (CheckResult("rows", passed=False, blocking=True, description="too few"),)

    error = pickle.loads(pickle.dumps(QualityFailedError("orders", checks)))

    assert error.checks == checks
    assert "too few" in str(error)


def test_each_family_has_its_word_and_a_leaf_has_that_of_its_family() -> None:
    direct = {kind.__name__ for kind in FAMILIES if GobblinError in kind.__bases__}
    assert {family.value for family in ErrorFamily} == direct
    assert family_of(QualityFailedError("orders", ())) is ErrorFamily.REJECTED
    with pytest.raises(ValueError, match="no family"):
        family_of(GobblinError("it is gone"))


def test_a_text_that_no_database_takes_is_escaped() -> None:
    error = RejectedError("\udcff\0 is no name", field="source", hint="Rename \udcfe.", path="/a/\udcff")
    assert str(error) == r"source: \udcff\0 is no name. Rename \udcfe."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
