"""The slots of workers by an instance's limits, and the sinks that one sensor tells of."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from dagster._core.run_coordinator.queued_run_coordinator import RunQueueConfig

from gobblin_assets.dagster.run_config import SINK_TAG
from gobblin_assets.dagster.ticket_sinks import TOLD_AFTER_S, read_sinks, update_sinks, write_sinks
from gobblin_assets.dagster.worker_slots import read_workers_max
from gobblin_assets.model.job_ticket import TicketId


@pytest.mark.parametrize(
    ("limits", "runs", "expected"),
    [
        ([{"key": SINK_TAG, "limit": 2}], 4, 2),
        ([{"key": SINK_TAG, "limit": 9}, {"key": "another", "limit": 1}], 4, 4),
        ([{"key": SINK_TAG, "value": "shop", "limit": 1}], 4, 4),
        ([{"key": SINK_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}], -1, None),
    ],
)
def test_workers_at_once_are_what_the_queue_s_limits_let_run(
    limits: list[Mapping[str, Any]], runs: int, expected: int | None
) -> None:
    assert read_workers_max(RunQueueConfig(runs, limits)) == expected


def test_without_a_queue_no_worker_waits() -> None:
    assert read_workers_max(None) is None


def test_a_sink_is_told_of_for_a_while_after_its_last_ticket_has_ended() -> None:
    first, second = TicketId(uuid.uuid4()), TicketId(uuid.uuid4())
    sinks = update_sinks({}, {"shop": first, "news": first}, 100.0)
    sinks["shop"].checks = "{}"
    replaced = update_sinks(read_sinks(write_sinks(sinks)), {"shop": second}, 200.0)
    assert (replaced["shop"].ticket, replaced["shop"].checks) == (second, "{}")
    assert replaced["news"] == sinks["news"]
    assert set(update_sinks(replaced, {}, 100.0 + TOLD_AFTER_S)) == {"shop"}


@pytest.mark.parametrize("cursor", [None, "", "{", "[1]", '{"shop": 3}'])
def test_a_cursor_of_something_else_is_begun_anew(cursor: str | None) -> None:
    assert read_sinks(cursor) == {}
