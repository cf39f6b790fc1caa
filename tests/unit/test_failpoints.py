"""Failpoints: parsed strictly, counted, and silent unless armed."""

import pytest

from gobblin_assets.failpoints import AcknowledgementLost, ArmedFailpoints, Failpoint, install, reach


def test_nothing_happens_at_a_point_that_nobody_armed() -> None:
    for point in Failpoint:
        reach(point)


def test_an_action_is_taken_at_its_count_only() -> None:
    armed = ArmedFailpoints("step_after=error@2, step_before=lose")
    armed(Failpoint.STEP_AFTER)
    with pytest.raises(OSError, match="injected at step_after"):
        armed(Failpoint.STEP_AFTER)
    armed(Failpoint.STEP_AFTER)
    with pytest.raises(AcknowledgementLost):
        armed(Failpoint.STEP_BEFORE)


@pytest.mark.parametrize("text", ["step_after", "step_after=explode", "nowhere=kill", "step_after=kill@soon"])
def test_what_arms_nothing_is_an_error_and_not_a_test_that_passes(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ArmedFailpoints(text)


def test_a_hook_hears_its_points_inside_its_block_only() -> None:
    heard: list[Failpoint] = []
    with install(heard.append):
        reach(Failpoint.LEASE_TAKEN)
    reach(Failpoint.SEAL_COMMITTED)
    assert heard == [Failpoint.LEASE_TAKEN]
