"""The letters of attributes to keep."""

from dataclasses import replace

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import AS_GIVEN, EntryKind, Placement, TreeEntry
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.parsing import read_copy
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


PLACED = replace(ORIGIN, owner=None, group=None, placement=Placement("ann", "staff", 3, 1 << 20))


@pytest.mark.parametrize(
    ("letters", "chosen", "expected"),
    [
        ("", AS_GIVEN, None),
        ("ug", AS_GIVEN, Placement("ann", "staff")),
        ("rb", AS_GIVEN, Placement(replication=3, block_bytes=1 << 20)),
        ("rb", Placement(replication=1), Placement(replication=1, block_bytes=1 << 20)),
        ("u", Placement(block_bytes=512), Placement(owner="ann", block_bytes=512)),
    ],
)
def test_names_of_owners_and_blocks_go_where_they_are_taken(
    letters: str, chosen: Placement, expected: Placement | None
) -> None:
    kept = parse_preserve(letters).by_names(chosen, are_told=True)
    assert kept.attributes_of(PLACED) == Attributes(placement=expected)
    assert parse_preserve(letters).attributes_of(PLACED) == Attributes()
    directory = kept.attributes_of(replace(PLACED, kind=EntryKind.DIRECTORY)).placement or AS_GIVEN
    assert directory.owner == (expected or AS_GIVEN).owner, "what is chosen is for files"


def test_what_a_source_does_not_tell_is_said() -> None:
    kept = parse_preserve("rbugvax").by_names(AS_GIVEN, are_told=False)
    assert kept.letters == set("rbv")
    assert kept.list_unread(is_local=True, has_owners=True, has_placements=False) == ("r", "b")
    assert kept.without_effect == ("v",)
    named = parse_preserve("rbugvax").by_names(AS_GIVEN, are_told=True)
    assert named.letters == set("rbugv")
    assert named.list_unread(is_local=False, has_owners=False, has_placements=True) == ()
    local = parse_preserve("rugax")
    assert local.list_unread(is_local=False, has_owners=False, has_placements=True) == ("u", "g", "a", "x")
    assert local.list_unread(is_local=True, has_owners=True, has_placements=False) == ()


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


@pytest.mark.parametrize(
    ("destination", "options", "field"),
    [
        ("/data/out", {"defaults": {"replication": 2}}, "defaults.replication"),
        ("/data/out", {"datasets": [{"urn": "a", "block_bytes": 1 << 20}]}, "datasets[0].block_bytes"),
        ("s3://bucket/out", {"defaults": {"block_bytes": 1 << 20}}, "defaults.block_bytes"),
        ("hdfs://n/out", {"defaults": {"block_bytes": 1_000}}, "defaults.block_bytes"),
        ("hdfs://n/out", {"defaults": {"replication": 0}}, "defaults.replication"),
    ],
)
def test_replication_and_blocks_are_for_hdfs(destination: str, options: dict[str, object], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_copy({"job": "j", "kind": "distcp", "source": "/data/in", "destination": destination, **options})
    assert refused.value.field == field
    assert refused.value.hint


def test_a_job_to_hdfs_may_say_both() -> None:
    given = {"job": "j", "kind": "distcp", "source": "/data/in", "destination": "hdfs://n/out"}
    spec = read_copy({**given, "defaults": {"replication": 2, "block_bytes": 1 << 20}})
    assert (spec.defaults.replication, spec.defaults.block_bytes) == (2, 1 << 20)
