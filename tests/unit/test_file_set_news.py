"""For which file sets a sensor asks: once for each change, again after a failure, one of a dataset at a time."""

from collections.abc import Collection, Mapping

from gobblin_assets.dagster.file_set_sensors import (
    DueSets,
    RunEnd,
    SetMemory,
    decide_sets,
    go_on_with,
    name_set,
    read_set_memory,
    write_set_memory,
)
from gobblin_assets.dagster.sensor_ticks import TRY_WAIT_S_FIRST
from gobblin_assets.jobs.programs import SetId
from gobblin_assets.model.urn import DatasetUrn

PHOTOS, LOGS = DatasetUrn("photos"), DatasetUrn("logs")
MONDAY, TUESDAY, OF_LOGS = SetId(PHOTOS, "2026-01-05"), SetId(PHOTOS, "2026-01-06"), SetId(LOGS, "2026-01-05")
JOBS = {PHOTOS: "daily", LOGS: "daily"}


def decide(
    marks: Mapping[SetId, str | None],
    before: DueSets | None = None,
    *,
    ends: RunEnd = RunEnd.GOOD,
    busy: Collection[str] = (),
    now_s: float = 0.0,
) -> DueSets:
    """A tick after another one, all of whose runs ended in one way."""
    memory = read_set_memory(write_set_memory(SetMemory({} if before is None else before.notes)))
    keys = {note.run_key for note in memory.notes.values() if note.run_key}
    return decide_sets(list(marks), marks, busy, memory, dict.fromkeys(keys, ends), JOBS, now_s=now_s)


def asked(due: DueSets) -> list[list[SetId]]:
    return [list(each.sets) for each in due.wanted]


def test_a_set_is_asked_for_once_for_each_mark() -> None:
    first = decide({MONDAY: "a"})
    assert asked(first) == [[MONDAY]]
    second = decide({MONDAY: "a"}, first)
    assert asked(second) == []
    third = decide({MONDAY: "b"}, second)
    assert asked(third) == [[MONDAY]]
    assert asked(decide({MONDAY: "b"}, decide({MONDAY: "b"}, third))) == []


def test_a_mark_that_comes_back_makes_a_run_key_of_its_own() -> None:
    ticks = [decide({MONDAY: "a"}, now_s=1.0)]
    for number, mark in enumerate("ba", start=2):
        ticks.append(decide({MONDAY: mark}, ticks[-1], now_s=float(number)))
    keys = [each.run_key for due in ticks for each in due.wanted]
    assert len(set(keys)) == 3


def test_a_set_that_is_not_ready_is_not_asked_for() -> None:
    due = decide({MONDAY: None, OF_LOGS: "a"})
    assert (asked(due), due.unready) == ([[OF_LOGS]], [MONDAY])


def test_sets_of_one_key_share_a_run_and_sets_of_one_dataset_come_one_after_another() -> None:
    marks = {TUESDAY: "a", MONDAY: "a", OF_LOGS: "a"}
    first = decide(marks)
    assert asked(first) == [[TUESDAY], [OF_LOGS]]
    assert first.busy == [MONDAY]
    assert asked(decide(marks, first)) == [[MONDAY]]
    assert asked(decide({MONDAY: "a", OF_LOGS: "a"})) == [[MONDAY, OF_LOGS]]


def test_nothing_is_asked_of_a_dataset_at_work() -> None:
    due = decide({MONDAY: "a", OF_LOGS: "a"}, busy={PHOTOS})
    assert (asked(due), due.busy) == ([[OF_LOGS]], [MONDAY])
    working = decide({OF_LOGS: "b"}, due, ends=RunEnd.WORKING)
    assert (asked(working), working.busy) == ([], [OF_LOGS])


def test_a_run_that_failed_is_asked_for_again_after_a_while_and_under_another_key() -> None:
    first = decide({MONDAY: "a"})
    held = decide({MONDAY: "a"}, first, ends=RunEnd.FAILED, now_s=TRY_WAIT_S_FIRST - 1)
    assert (asked(held), held.held) == ([], [MONDAY])
    again = decide({MONDAY: "a"}, held, ends=RunEnd.FAILED, now_s=TRY_WAIT_S_FIRST)
    assert asked(again) == [[MONDAY]]
    assert again.wanted[0].run_key != first.wanted[0].run_key
    longer = decide({MONDAY: "a"}, again, ends=RunEnd.FAILED, now_s=2 * TRY_WAIT_S_FIRST + 1)
    assert longer.held == [MONDAY]


def test_a_set_that_there_was_no_time_for_keeps_its_note_and_comes_first_next_time() -> None:
    first = decide({MONDAY: "a"})
    memory = SetMemory(first.notes)
    ends = dict.fromkeys([each.run_key for each in first.wanted], RunEnd.GOOD)
    due = decide_sets([MONDAY, OF_LOGS], {OF_LOGS: "a"}, (), memory, ends, JOBS, now_s=1.0)
    assert (asked(due), set(due.notes)) == ([[OF_LOGS]], {name_set(MONDAY), name_set(OF_LOGS)})
    assert go_on_with([MONDAY, TUESDAY, OF_LOGS], name_set(TUESDAY)) == [TUESDAY, OF_LOGS, MONDAY]
    assert go_on_with([MONDAY, TUESDAY], "gone") == [MONDAY, TUESDAY]


def test_a_cursor_that_somebody_typed_counts_as_none() -> None:
    assert read_set_memory("what?") == read_set_memory(None) == SetMemory()
