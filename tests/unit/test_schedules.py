"""When flows start: expressions, zones whose clocks change, spread and maintenance windows."""

import datetime as dt
import itertools
import time
import uuid
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.schedules import DailyWindow, Schedule, find_window_end, leave_time, parse_schedule

_MINUTE = dt.timedelta(minutes=1)
_ALL_DAYS = frozenset(range(7))

_BERLIN, _NEW_YORK, _LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"

# Written by hand: the schedule, its zone, a moment, and the slots behind it, all in UTC.
_SLOTS = [
    # The clock goes on at 2026-03-29 01:00 UTC from 2:00 to 3:00, and back at 2026-10-25 01:00 UTC from 3:00 to 2:00.
    ("30 2 * * *", _BERLIN, "2026-03-28 00:00", ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
    ("30 2 * * *", _BERLIN, "2026-10-24 00:00", ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"]),
    ("0 15 2 * * ?", _BERLIN, "2026-03-28 02:00", ["2026-03-29 01:00", "2026-03-30 00:15"]),
    ("0 0,30 2 * * ?", _BERLIN, "2026-03-28 02:00", ["2026-03-29 01:00", "2026-03-30 00:00", "2026-03-30 00:30"]),
    ("@hourly", _BERLIN, "2026-10-24 23:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 02:00"]),
    ("*/30 2 * * *", _BERLIN, "2026-10-24 23:59", [
        "2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-26 01:00",
    ]),
    ("*/50 2 25 10 *", _BERLIN, "2026-10-25 00:55", ["2026-10-25 01:00", "2026-10-25 01:50", "2027-10-25 00:00"]),
    ("*/30 2 * * *", _BERLIN, "2026-03-28 02:00", ["2026-03-30 00:00", "2026-03-30 00:30"]),
    ("0 */3 * * *", _BERLIN, "2026-03-28 23:30", ["2026-03-29 01:00", "2026-03-29 04:00"]),
    ("0 0 0/2 * * ?", _BERLIN, "2026-10-24 22:30", ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 03:00"]),
    ("@weekly", _BERLIN, "2026-03-24 00:00", ["2026-03-28 23:00", "2026-04-04 22:00"]),
    # 2026-03-08 07:00 UTC, and 2026-11-01 06:00 UTC.
    ("15 1 * * *", _NEW_YORK, "2026-11-01 04:00", ["2026-11-01 05:15", "2026-11-02 06:15"]),
    ("15,45 2 * * *", _NEW_YORK, "2026-03-08 05:00", ["2026-03-08 07:00", "2026-03-09 06:15", "2026-03-09 06:45"]),
    # Half an hour: on at 2026-10-03 15:30 UTC from 2:00 to 2:30, and back at 2026-04-04 15:00 UTC from 2:00 to 1:30.
    ("0 */3 * * *", _LORD_HOWE, "2026-10-03 14:00", ["2026-10-03 16:00", "2026-10-03 19:00"]),
    ("0 */3 * * *", _LORD_HOWE, "2026-04-04 13:30", ["2026-04-04 16:30", "2026-04-04 19:30"]),
    ("*/15 * * * *", _LORD_HOWE, "2026-04-04 14:30", [
        "2026-04-04 14:45", "2026-04-04 15:00", "2026-04-04 15:15", "2026-04-04 15:30",
    ]),
    ("15 2 * * *", _LORD_HOWE, "2026-10-03 10:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
    ("45 1 * * *", _LORD_HOWE, "2026-04-04 14:00", ["2026-04-04 14:45", "2026-04-05 15:15"]),
    # A day without its midnight: on at 2026-04-23 22:00 UTC from 0:00 to 1:00.
    ("@daily", "Africa/Cairo", "2026-04-22 21:00", ["2026-04-22 22:00", "2026-04-23 22:00", "2026-04-24 21:00"]),
    ("30 5 * * *", "Asia/Kolkata", "2026-03-28 23:00", ["2026-03-29 00:00", "2026-03-30 00:00"]),
    ("0 0 29 2 *", "UTC", "2026-01-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
    ("0 12 L 2 *", "UTC", "2026-06-01 00:00", ["2027-02-28 12:00", "2028-02-29 12:00"]),
    ("0 0 13 * 5", "UTC", "2026-11-30 00:00", ["2026-12-04 00:00", "2026-12-11 00:00", "2026-12-13 00:00"]),
    ("@monthly", "UTC", "2026-11-30 00:00", ["2026-12-01 00:00", "2027-01-01 00:00"]),
    ("@YEARLY", "UTC", "2026-11-30 00:00", ["2027-01-01 00:00"]),
    ("0 0 3 ? * MON#1", "UTC", "2026-03-01 00:00", ["2026-03-02 03:00", "2026-04-06 03:00"]),
    ("30 15 10 ? * 6L", "UTC", "2026-03-01 00:00", ["2026-03-27 10:15:30", "2026-04-24 10:15:30"]),
    ("0 0 12 LW * ?", "UTC", "2026-05-01 00:00", ["2026-05-29 12:00", "2026-06-30 12:00"]),
    ("0 0 12 L FEB ?", "UTC", "2027-05-01 00:00", ["2028-02-29 12:00"]),
    ("0 0 22 ? * FRI-MON", "UTC", "2026-03-01 23:00", ["2026-03-02 22:00", "2026-03-06 22:00"]),
    ("0 0 22 ? NOV-JAN 1", "UTC", "2026-11-25 00:00", ["2026-11-29 22:00", "2026-12-06 22:00"]),
    ("0 0 22 ? * L", "UTC", "2026-11-25 00:00", ["2026-11-28 22:00", "2026-12-05 22:00"]),
    ("0 0 22 ? * 2#1,FRIL", "UTC", "2026-11-25 00:00", ["2026-11-27 22:00", "2026-12-07 22:00"]),
    ("0 0/20 8 ? * 2", "UTC", "2026-03-01 00:00", [
        "2026-03-02 08:00", "2026-03-02 08:20", "2026-03-02 08:40", "2026-03-09 08:00",
    ]),
    ("0 0 0 1/1 * ? *", "UTC", "2026-03-01 00:00", ["2026-03-02 00:00", "2026-03-03 00:00"]),
    ("0 0 0 1 1 ? 2027/2", "UTC", "2026-03-01 00:00", ["2027-01-01 00:00", "2029-01-01 00:00"]),
    ("0 0 0 29 2 ? 2027-2031,2095-2099", "UTC", "2026-03-01 00:00", ["2028-02-29 00:00", "2096-02-29 00:00"]),
]  # fmt: skip

_REFUSED = [
    ("* * *", "five fields"),
    ("0 3 * * ?", "is no day of the week"),
    ("61 * * * *", "is no minute"),
    ("0 0 15W * *", "is no day of the month"),
    ("0 0 30 2 *", "never comes"),
    ("0 0 */31 * MON#5", "never comes"),
    ("0 0 0 30 2 ?", "never comes"),
    ("0 0 0 29 2 ? 2027", "never comes"),
    ("@reboot", "there is no schedule"),
    ("0 0 3 15W * ?", "can't be said"),
    ("0 0 3 L-3 * ?", "can't be said"),
    ("* 0 3 * * ?", "one second of a minute"),
    ("0/10 0 3 * * ?", "one second of a minute"),
    ("0 0 3 * * *", "expected ?"),
    ("0 0 3 ? * ?", "expected ?"),
    ("0 0 3 ? * 8", "day of the week from 1 to 7"),
    ("0 0 3 ? * MON#6", "behind #"),
    ("0 0 24 * * ?", "hour from 0 to 23"),
    ("0 0/0 3 * * ?", "is no step"),
    ("0 0 3 * FOO ?", "month from 1 to 12"),
    ("0 0 3 * * ? 1969", "year from 1970"),
    ("0 0 3 * * ? 2030-2029", "has no years"),
    (",".join(map(str, range(60))) + " 1,2,3,4,5,6,7,8,9,10,11,12,13,14 1,2,3 * *", "200 characters"),
]


def _at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def _parse(text: str, zone: str = "UTC") -> Schedule:
    schedule = parse_schedule(text, zone)
    assert schedule is not None
    return schedule


@pytest.mark.parametrize(("text", "zone", "after", "slots"), _SLOTS)
def test_slots_are_those_of_the_table(text: str, zone: str, after: str, slots: list[str]) -> None:
    schedule, expected = _parse(text, zone), [_at(slot) for slot in slots]
    assert schedule.list_slots(_at(after), expected[-1], 10) == expected
    for before, slot in zip([_at(after), *expected], expected, strict=False):
        assert schedule.next_after(slot - dt.timedelta(microseconds=1)) == slot
        assert schedule.next_after(before) == slot


@pytest.mark.parametrize(("text", "said"), _REFUSED)
def test_what_cant_be_said_or_never_comes_is_refused_soon(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(RejectedError, match=r"^schedule: ") as refused:
        parse_schedule(text, "UTC")
    assert said in str(refused.value)
    assert refused.value.hint
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("zone", ["", "Europe/Berln", "../etc/passwd", "+01:00"])
def test_a_zone_that_is_not_known_is_refused(zone: str) -> None:
    with pytest.raises(RejectedError, match=r"^timezone: "):
        parse_schedule("@daily", zone)


def test_a_flow_that_always_runs_has_no_slots() -> None:
    schedule = _parse("@continuous")
    assert schedule.is_continuous
    assert schedule.next_after(_at("2026-01-01 00:00")) is None
    assert parse_schedule("  ", "UTC") is None


def test_a_schedule_ends_with_its_years() -> None:
    schedule = _parse("0 0 0 1 1 ? 2020,2021")
    assert schedule.next_after(_at("2020-06-01 00:00")) == _at("2021-01-01 00:00")
    assert schedule.next_after(_at("2021-01-01 00:00")) is None
    assert schedule.spread(uuid.uuid4(), 900).next_after(_at("2022-01-01 00:00")) is None


# Days whose clocks change, and one whose don't.
_DAYS = {
    _BERLIN: ("2026-03-29", "2026-10-25", "2026-07-01"),
    _NEW_YORK: ("2026-03-08", "2026-11-01", "2026-07-01"),
    _LORD_HOWE: ("2026-10-04", "2026-04-05", "2026-07-01"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30", "2026-07-01"),
    "Asia/Kolkata": ("2026-03-29",),
}

_minutes = st.sets(st.sampled_from([0, 15, 29, 30, 45, 59]), min_size=1, max_size=3)
_hours = st.sets(st.integers(0, 4) | st.sampled_from([12, 23]), min_size=1, max_size=4)


def _walk(zone: str, begin: dt.datetime, minutes: set[int], hours: set[int], *, fixed: bool) -> Iterator[dt.datetime]:
    """Slots by a clock on the wall that is looked at each minute."""
    seen = begin.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    for count in range(1, 40 * 60):
        instant = begin + count * _MINUTE
        wall = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if not fixed:
            if wall.minute in minutes and wall.hour in hours:
                yield instant
            continue
        # The clock passes what it leaves out, and passes nothing where it is behind what it has shown.
        passed = [seen + step * _MINUTE for step in range(1, int((wall - seen) / _MINUTE) + 1)]
        if any(each.minute in minutes and each.hour in hours for each in passed):
            yield instant
        seen = max(seen, wall)


@settings(max_examples=60)
@given(data=st.data(), zone=st.sampled_from(sorted(_DAYS)), minutes=_minutes, hours=_hours, fixed=st.booleans())
def test_slots_are_those_that_a_clock_on_the_wall_shows(
    data: st.DataObject, zone: str, minutes: set[int], hours: set[int], *, fixed: bool
) -> None:
    day = dt.datetime.fromisoformat(data.draw(st.sampled_from(_DAYS[zone])))
    begin = (day - dt.timedelta(hours=6)).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
    if not fixed:
        minutes = set(range(0, 60, data.draw(st.sampled_from([1, 15, 30, 50]))))
    steps = sorted(minutes)
    minute = ",".join(map(str, steps)) if fixed else f"*/{60 if len(steps) == 1 else steps[1] - steps[0]}"
    schedule = _parse(f"{minute} {','.join(map(str, sorted(hours)))} * * *", zone)
    expected = list(_walk(zone, begin, minutes, hours, fixed=fixed))
    assert schedule.list_slots(begin, begin + 40 * 60 * _MINUTE - _MINUTE, 5_000) == expected


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */5 * * *", "30 2 * * *", "0 0 L * *", "15 10 1 ? * MON#1"]),
    st.sampled_from(sorted(_DAYS)),
    st.integers(1_577_836_800, 1_893_456_000),
    st.uuids(),
    st.integers(1, 3_000),
)
def test_slots_rise_with_and_without_spread(
    text: str, zone: str, epoch: int, flow_id: uuid.UUID, spread_s: int
) -> None:
    plain, moment = _parse(text, zone), dt.datetime.fromtimestamp(epoch, dt.UTC)
    first, second = plain.next_after(moment), plain.next_after(moment + dt.timedelta(days=1))
    assert first is not None
    assert second is not None
    assert moment < first <= second
    spread = plain.spread(flow_id, spread_s)
    slots = plain.list_slots(moment, moment + dt.timedelta(days=400), 4)
    later = spread.list_slots(slots[0] - dt.timedelta(seconds=1), slots[-1], 3)
    assert len(later) == 3
    for slot, after, at in zip(slots, slots[1:], later, strict=False):
        assert slot <= at < min(after, slot + dt.timedelta(seconds=spread_s))
        assert spread.next_after(at - dt.timedelta(microseconds=1)) == at


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "* 0-11 * * *", "0,59 0,23 * * *", "30 2 * * *", "0 30 1 L * ?"]),
    st.sampled_from(sorted(_DAYS)),
    st.integers(1_577_836_800, 1_893_456_000),
    st.uuids(),
    st.sampled_from([1, 59, 60, 61, 3_600, 50_000, 86_400]),
)
def test_a_spread_slot_is_that_of_the_first_slot_which_comes_late_enough(
    text: str, zone: str, epoch: int, flow_id: uuid.UUID, spread_s: int
) -> None:
    plain, moment = _parse(text, zone), dt.datetime.fromtimestamp(epoch, dt.UTC)
    spread = plain.spread(flow_id, spread_s)
    slots = plain.list_slots(moment - dt.timedelta(seconds=spread_s), moment + dt.timedelta(days=63), 1_442)
    share = spread.spread_hash / 2**64
    later = [
        slot + dt.timedelta(seconds=int(share * min(spread_s, (after - slot).total_seconds())))
        for slot, after in itertools.pairwise(slots)
    ]
    assert spread.next_after(moment) == next(at for at in later if at > moment)


def test_a_wide_spread_of_a_dense_schedule_is_found_soon() -> None:
    schedule = _parse("* * * * *", _BERLIN).spread(uuid.UUID(int=7), 86_400)
    began = time.process_time()
    assert len(schedule.list_slots(_at("2026-11-01 00:00"), _at("2026-11-30 00:00"), 300)) == 300
    assert time.process_time() - began < 1


def test_flows_of_one_time_are_spread_evenly_and_always_alike() -> None:
    schedule, after = _parse("0 3 * * *"), _at("2026-11-30 00:00")
    moments = [schedule.spread(uuid.UUID(int=number), 900).next_after(after) for number in range(2_000)]
    minutes = [int((each - _at("2026-11-30 03:00")) / _MINUTE) for each in moments if each is not None]
    assert set(minutes) == set(range(15))
    assert max(minutes.count(each) for each in range(15)) < 200
    assert schedule.spread(uuid.UUID(int=7), 900).next_after(after) == moments[7]


def test_a_window_holds_up_to_its_end_in_the_zone_of_the_flow() -> None:
    night = DailyWindow(dt.time(22), dt.time(2), frozenset({5}))
    noon = DailyWindow(dt.time(12), dt.time(13), _ALL_DAYS)

    def find(moment: str) -> dt.datetime | None:
        return find_window_end([night, noon], _BERLIN, _at(moment))

    assert find("2026-11-28 20:59") is None
    assert find("2026-11-28 21:00") == find("2026-11-29 00:59") == _at("2026-11-29 01:00")
    assert find("2026-11-29 01:00") is None
    assert find("2026-11-29 23:00") is None
    assert find("2026-11-30 11:30") == _at("2026-11-30 12:00")
    # The night from Saturday, of which the hour from 2 is shown twice, ends when the clock first shows 2.
    assert find("2026-10-24 22:00") == _at("2026-10-25 00:00")


def test_windows_that_follow_each_other_are_one_and_must_leave_time() -> None:
    halves = [
        DailyWindow(dt.time(0), dt.time(12), _ALL_DAYS),
        DailyWindow(dt.time(12), dt.time(0), frozenset(range(6))),
    ]
    assert find_window_end(halves, "UTC", _at("2026-11-30 01:00")) == _at("2026-12-06 12:00")
    assert leave_time(halves)
    assert not leave_time([halves[0], DailyWindow(dt.time(12), dt.time(0), _ALL_DAYS)])
