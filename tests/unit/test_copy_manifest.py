"""Lines of manifests, and what is refused in them by their numbers."""

import json

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copyable import Attributes, FileSet, NamedFile
from gobblin_assets.jobs.copy.manifest import list_named, open_manifest_finder, parse_manifest
from tests.support.tree_entries import ListedTree, listing


def lines(*objects: object) -> list[bytes]:
    return [json.dumps(found).encode() + b"\n" for found in objects]


def test_files_come_by_set_and_in_order() -> None:
    found = parse_manifest(
        [
            *lines({"path": "z/é", "set": "b"}, {"path": "a", "set": "b", "delete": True}),
            b"  \n",
            *lines({"path": "c", "set": "a", "attributes": {"mode": "0640", "owner": 0, "group": 5, "mtime_ns": 7}}),
        ],
        name="m",
    )
    assert found == (
        FileSet("a", files=(NamedFile("c", Attributes(0o640, 0, 5, 7)),)),
        FileSet("b", files=(NamedFile("a", is_deleted=True), NamedFile("z/é"))),
    )


def test_a_line_without_a_set_behind_one_with_a_set() -> None:
    with pytest.raises(RejectedError, match=r"m:2: the line has no set, and those before it have one") as refused:
        parse_manifest(lines({"path": "a", "set": "x"}, {"path": "b", "set": ""}), name="m")
    assert "in all lines, or in none" in str(refused.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "expected a JSON object in UTF-8"),
        (b"a.csv\n", "found 'a.csv': "),
        (b"\xff", "expected a JSON object in UTF-8"),
        (b"[" * 100_000, "expected a JSON object in UTF-8"),
        (b"[1]", "found list"),
        (b'{"path": "a", "path": "b"}', "twice"),
        (b'{"path": "a", "seet": "b"}', "the word 'seet'"),
        (b"{}", "expected a text under path"),
        (b'{"path": ""}', "expected a text under path"),
        (b'{"path": 1}', "expected a text under path"),
        (b'{"path": "/etc/passwd"}', "is absolute"),
        (b'{"path": "a/../../b"}', "leads out of the root"),
        (b'{"path": ".."}', "leads out of the root"),
        (b'{"path": "a/./b"}', "has the name ."),
        (b'{"path": "a//b"}', "has the name ., or an empty one"),
        (b'{"path": "a/"}', "has the name ., or an empty one"),
        (b'{"path": "a\\u0000b"}', "NUL"),
        (b'{"path": "a\\ud800"}', "no valid Unicode"),
        (b'{"path": "first"}', "stands in line 1 already"),
        (b'{"path": "first", "set": "other"}', "stands in line 1 already"),
        (b'{"path": "first/below"}', "is below 'first', which line 1 names"),
        (b'{"path": "a", "set": 1}', "expected a text under set"),
        (b'{"path": "a", "set": "b"}', "the line has a set, and those before it have none"),
        (b'{"path": "a", "set": "b\\u0000"}', "expected a set without '\\x00'"),
        (b'{"path": "a", "set": "b\\nc"}', "expected a set without '\\n'"),
        (b'{"path": "a", "set": "b...c"}', "expected a set without '...'"),
        (b'{"path": "a", "set": "\\ud800"}', "expected a set without '\\ud800'"),
        (b'{"path": "a", "delete": "yes"}', "expected true or false"),
        (b'{"path": "a", "attributes": []}', "expected an object under attributes"),
        (b'{"path": "a", "attributes": {"mod": "0640"}}', "the word 'mod'"),
        (b'{"path": "a", "attributes": {"mode": 640}}', "expected a mode as octal text"),
        (b'{"path": "a", "attributes": {"mode": "0888"}}', "expected a mode as octal text"),
        (b'{"path": "a", "attributes": {"mode": "7"}}', "expected a mode as octal text"),
        (b'{"path": "a", "attributes": {"owner": -1}}', "expected a number from 0"),
        (b'{"path": "a", "attributes": {"owner": true}}', "expected a number from 0"),
        (b'{"path": "a", "attributes": {"mtime_ns": 1.5}}', "expected a number from 0"),
        (b'{"path": "a", "delete": true, "attributes": {"owner": 1}}', "has no attributes"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, said: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_manifest([*lines({"path": "first"}), b"\n", line], name="files.jsonl")
    assert refused.value.field == "files.jsonl:3"
    assert said in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("empty", [[], [b"\n", b" "]])
def test_an_empty_manifest_is_refused(empty: list[bytes]) -> None:
    with pytest.raises(RejectedError, match="names no file"):
        parse_manifest(empty, name="m")


def test_a_manifests_path_is_absolute() -> None:
    for path in ("files.jsonl", "", "/a\0b"):
        with pytest.raises(RejectedError) as refused:
            open_manifest_finder({"path": path})
        assert refused.value.field == "finder.path"
    with pytest.raises(RejectedError) as refused:
        open_manifest_finder({"path": "/m", "nme": "x"})
    assert refused.value.field == "finder.nme"


def test_only_named_files_and_their_directories_are_listed() -> None:
    tree = ListedTree(listing("a/b/c", "a/b/d", "a/e", "f/g", "h", "i"))
    found = list_named(tree, "root", ["a/b/d", "h"], required=True)
    assert [entry.path for entry in found] == ["a", "a/b", "a/b/d", "h"]
    found = list_named(tree, "root", ["a/b/d", "gone", "x/y"], required=False)
    assert [entry.path for entry in found] == ["a", "a/b", "a/b/d"]


def test_a_named_file_that_is_missing_or_a_directory_is_refused() -> None:
    tree = ListedTree(listing("a/b"))
    with pytest.raises(RejectedError, match="names 2 files that root lacks, such as 'a/c', 'z'"):
        list(list_named(tree, "root", ["a/b", "a/c", "z"], required=True))
    for required in (True, False):
        with pytest.raises(RejectedError, match="'a' is a directory"):
            list(list_named(tree, "root", ["a"], required=required))
