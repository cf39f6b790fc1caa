"""The letters of attributes to keep."""

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.transfer.preserve import NOTHING_PRESERVED, Preserve, PreserveLetter, parse_preserve
from gobblin_assets.model.files import FileIdentity

ORIGIN = TreeEntry("a", EntryKind.FILE, FileIdentity(3, 7, 1_234_567_890), mode=0o640, owner=12, group=34)


def test_all_letters_of_gobblin_are_known() -> None:
    assert parse_preserve("rbugpvatx") == Preserve(frozenset(PreserveLetter))
    assert parse_preserve("PuGp") == parse_preserve("ugp")
    assert parse_preserve("") == NOTHING_PRESERVED


def test_letters_without_a_meaning_on_posix_are_told() -> None:
    kept = parse_preserve("vtbr")
    assert kept.without_effect == (PreserveLetter.REPLICATION, PreserveLetter.BLOCK_SIZE, PreserveLetter.VERSION)
    assert parse_preserve("ugpatx").without_effect == ()


def test_unknown_letters_are_refused_with_all_that_there_are() -> None:
    with pytest.raises(RejectedError) as caught:
        parse_preserve("ug, z")
    assert caught.value.field == "preserve"
    assert "' ,z'" in str(caught.value)
    assert "u (owner)" in caught.value.hint
    with pytest.raises(RejectedError):
        parse_preserve("ü")


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("", Attributes()),
        ("p", Attributes(mode=0o640)),
        ("u", Attributes(owner=12)),
        ("g", Attributes(group=34)),
        ("t", Attributes(mtime_ns=1_234_567_890)),
        ("rbvax", Attributes()),
        ("ugpt", Attributes(0o640, 12, 34, 1_234_567_890)),
    ],
)
def test_a_copy_gets_what_the_letters_say(letters: str, expected: Attributes) -> None:
    assert parse_preserve(letters).attributes_of(ORIGIN) == expected
