"""A copy in ranges: where ranges begin, which of them has a change, and what is left of it."""

import struct
from itertools import product

import pytest

from gobblin_assets.errors import CorruptionError
from gobblin_assets.sources.postgres_log.change_gathering import JudgedChange, judge_change
from gobblin_assets.sources.postgres_log.copy_ranges import (
    RANGES_MAX,
    KeyRange,
    PartialCopy,
    SeenRanges,
    SeenTransactions,
    parse_partial,
    parse_ranges,
    split_keys,
)

OID = struct.pack(">I", 77)
TWO = SeenRanges("id", (100,), ())


def row(kind: str, *values: "str | None") -> bytes:
    """``?``: not sent."""
    cells = [b"n" if each is None else b"u" if each == "?" else _text(each) for each in values]
    return kind.encode() + struct.pack(">H", len(values)) + b"".join(cells)


def _text(value: str) -> bytes:
    return b"t" + struct.pack(">I", len(value)) + value.encode()


def left_of(payload: bytes, *verdicts: bool) -> "JudgedChange | None":
    return judge_change(payload, TWO, verdicts, 1)


def test_keys_are_divided_by_the_rows_between_them() -> None:
    assert split_keys((1, 1000), 4) == (250, 500, 750)
    assert split_keys((0, 10, 20, 1_000_000, 1_000_010), 4) == (10, 20, 1_000_000)
    assert split_keys((5, 7), 100) == (6,)
    assert split_keys((5, 5), 3) == ()
    assert len(split_keys((-(2**63), 2**63 - 1), 100_000)) == RANGES_MAX - 1


def test_ranges_are_open_at_both_ends_and_leave_no_key_out() -> None:
    seen = SeenTransactions(10, 20, (11,), 500)
    ranges = SeenRanges("id", (-5, 100), ())
    found = []
    while not ranges.is_whole:
        following = ranges.next_range
        assert following is not None
        found.append(following)
        ranges = ranges.add(seen)
    assert found == [KeyRange("id", None, -5), KeyRange("id", -5, 100), KeyRange("id", 100, None)]
    for key in (-(2**63), -6, -5, 0, 99, 100, 2**63 - 1):
        (holding,) = (
            number
            for number, each in enumerate(found)
            if (each.low is None or key >= each.low) and (each.high is None or key < each.high)
        )
        assert ranges.find_range(key) == holding
    assert parse_ranges(ranges.write()) == ranges
    partial = PartialCopy(1 << 33, "shape", ranges)
    assert parse_partial(partial.write()) == partial


def test_snapshots_are_asked_as_long_as_one_of_them_may_have_a_transaction() -> None:
    older, newer = SeenTransactions(10, 20, (), 500), SeenTransactions(30, 40, (), 900)
    ranges = SeenRanges("id", (0,), (older, newer))
    assert ranges.list_verdicts(15, 400) == (True, True)
    assert ranges.list_verdicts(25, 700) == (False, True)
    assert ranges.list_verdicts(35, 950) == ()


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"column": "id", "bounds": [3, 2], "seen": []},
        {"column": None, "bounds": [3], "seen": []},
        {"column": "id", "bounds": ["x"], "seen": []},
        {"column": "id", "bounds": [], "seen": ["10:20:@0/1", "10:20:@0/1"]},
        {"column": "id", "bounds": [], "seen": ["?"]},
    ],
)
def test_damaged_facts(said: object) -> None:
    with pytest.raises(CorruptionError):
        parse_ranges(said)


@pytest.mark.parametrize(("first", "second"), [*product([True, False], repeat=2)])
def test_rows_that_stay_in_their_range_are_judged_by_it(first: bool, second: bool) -> None:
    for kind, tag in (("I", "N"), ("D", "K"), ("D", "O"), ("U", "N")):
        for key, verdict in (("-3", first), ("100", second)):
            payload = kind.encode() + OID + row(tag, "x", key)
            assert left_of(payload, first, second) == (None if verdict else JudgedChange(payload))


def test_of_a_row_that_moves_the_half_is_left_that_no_copy_has() -> None:
    update = b"U" + OID + row("K", None, "5") + row("N", "x", "200")
    assert left_of(update, True, True) is None
    assert left_of(update, False, False) == JudgedChange(update)
    assert left_of(update, False, True) == JudgedChange(b"D" + OID + row("K", None, "5"))
    assert left_of(update, True, False) == JudgedChange(b"I" + OID + row("N", "x", "200"), step=1)
    unsent = b"U" + OID + row("K", None, "5") + row("N", "?", "200")
    found = left_of(unsent, True, False)
    assert found is not None
    assert found.lost == "a row came into a range that was copied, without its large values"
    whole = b"U" + OID + row("O", "large", "5") + row("N", "?", "200")
    assert left_of(whole, True, False) == JudgedChange(b"I" + OID + row("N", "large", "200"), step=1)


def test_what_can_not_be_divided_is_lost() -> None:
    truncation = b"T" + struct.pack(">IB", 1, 0) + OID
    assert left_of(truncation, True, False) == JudgedChange(truncation, lost="it was truncated")
    insert = b"I" + OID + row("N", "x", "5")
    found = judge_change(insert, TWO, (True, False), None)
    assert found is not None
    assert found.lost == "its column id was dropped or renamed"


@pytest.mark.parametrize(
    "payload",
    [
        b"I" + OID + b"N",
        b"I" + OID + row("N", "x", "5")[:-1],
        b"I" + OID + row("N", "x", "five"),
        b"I" + OID + row("N", "x", None),
        b"I" + OID + row("N", "x"),
        b"I" + OID + b"N" + struct.pack(">H", 1) + b"?",
        b"U" + OID + row("K", None, "5"),
    ],
)
def test_damaged_messages(payload: bytes) -> None:
    with pytest.raises(CorruptionError):
        left_of(payload, True, False)
