"""When a window of a sink is closed, fact by fact."""

import datetime as dt
import uuid
from dataclasses import replace
from typing import Final

import pytest

from gobblin_assets.jobs.sink.sink_checks import is_closed, list_due
from gobblin_assets.model.state import RunId
from gobblin_assets.state.sinks import DatasetLook, LaneLook, SinkWorkerRow, WindowNews

END: Final = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
SECOND: Final = dt.timedelta(seconds=1)
A, B = (RunId(uuid.UUID(int=number)) for number in (1, 2))
WORKERS: Final = [SinkWorkerRow(each, "host", "the same", looked_at=END) for each in (A, B)]
LOOK: Final = DatasetLook(
    now=END,
    lanes=tuple(LaneLook(number, holder, 1, None, None) for number, holder in enumerate((A, B, None))),
    unfinished=frozenset({"2026-03-02"}),
    news=(WindowNews("2026-03-01", 7),),
)


def closed(look: DatasetLook = LOOK, workers: list[SinkWorkerRow] = WORKERS) -> bool:
    return is_closed(look, workers, "2026-03-01", END)


def test_a_window_is_closed_once_all_are_past_its_end() -> None:
    assert closed()


def test_it_is_open_until_its_end_is_past_by_the_log_s_clock_whatever_workers_say() -> None:
    assert not closed(replace(LOOK, now=END - SECOND))
    assert not closed(replace(LOOK, now=END - SECOND, lanes=()), [])


@pytest.mark.parametrize("said", [None, END - SECOND])
def test_it_is_open_while_a_worker_has_not_said_that_it_is_past_even_one_without_lanes(
    said: dt.datetime | None,
) -> None:
    late = [WORKERS[0], replace(WORKERS[1], looked_at=said)]
    assert not closed(workers=late)
    assert not closed(replace(LOOK, lanes=LOOK.lanes[:1]), late)


def test_it_is_open_while_somebody_else_holds_a_lane() -> None:
    assert not closed(workers=WORKERS[:1])


def test_it_is_open_while_a_sequence_of_it_is_unfinished_and_others_do_not_matter() -> None:
    assert not closed(replace(LOOK, unfinished=frozenset({"2026-03-01"})))
    assert closed(replace(LOOK, unfinished=frozenset({"2026-02-28", "2026-03-02"})))


def test_without_workers_a_window_closes_by_the_clock() -> None:
    assert closed(replace(LOOK, lanes=tuple(replace(lane, holder=None) for lane in LOOK.lanes)), [])


def due(*news: WindowNews) -> list[str]:
    ends = {"": None, "2026-03-01": END, "2026-03-02": END + dt.timedelta(days=1)}
    found = list_due(replace(LOOK, unfinished=frozenset(), news=news), WORKERS, ends.__getitem__, every_s=60.0)
    return [each.partition for each in found]


def test_closed_windows_are_due_and_a_dataset_without_windows_always() -> None:
    assert due(WindowNews("", 7)) == [""]
    assert due(WindowNews("2026-03-01", 7), WindowNews("2026-03-02", 8)) == ["2026-03-01"]


def test_of_one_partition_nobody_is_told_again_at_once() -> None:
    def told(ago_s: float) -> WindowNews:
        return WindowNews("2026-03-01", 7, reported_version=5, reported_row_count=3, reported_ago_s=ago_s)

    assert due(told(59.0)) == []
    assert due(told(60.0)) == ["2026-03-01"]
