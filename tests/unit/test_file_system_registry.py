import re
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.port import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.registry import open_file_system, register_file_system


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("file:///data/lake", "/data/lake"),
        ("file:/data/lake/", "/data/lake"),
        ("FILE:///data//./lake", "/data/lake"),
        ("/data/lake", "/data/lake"),
        ("//data/lake", "/data/lake"),
        ("/data/a b/%2F/día:1", "/data/a b/%2F/día:1"),
    ],
)
def test_a_local_destination_gives_its_root(uri: str, root: str) -> None:
    file_system, found = open_file_system(uri)
    assert found == root
    assert open_file_system(file_system.to_uri(found))[1] == root


@pytest.mark.parametrize(
    ("uri", "fix"),
    [
        ("lake", f"{Path.cwd()}/lake"),
        ("../lake", str(Path.cwd().parent / "lake")),
        ("file:lake", f"{Path.cwd()}/lake"),
        ("~/lake", f"{Path.home()}/lake"),
        ("~nobody-of-that-name/lake", str(Path.cwd())),
        ("", str(Path.cwd())),
        ("file://data/lake", "file:///data/lake"),
        ("/a/../b", "/b"),
        ("/", "folder of its own"),
        ("file:///", "folder of its own"),
        ("s4://bucket/lake", "Correct it"),
        ("C:\\lake", "patterns"),
        ("/a/*", "patterns"),
        ("/a/{b,c}", "patterns"),
        ("/a/[b]", "patterns"),
        ("/a?", "patterns"),
        ("/a\nb", "Remove"),
        ("/a\0b", "Remove"),
    ],
)
def test_any_other_destination_is_refused_with_its_fix(uri: str, fix: str) -> None:
    with pytest.raises(RejectedError, match=re.escape(fix)) as refused:
        open_file_system(uri)
    assert refused.value.field == "destination"


def test_an_unknown_scheme_lists_the_known_ones_without_the_key_in_the_uri() -> None:
    with pytest.raises(RejectedError, match="file") as refused:
        open_file_system("s4://key:verysecret@bucket/lake")
    assert "verysecret" not in str(refused.value)


def test_a_scheme_is_registered_once() -> None:
    def open_lake(uri: str, umask: int | None) -> tuple[FileSystem, str]:
        return PosixFileSystem(umask), "/mnt/" + uri.removeprefix("test-lake://")

    register_file_system("test-lake", open_lake)
    assert open_file_system("test-lake://here")[1] == "/mnt/here"
    with pytest.raises(RejectedError, match="test-lake"):
        register_file_system("test-lake", open_lake)
