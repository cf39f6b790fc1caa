"""Stores as sources of copies, each on a real server: order, directories, versions, ranges, what no tree can hold."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

import google_crc32c
import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.objects import HasEtag, WriteOutcome
from gobblin_assets.fs.registry import open_ranged, open_tree
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key
from tests.support.cloud_servers import CloudServer
from tests.support.s3_servers import S3Server

WORK = ".gobblin"
ODD_NAMES = ("a b", "ä", "\U0001f40d", "a+b", "100%25", "a&<b>'\"", "a=b?c#d", "~a-b_c.d", "a:b@c,d;e!(f)*")


@dataclass(frozen=True)
class Source:
    """``root``: the URI of a prefix, empty at the beginning. ``write`` makes or replaces an object below it."""

    root: str
    write: Callable[[str, bytes], None]
    remove: Callable[[str], None]

    def tree(self, path: str = "") -> tuple[RangedFiles, str]:
        tree, root = open_tree(f"{self.root}{path}", "source", hidden=frozenset({WORK}), follow_links=False)
        assert isinstance(tree, RangedFiles)
        return tree, root

    def entries(self, path: str = "") -> dict[str, TreeEntry]:
        tree, root = self.tree(path)
        found = list(tree.list_tree(root))
        keys = [sort_key(each) for each in found]
        assert keys == sorted(keys, key=str.encode)
        assert len(keys) == len(set(keys))
        return dict(zip(keys, found, strict=True))

    def read(self, key: str, entry: TreeEntry) -> bytes:
        tree, path = open_ranged(f"{self.root}/{key}", "source")
        with closing(tree.open_ranged(path, entry.identity)) as opened:
            return opened.read_at(0, entry.identity.size_bytes) if entry.identity.size_bytes else b""


def open_s3(request: pytest.FixtureRequest) -> tuple[Mapping[str, str], Source]:
    server: S3Server = request.getfixturevalue("versitygw")
    files, root = server.open(), f"/{server.make_bucket()}/in"

    def write(key: str, content: bytes) -> None:
        path = f"{root}/{key}"
        found = files.find_object(path)
        if found is None:
            assert files.put_if_absent(path, content) is WriteOutcome.WRITTEN
            return
        upload = files.begin_upload(path, {})
        part = files.write_part(path, upload, 1, content, google_crc32c.value(content))
        assert files.complete_upload(path, upload, [part], HasEtag(found.etag)) is WriteOutcome.WRITTEN

    def remove(key: str) -> None:
        found = files.find_object(f"{root}/{key}")
        assert found is not None
        files.remove_object(found.path, found.etag)

    return server.environment, Source(f"s3:/{root}", write, remove)


def open_cloud(request: pytest.FixtureRequest) -> tuple[Mapping[str, str], Source]:
    server: CloudServer = request.getfixturevalue(request.param)
    bucket = server.make_bucket()
    return server.environment, Source(
        f"{bucket}/in",
        lambda key, content: server.put(bucket, f"in/{key}", content),
        lambda key: server.remove(bucket, f"in/{key}"),
    )


STORES = {"versitygw": open_s3, "fake_gcs": open_cloud, "azurite": open_cloud}


@pytest.fixture(params=STORES)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Source:
    environment, made = STORES[request.param](request)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return made


# --- listings


def test_a_listing_is_in_the_byte_order_of_paths(source: Source) -> None:
    """Also where a store gives what is below a directory before names that the directory's name begins."""
    files = ["a!", "a-b/c", "a-b/c.d", "a.txt", "a/b", "a/c/d", "a/c-d", "a0", "b", "é", "\uff5e", "\U0001f40d"]
    for key in reversed(files):
        source.write(key, key.encode())
    found = source.entries()
    assert {key for key in found if not key.endswith("/")} == set(files)
    assert {key for key in found if key.endswith("/")} == {"a-b/", "a/", "a/c/"}
    assert set(source.entries("/a")) == {"b", "c-d", "c/", "c/d"}
    assert all(source.read(key, found[key]) == key.encode() for key in files)


def test_names_stand_for_themselves(source: Source) -> None:
    for name in ODD_NAMES:
        source.write(f"{name}/x{name}", name.encode())
    found = source.entries()
    assert {key for key in found if not key.endswith("/")} == {f"{name}/x{name}" for name in ODD_NAMES}
    for name in ODD_NAMES:
        assert source.read(f"{name}/x{name}", found[f"{name}/x{name}"]) == name.encode()
        assert set(source.entries(f"/{name}")) == {f"x{name}"}


def test_an_empty_object_is_a_file_and_a_marker_is_a_directory(source: Source) -> None:
    for key in ("empty", "d/empty", "d/_SUCCESS", "marked/", "marked/x", "e", "e-f", "e.g/"):
        source.write(key, b"x" if key.endswith("x") else b"")
    found = source.entries()
    files = {"empty", "d/empty", "d/_SUCCESS", "marked/x", "e", "e-f"}
    assert {key: each.kind for key, each in found.items() if key in files} == dict.fromkeys(files, EntryKind.FILE)
    assert {key for key in found if key.endswith("/")} == {"d/", "e.g/", "marked/"}
    assert all(found[key].identity.size_bytes == key.endswith("x") for key in files)
    assert source.read("e", found["e"]) == b""


def test_what_is_excluded_and_our_own_work_is_left_out(source: Source) -> None:
    for key in (f"{WORK}/attempt/x", "a/b/c", "a/d", "a-b", "c/d"):
        source.write(key, b"x")
    tree, root = source.tree()
    asked: list[str] = []

    def descend(path: str) -> bool:
        asked.append(path)
        return path != "a"

    assert [sort_key(each) for each in tree.list_tree(root, descend)] == ["a-b", "a/", "c/", "c/d"]
    assert asked == ["a", "c"]


def test_a_large_excluded_directory_is_passed_over(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_assets.fs.object_tree.LEFT_OUT_MAX", 2)
    for key in ("a", "left/1", "left/2", "left/3/x", "left/4", "left/5/y", "m", "n/o"):
        source.write(key, b"x")
    tree, root = source.tree()
    found = [sort_key(each) for each in tree.list_tree(root, lambda path: path != "left")]
    assert found == ["a", "left/", "m", "n/", "n/o"]


def test_a_root_without_objects_is_refused_and_an_empty_bucket_is_a_tree(source: Source) -> None:
    with pytest.raises(RejectedError, match="there is nothing below"):
        source.entries()
    source.write("file", b"x")
    with pytest.raises(RejectedError, match="is an object, expected a prefix"):
        source.entries("/file")
    source.remove("file")
    tree, root = open_tree(source.root.removesuffix("/in"), "source", hidden=frozenset(), follow_links=False)
    assert list(tree.list_tree(root)) == []


# --- versions


def test_ranges_are_those_of_one_version(source: Source) -> None:
    source.write("d/a", b"0123456789")
    tree, root = source.tree()
    path = f"{root}/d/a"
    identity = source.entries()["d/a"].identity
    assert tree.find_file(path) == identity
    assert (tree.find_file(f"{root}/d"), tree.find_file(f"{root}/none")) == (None, None)
    with closing(tree.open_ranged(path, identity)) as opened:
        assert (opened.read_at(0, 10), opened.read_at(3, 4), opened.read_at(9, 1)) == (b"0123456789", b"3456", b"9")
        with pytest.raises(RetryableError, match="another version"):
            opened.read_at(8, 5)
        for content in (b"98765", b"9876543210", b"987654321098765"):
            source.write("d/a", content)
            with pytest.raises(RetryableError, match="another version"):
                opened.read_at(3, 4)
            with pytest.raises(RetryableError, match="another version"):
                opened.read_at(8, 2)
        source.remove("d/a")
        with pytest.raises(RetryableError, match=r"is gone|another version"):
            opened.read_at(0, 1)


def test_an_empty_file_is_proved(source: Source) -> None:
    source.write("a", b"")
    tree, root = source.tree()
    identity = source.entries()["a"].identity
    tree.open_ranged(f"{root}/a", identity).close()
    source.write("a", b"bytes")
    with pytest.raises(RetryableError, match="changed"):
        tree.open_ranged(f"{root}/a", identity)
    source.remove("a")
    with pytest.raises(RetryableError, match="is gone"):
        tree.open_ranged(f"{root}/a", identity)


def test_a_file_of_many_ranges_is_read_whole(source: Source) -> None:
    content = bytes(uuid.uuid4().bytes * (1 << 16))
    source.write("large", content)
    identity = source.entries()["large"].identity
    tree, root = source.tree()
    with closing(tree.open_ranged(f"{root}/large", identity)) as opened:
        parts = [opened.read_at(place, 1 << 18) for place in range(0, len(content), 1 << 18)]
    assert b"".join(parts) == content
