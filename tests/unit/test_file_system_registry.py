import re
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.fs.registry import open_file_system, register_file_system, show_uri
from gobblin_assets.jobs.copy.parsing import read_copy


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


@pytest.mark.parametrize(
    "uri",
    [
        "s4://key:verysecret@bucket/lake",
        "s4://key:very/verysecret@bucket/lake",
        "s4:key:verysecret@bucket",
        "file://u:verysecret@h/x",
        "file:u:verysecret@h/x",
        "u:verysecret@h/x",
        " file://u:verysecret@h/x",
        "//u:verysecret@h/../x",
        "hdfs://h/x?token=verysecret",
        "s3://b/x?X-Amz-Signature=verysecret",
        "s4://b/x#verysecret",
        "s4://u:very?verysecret@h/x",
        "s4://h/x?token=a@verysecret",
        "/a?token=verysecret",
    ],
)
def test_what_may_be_a_secret_is_not_repeated(uri: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_file_system(uri)
    assert "verysecret" not in f"{refused.value} {refused.value.fields}"
    options = {"job": "m", "kind": "distcp", "source": uri, "destination": "/data/out"}
    with pytest.raises(RejectedError) as refused:
        read_copy(options)
    assert "verysecret" not in f"{refused.value} {refused.value.fields}"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/data/a@b#c", "/data/a@b#c"),
        ("s4://bucket/lake", "s4://bucket/lake"),
        ("s4://key:word@bucket/lake", "s4://…@bucket/lake"),
        ("s4://bucket/lake?a=b", "s4://bucket/lake?…"),
        ("s4://a?b@c", "s4://…"),
        ("/a?", "/a?"),
    ],
)
def test_the_rest_of_a_uri_is_shown(uri: str, shown: str) -> None:
    assert show_uri(uri) == shown


def test_a_scheme_is_registered_once() -> None:
    def open_lake(uri: str, umask: int | None) -> tuple[FileSystem, str]:
        return PosixFileSystem(umask), "/mnt/" + uri.removeprefix("test-lake://")

    register_file_system("test-lake", open_lake)
    assert open_file_system("test-lake://here")[1] == "/mnt/here"
    with pytest.raises(RejectedError, match="test-lake"):
        register_file_system("test-lake", open_lake)
