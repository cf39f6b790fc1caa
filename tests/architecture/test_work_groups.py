"""Tests that share servers go to one worker: only what xdist sees of the groups has an effect."""

import pytest


def test_xdist_sees_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("there are no workers that groups could be divided among")
    # The scheduler reads it from there. Releases of pytest that xdist does not know give a name without it.
    assert request.node.nodeid.endswith("@tests/architecture/test_work_groups.py")


def test_a_server_has_one_fixture(request: pytest.FixtureRequest) -> None:
    """A session's fixture that two modules import is two fixtures: the process would have a server of each."""
    places: dict[object, set[str]] = {}
    for item in request.session.items:
        assert isinstance(item, pytest.Function)
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            for each in definitions:
                if each.scope == "session":
                    places.setdefault(each.func, set()).add(each.baseid)
    assert {str(function): found for function, found in places.items() if len(found) > 1} == {}
