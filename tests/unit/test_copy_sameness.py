"""When two files are the same: by length and time, by checksum, by attributes."""

from dataclasses import replace

import pytest

from gobblin_assets.fs.tree import TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.sameness import Likeness, Sameness, SameRule, compare_files, spell_nanoseconds
from tests.support.tree_entries import S_NS, file_entry


@pytest.mark.parametrize(
    ("mine_ns", "theirs_ns", "precision_ns", "same"),
    [
        (5 * S_NS + 1, 5 * S_NS, 1, False),
        (5 * S_NS + 999_999_999, 5 * S_NS, S_NS, True),  # the destination cuts off
        (5 * S_NS + 600_000_000, 6 * S_NS, S_NS, True),  # the destination rounds
        (6 * S_NS, 5 * S_NS, S_NS, False),
        (5 * S_NS, 6 * S_NS, S_NS, False),
        (5 * S_NS, 6 * S_NS, 2 * S_NS, True),
    ],
)
def test_times_are_compared_at_the_coarser_precision(
    mine_ns: int, theirs_ns: int, precision_ns: int, same: bool
) -> None:
    found, _why = compare_files(
        file_entry("f", mtime_ns=mine_ns),
        file_entry("f", mtime_ns=theirs_ns),
        Sameness(mtime_precision_ns=precision_ns),
    )
    assert (found is Likeness.SAME) == same


def test_a_checksum_is_asked_only_where_lengths_are_equal() -> None:
    asked: list[str] = []

    def agree(mine: TreeEntry, _theirs: TreeEntry) -> bool:
        asked.append(mine.path)
        return True

    sameness = Sameness(SameRule.CHECKSUM, checksums_agree=agree)
    assert compare_files(file_entry("f", 1), file_entry("f", 2), sameness)[0] is Likeness.CONTENT_DIFFERS
    assert asked == []
    assert compare_files(file_entry("f", mtime_ns=1), file_entry("f"), sameness)[0] is Likeness.SAME
    assert asked == ["f"]


def test_the_rule_never_copies_always() -> None:
    found = compare_files(file_entry("f"), file_entry("f"), Sameness(SameRule.NEVER))
    assert found == (Likeness.CONTENT_DIFFERS, "is copied always")


def test_the_rule_checksum_needs_somebody_to_ask() -> None:
    with pytest.raises(ValueError, match="checksums_agree"):
        Sameness(SameRule.CHECKSUM)


def test_attributes_are_compared_with_the_desired_ones() -> None:
    wanted = Attributes(mode=0o640, owner=0, group=1000, mtime_ns=3 * S_NS)
    sameness = Sameness(SameRule.CHECKSUM, checksums_agree=lambda _mine, _theirs: True, desired=lambda _entry: wanted)
    found = compare_files(file_entry("f"), file_entry("f"), sameness)
    why = "mode 0644 became 0640, owner 1000 became 0, modification time differs by 2 s"
    assert found == (Likeness.ATTRIBUTES_DIFFER, why)
    nothing = replace(sameness, desired=lambda _entry: Attributes())
    assert compare_files(file_entry("f"), file_entry("f"), nothing)[0] is Likeness.SAME


@pytest.mark.parametrize(
    ("span_ns", "shown"),
    [
        (1, "1 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (3 * S_NS, "3 s"),
        (59 * S_NS, "59 s"),
        (90 * S_NS, "1.5 min"),
        (7_200 * S_NS, "2 h"),
        (40 * 86_400 * S_NS, "40 d"),
        (10_900_000_000, "10 s"),
    ],
)
def test_spans_are_spelled_in_their_largest_unit(span_ns: int, shown: str) -> None:
    assert spell_nanoseconds(span_ns) == shown
