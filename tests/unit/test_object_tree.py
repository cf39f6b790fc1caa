"""Objects as a tree: order, directories, what is left out, and keys that no tree can hold."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs import object_tree
from gobblin_assets.fs.object_tree import ObjectTree
from gobblin_assets.fs.objects import ObjectEntry, ObjectFiles
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key
from gobblin_assets.model.files import FileIdentity

ROOT = "/bucket/root"
WORK = ".gobblin"
CHANGED_AT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=dt.UTC)


@dataclass
class Objects:
    """A store's keys, in the order in which it lists them. ``listed``: how many entries it gave."""

    keys: Sequence[str]
    sizes: dict[str, int] = field(default_factory=dict)
    listed: int = 0

    def to_uri(self, path: str) -> str:
        return f"s3:/{path}"

    def find_object(self, path: str) -> ObjectEntry | None:
        return next((each for each in map(self._entry, self.keys) if each.path == path), None)

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        for found in map(self._entry, self.keys):
            if found.path.startswith(f"{directory}/") and found.path > after:
                self.listed += 1
                yield found

    def _entry(self, key: str) -> ObjectEntry:
        size = self.sizes.get(key, 0 if key.endswith("/") else len(key))
        return ObjectEntry(f"/bucket/{key}", size, f"etag-{key}", CHANGED_AT)


def tree_of(*keys: str, sizes: dict[str, int] | None = None) -> tuple[ObjectTree, Objects]:
    """Of keys below the root."""
    objects = Objects([f"root/{key}" for key in keys], {f"root/{key}": size for key, size in (sizes or {}).items()})
    return ObjectTree(cast("ObjectFiles", objects), "source", hidden=frozenset({WORK})), objects


def list_keys(*keys: str) -> list[str]:
    tree, _ = tree_of(*sorted(keys))
    return [sort_key(entry) for entry in tree.list_tree(ROOT)]


NAMES = st.sampled_from(["a", "\ufffd", "a!", "a.b", "a0", "b", "é", "\U0001f40d", "\uffff", "a b", "a\nb"])


@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=12))
def test_entries_come_in_the_byte_order_of_their_paths(paths: set[str]) -> None:
    files = {path for path in paths if not any(other.startswith(f"{path}/") for other in paths)}
    found = list_keys(*files) if files else []
    directories = {f"{path[:n]}/" for path in files for n, letter in enumerate(path) if letter == "/"}
    assert found == sorted(files | directories, key=str.encode)


def test_an_entry_has_what_the_store_says_of_it() -> None:
    tree, _ = tree_of("d/file")
    directory, file = tree.list_tree(ROOT)
    mtime_ns = 1_767_323_045_678_000_000
    assert file == TreeEntry("d/file", EntryKind.FILE, FileIdentity(11, None, mtime_ns, "etag-root/d/file"))
    assert (directory.path, directory.kind, directory.mode) == ("d", EntryKind.DIRECTORY, None)


def test_an_empty_object_with_a_slash_is_a_directory() -> None:
    assert list_keys("", "a/", "b/", "b/c/", "b/c/d") == ["a/", "b/", "b/c/", "b/c/d"]
    tree, _ = tree_of("a/", sizes={"a/": 1})
    with pytest.raises(RejectedError, match="has the key of a directory"):
        list(tree.list_tree(ROOT))


@pytest.mark.parametrize("key", ["a//b", "/a", "a/../b", "..", "./a", "a/.", "a\0b/c", "a/b\udcff"])
def test_a_key_that_no_tree_can_hold_is_refused_by_its_name(key: str) -> None:
    tree, _ = tree_of("0", key)
    with pytest.raises(RejectedError) as refused:
        list(tree.list_tree(ROOT))
    assert ascii(f"s3:/{ROOT}/{key}") in str(refused.value)
    assert refused.value.field == "source"


def test_an_object_below_which_others_lie_is_refused() -> None:
    tree, _ = tree_of("a", "a!", "a.b", "a/b")
    with pytest.raises(RejectedError, match="is an object, and others lie below it, such as 'a/b'"):
        list(tree.list_tree(ROOT))


def test_what_is_not_descended_into_is_not_looked_at() -> None:
    tree, _ = tree_of("a", "b/../x", "b/c", "b0", "c/d/e", "c/f")
    found = [sort_key(entry) for entry in tree.list_tree(ROOT, lambda path: path not in {"b", "c/d"})]
    assert found == ["a", "b/", "b0", "c/", "c/d/", "c/f"]


def test_a_large_directory_that_is_left_out_is_jumped_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_tree, "LEFT_OUT_MAX", 3)
    tree, objects = tree_of(*(f"a/{n:04}" for n in range(1_000)), "a0", "b")
    found = [sort_key(entry) for entry in tree.list_tree(ROOT, lambda path: path != "a")]
    assert found == ["a/", "a0", "b"]
    assert objects.listed < 10


def test_the_working_directory_is_hidden_at_the_top_and_refused_below() -> None:
    assert list_keys(f"{WORK}/log/1", f"{WORK}/x", f"{WORK}x", "a/b") == [f"{WORK}x", "a/", "a/b"]
    tree, _ = tree_of(f"a/{WORK}/log", "a/b")
    with pytest.raises(RejectedError, match="another copy's destination lies inside"):
        list(tree.list_tree(ROOT))
    assert [entry.path for entry in tree.list_tree(ROOT, lambda path: path != "a")] == ["a"]


def test_an_object_of_the_working_directorys_name_is_listed() -> None:
    assert list_keys(WORK, f"{WORK}/log", f"a/{WORK}") == [WORK, "a/", f"a/{WORK}"]


def test_a_root_that_is_not_there_is_refused() -> None:
    with pytest.raises(RejectedError, match="there is nothing below s3://bucket/root"):
        list_keys()
    objects = Objects(["root"])
    with pytest.raises(RejectedError, match="s3://bucket/root is an object"):
        list(ObjectTree(cast("ObjectFiles", objects), "source").list_tree(ROOT))
    assert list(ObjectTree(cast("ObjectFiles", Objects([])), "source").list_tree("/bucket")) == []


def test_a_store_that_lists_in_another_order_is_refused() -> None:
    tree, _ = tree_of("b", "a")
    with pytest.raises(RejectedError, match="in the order of their keys"):
        list(tree.list_tree(ROOT))


def test_an_empty_file_is_proved_when_it_is_opened() -> None:
    tree, _ = tree_of("empty", sizes={"empty": 0})
    tree.open_ranged(f"{ROOT}/empty", FileIdentity(0, None, 0, "etag-root/empty")).close()
    with pytest.raises(RetryableError, match="changed since it was planned"):
        tree.open_ranged(f"{ROOT}/empty", FileIdentity(0, None, 0, "another"))
    with pytest.raises(RetryableError, match="is gone since it was planned"):
        tree.open_ranged(f"{ROOT}/gone", FileIdentity(0, None, 0, "etag"))
