"""When the time of a file tells its version: a machine of clocks, steps and writers, and the waits of plans."""

import datetime as dt
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Conversion, CopyItem, PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.sameness import (
    AHEAD_NS_MAX,
    TICK_NS_MAX,
    Likeness,
    Sameness,
    compare_files,
    is_tick_over,
    tick_end,
)
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED
from gobblin_assets.jobs.copy.worker import wait_for_tick, wait_for_ticks
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.files import FileIdentity
from tests.support.tree_entries import file_entry

S_NS = 1_000_000_000
MS_NS = 1_000_000
NOW_NS = 1_800_000_000 * S_NS

STEPS = (1, 100, 1_000, MS_NS, 4 * MS_NS, 10 * MS_NS, S_NS, 2 * S_NS)
"""Of sources: exact ones, those of protocols, the kernel's clocks, old servers, FAT."""


@given(
    step_ns=st.sampled_from(STEPS),
    kept_ns=st.sampled_from((1, 100, MS_NS, 10 * MS_NS, S_NS, 2 * S_NS)),
    rounds=st.booleans(),
    written_ns=st.integers(NOW_NS, NOW_NS + 4 * S_NS),
    later_ns=st.integers(0, 6 * S_NS),
)
def test_who_writes_after_the_tick_of_a_version_gives_another_time(
    step_ns: int, kept_ns: int, rounds: bool, written_ns: int, later_ns: int
) -> None:
    """Whatever steps the source has, and the destination keeps: the copy of the first version differs."""
    first_ns = written_ns // step_ns * step_ns
    read_ns = max(written_ns, tick_end(first_ns, kept_ns))
    second_ns = (read_ns + later_ns) // step_ns * step_ns
    copied_ns = (first_ns + (kept_ns // 2 if rounds else 0)) // kept_ns * kept_ns

    sameness = Sameness(mtime_precision_ns=max(step_ns if step_ns >= S_NS else 1, kept_ns))
    found, _why = compare_files(file_entry("f", mtime_ns=second_ns), file_entry("f", mtime_ns=copied_ns), sameness)

    assert found is Likeness.CONTENT_DIFFERS
    assert tick_end(first_ns, kept_ns) - first_ns <= TICK_NS_MAX


@pytest.mark.parametrize(
    ("time_ns", "is_over"),
    [
        (NOW_NS - 3 * S_NS, True),
        (NOW_NS - 2 * S_NS, False),  # the clock of a server may be behind
        (NOW_NS - S_NS, False),
        (NOW_NS - 20 * MS_NS + 1, True),
        (NOW_NS - 9 * MS_NS, False),
        (NOW_NS, False),
        (NOW_NS + S_NS, False),
        (NOW_NS + AHEAD_NS_MAX + 1, True),  # somebody set it
    ],
)
def test_a_time_is_trusted_once_its_step_is_over(time_ns: int, is_over: bool) -> None:
    assert is_tick_over(time_ns, NOW_NS, 1, is_far=False) is is_over
    entry = file_entry("f", mtime_ns=time_ns)
    found, why = compare_files(entry, entry, Sameness(now_ns=NOW_NS))
    assert (found is Likeness.SAME) is is_over
    assert is_over or why == "was written just now, and may be another version of the same time"


@pytest.mark.parametrize(("precision_ns", "is_far"), [(1, True), (S_NS, False), (2 * S_NS, False)])
def test_coarse_copies_and_servers_take_longer(precision_ns: int, is_far: bool) -> None:
    time_ns = NOW_NS - 15 * MS_NS
    assert is_tick_over(time_ns, NOW_NS, 1, is_far=False)
    assert not is_tick_over(time_ns, NOW_NS, precision_ns, is_far=is_far)


class SleepingClock(SystemClock):
    """Goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now_ns = NOW_NS
        self.slept: list[float] = []

    def now(self) -> dt.datetime:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=self.now_ns // 1_000)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ns += round(seconds * S_NS)


def origin(mtime_ns: int, changed_ns: int | None = None) -> TreeEntry:
    return TreeEntry("a", EntryKind.FILE, FileIdentity(1, 2, mtime_ns), changed_ns=changed_ns)


def wait_of(*files: PlannedFile, step_ns: int = 1, **options: Any) -> tuple[float, tuple[str, ...], list[str]]:
    items = tuple(CopyItem(number, each.path, (each,)) for number, each in enumerate(files, start=1))
    plan = CopyPlan(**{"source_root": "/in", "preserve": NOTHING_PRESERVED, "items": items, **options})
    clock, said = SleepingClock(), list[str]()
    notes = wait_for_ticks(plan, clock, said.append, lambda: step_ns)
    return round(sum(clock.slept), 2), notes, said


LONG_AGO = origin(NOW_NS - 60 * S_NS - 1, NOW_NS - 60 * S_NS - 1)


@pytest.mark.parametrize(
    ("file", "options", "wait_s"),
    [
        (LONG_AGO, {}, 0.0),
        (origin(NOW_NS - 1), {}, 0.01),
        (origin(NOW_NS), {}, 2.1),
        (origin(NOW_NS - S_NS), {}, 0.1),
        (origin(1, NOW_NS - 1), {}, 0.01),  # its time was set, as unpacking does
        (origin(1, NOW_NS), {}, 2.1),
        (origin(NOW_NS - 1, 1), {"source_root": "sftp://host/in"}, 0.11),
        (origin(NOW_NS - 1, 1), {"mtime_precision_ns": S_NS}, 2.01),
        (origin(NOW_NS - 1, 1), {"step_ns": S_NS}, 2.01),  # which the first run of a destination finds out
        (origin(NOW_NS + 3 * S_NS, 1), {}, 4.1),
    ],
)
def test_a_run_waits_until_what_it_reads_has_settled(file: TreeEntry, options: dict[str, Any], wait_s: float) -> None:
    waited, notes, said = wait_of(PlannedFile.of("a", LONG_AGO), PlannedFile.of("b", file), **options)
    assert (waited, notes) == (wait_s, ())
    assert said == (
        []
        if wait_s < 1
        else [f"1 file was written just now: waiting {wait_s:.1f} s, until a later version has another time"]
    )


def test_files_that_are_packed_count_one_by_one() -> None:
    conversion = Conversion(2, parts=(PackedOrigin.of(LONG_AGO), PackedOrigin.of(origin(NOW_NS))))
    assert wait_of(PlannedFile.of("all.tar", LONG_AGO, conversion=conversion))[0] == 2.1
    set_ahead = Conversion(2, parts=(PackedOrigin.of(origin(NOW_NS + 60 * S_NS, 1)),))
    assert wait_of(PlannedFile.of("all.tar", origin(NOW_NS + 60 * S_NS), conversion=set_ahead)) == (0, (), [])


def test_nobody_waits_for_a_clock_that_is_far_ahead_which_is_said() -> None:
    ahead_ns = NOW_NS + 3_600 * S_NS
    assert wait_of(PlannedFile.of("a", origin(ahead_ns, 1))) == (0, (), []), "a person may set a time"
    for found in (origin(ahead_ns), origin(1, ahead_ns)):
        waited, notes, said = wait_of(PlannedFile.of("a", found), PlannedFile.of("b", LONG_AGO))
        note = "1 file has a time ahead of this machine's clock, such as 'a'"
        assert (waited, [*notes], said) == (0, [f"{note}: set the clocks, or changes may stay unseen"], [*notes])


@pytest.mark.parametrize(("time_ns", "wait_s"), [(0, 0), (NOW_NS, 2.1), (NOW_NS + 60 * S_NS, 0)])
def test_what_was_written_settles_before_it_is_published(time_ns: int, wait_s: float) -> None:
    clock = SleepingClock()
    wait_for_tick(time_ns, clock)
    assert sum(clock.slept) == pytest.approx(wait_s)


def test_no_step_of_a_source_is_longer_than_its_times_tell() -> None:
    for step_ns, number in itertools.product(STEPS, range(50)):
        time_ns = (NOW_NS // step_ns + number) * step_ns
        assert tick_end(time_ns) >= time_ns + step_ns
