"""A run's mode and options, from its configuration and its tags."""

import pytest

from gobblin_assets.dagster.run_config import decide_run_mode, is_by_hand
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode


def test_the_mode_is_auto_unless_config_or_tag_say_otherwise() -> None:
    assert decide_run_mode(None, {}) is Mode.AUTO
    assert decide_run_mode("refresh", {}) is Mode.REFRESH
    assert decide_run_mode(None, {"gobblin/mode": "append"}) is Mode.APPEND
    assert decide_run_mode("append", {"gobblin/mode": "append"}) is Mode.APPEND


def test_an_unknown_mode_is_rejected_with_the_modes_there_are() -> None:
    with pytest.raises(RejectedError, match="expected one of append, refresh, auto, found 'full'"):
        decide_run_mode("full", {})


def test_config_and_tag_that_contradict_each_other_are_rejected() -> None:
    with pytest.raises(RejectedError, match=r"'refresh'.*'append'"):
        decide_run_mode("refresh", {"gobblin/mode": "append"})


@pytest.mark.parametrize("tag", ["dagster/sensor_name", "dagster/schedule_name", "dagster/from_automation_condition"])
def test_a_run_that_a_rule_asked_for_is_not_by_hand(tag: str) -> None:
    assert not is_by_hand({tag: "x", "dagster/backfill": "b"})


def test_a_person_s_backfill_is_by_hand() -> None:
    assert is_by_hand({"dagster/backfill": "b", "dagster/partition": "2013-01-01", "user": "me"})
