"""How long lanes and logs that fail are left alone."""

from gobblin_assets.jobs.sink.lane_holding import decide_back_off_s


def test_back_offs_grow_up_to_five_minutes() -> None:
    assert [decide_back_off_s(count) for count in (1, 2, 3, 6, 7, 8, 100)] == [
        5.0,
        10.0,
        20.0,
        160.0,
        300.0,
        300.0,
        300.0,
    ]


def test_a_lane_that_failed_for_weeks_backs_off_as_long_as_before() -> None:
    assert decide_back_off_s(10_000) == 300.0
