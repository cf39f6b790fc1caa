"""Tests that share servers go to one worker: only what xdist sees of the groups has an effect."""

import pytest


def test_xdist_sees_the_group_of_a_test(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("there are no workers that groups could be divided among")
    # The scheduler reads it from there. Releases of pytest that xdist does not know give a name without it.
    assert request.node.nodeid.endswith("@tests/architecture/test_work_groups.py")
