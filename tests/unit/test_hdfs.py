"""How a cluster is named and reached, and which family an exception of the NameNode's is of."""

import getpass
import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.hdfs.file_system import HdfsFileSystem, open_hdfs
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings, read_hdfs_settings
from gobblin_assets.fs.hdfs.streams import HdfsStreams
from gobblin_assets.fs.hdfs.web import (
    HdfsFailure,
    entry_of_status,
    explain_failure,
    failure_of_native,
    read_exception,
)
from gobblin_assets.fs.sftp.tree import open_sftp
from gobblin_assets.fs.tree import EntryKind, Placement
from tests.support.answering import answering

_PROGRAM = """
import sys
from gobblin_assets.jobs.copy import program
from gobblin_assets.fs.registry import open_file_system
open_file_system("/data")
found = [name for name in ("hdfs_native", "gobblin_assets.fs.hdfs") if name in sys.modules]
sys.exit(f"imported: {found}" if found else 0)
"""

# --- settings and URIs


def test_settings_come_from_the_environment() -> None:
    assert read_hdfs_settings({}) == HdfsSettings(getpass.getuser())
    assert read_hdfs_settings({"HADOOP_USER_NAME": "ann", "GOBBLIN_HDFS_USER": ""}) == HdfsSettings("ann")
    given = {
        "GOBBLIN_HDFS_USER": "gateway",
        "GOBBLIN_HDFS_PROXY_USER": "ann",
        "GOBBLIN_HDFS_WEB_URL": "https://{host}:9871",
        "GOBBLIN_HDFS_REPLICATION": "2",
        "HADOOP_USER_NAME": "other",
    }
    found = read_hdfs_settings(given)
    assert found == HdfsSettings("gateway", "ann", "https://{host}:9871", 2)
    assert (found.effective_user, HdfsSettings("me").effective_user) == ("ann", "me")


@pytest.mark.parametrize("scheme", ["hdfs", "sftp"])
def test_a_process_without_a_name_names_its_user(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers run: by a number that the list of users lacks."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HADOOP_USER_NAME", f"GOBBLIN_{scheme.upper()}_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 1_999_999_999)
    opening: dict[str, Callable[[], object]] = {
        "hdfs": lambda: open_hdfs("hdfs://n/a", None),
        "sftp": lambda: open_sftp("sftp://n/a", "source"),
    }
    with pytest.raises(RejectedError, match="has no name") as refused:
        opening[scheme]()
    assert refused.value.field == f"GOBBLIN_{scheme.upper()}_USER"
    monkeypatch.setenv(f"GOBBLIN_{scheme.upper()}_USER", "ann")
    opening[scheme]()


@pytest.mark.parametrize("others", [{}, {"HADOOP_USER_NAME": "gateway"}])
def test_a_proxy_user_is_never_taken_for_the_user_who_acts_for_them(others: dict[str, str]) -> None:
    """Once a native client is open, HADOOP_USER_NAME has the proxy user's name, also in processes that come later."""
    with pytest.raises(RejectedError) as found:
        read_hdfs_settings({"GOBBLIN_HDFS_PROXY_USER": "ann", **others})
    assert found.value.field == "GOBBLIN_HDFS_USER"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("USER", "a b"),
        ("USER", "a&doas=root"),
        ("PROXY_USER", "a/b"),
        ("WEB_URL", "namenode:9870"),
        ("WEB_URL", "http://u:secret@namenode:9870"),
        ("WEB_URL", "http://namenode:9870/webhdfs/v1"),
        ("WEB_URL", "http://namenode:99999"),
        ("REPLICATION", "0"),
        ("REPLICATION", "three"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_hdfs_settings({f"GOBBLIN_HDFS_{name}": value})
    assert refused.value.field == f"GOBBLIN_HDFS_{name}"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("hdfs://NameNode:8020/data//out/./x/", ("hdfs://namenode:8020/a", "/data/out/x")),
        ("hdfs://n/a b%20", ("hdfs://n:8020/a", "/a b%20")),
        ("hdfs://[::1]:9000/a", ("hdfs://[::1]:9000/a", "/a")),
    ],
)
def test_a_uri_names_the_namenode_and_a_path(uri: str, expected: tuple[str, str]) -> None:
    files, path = open_hdfs(uri, None)
    assert (files.to_uri("/a"), path) == expected


@pytest.mark.parametrize(
    "uri", ["hdfs:///data", "hdfs://n", "hdfs://n/", "hdfs://n/a/../b", "hdfs://me@n/a", "hdfs:/a"]
)
def test_a_uri_without_host_or_folder_is_refused(uri: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_hdfs(uri, None)
    assert refused.value.field == "destination"


def test_nothing_of_it_is_imported_for_other_schemes() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- exceptions


def remote(kind: str, message: str) -> bytes:
    return json.dumps(
        {"RemoteException": {"exception": kind, "javaClassName": f"x.{kind}", "message": message}}
    ).encode()


def test_an_exception_is_read_without_its_trace() -> None:
    assert read_exception(remote("IOException", "one\n\tat a.b(C.java:1)")) == HdfsFailure("IOException", "one")
    assert read_exception(b"<html>") is None
    assert read_exception(b'{"boolean": true}') is None
    native = RuntimeError(
        'RPCError("org.apache.hadoop.ipc.X$SafeModeException", "no \\"changes\\"\\n\\tat a.b(C.java:1)")'
    )
    assert failure_of_native(native).kind == "SafeModeException"
    assert "C.java" not in str(failure_of_native(native))
    assert failure_of_native(FileNotFoundError("/a\n\tat x")) == HdfsFailure("FileNotFoundException", "/a")
    assert failure_of_native(FileExistsError("/a")).kind == "FileAlreadyExistsException"


@pytest.mark.parametrize(
    ("kind", "changes", "family"),
    [
        ("SafeModeException", True, RetryableError),
        ("NSQuotaExceededException", True, RetryableError),
        ("DSQuotaExceededException", False, RetryableError),
        ("StandbyException", True, RetryableError),
        ("AccessControlException", True, RejectedError),
        ("AuthorizationException", False, RejectedError),
        ("FileNotFoundException", True, RejectedError),
        ("ParentNotDirectoryException", True, RejectedError),
        ("InvalidPathException", True, RejectedError),
        ("PathComponentTooLongException", True, RejectedError),
        ("SomethingNewException", True, OutcomeUnknownError),
        ("SomethingNewException", False, RetryableError),
    ],
)
def test_an_exception_is_of_a_family(kind: str, changes: bool, family: type[GobblinError]) -> None:
    found = explain_failure(HdfsFailure(kind, "why"), action="rename", path="/a", option="destination", changes=changes)
    assert type(found) is family
    assert "/a" in str(found)
    assert kind in str(found)


def test_a_file_id_is_an_inode_and_times_are_milliseconds() -> None:
    status = {"type": "FILE", "length": 5, "fileId": 16_387, "modificationTime": 1_500, "permission": "640"}
    entry = entry_of_status("a", status)
    assert (entry.kind, entry.mode, entry.owner) == (EntryKind.FILE, 0o640, None)
    assert (entry.identity.size_bytes, entry.identity.inode, entry.identity.mtime_ns) == (5, 16_387, 1_500_000_000)
    stored = {"owner": "ann", "group": "staff", "replication": 2, "blockSize": 1 << 20}
    assert entry_of_status("a", {**status, **stored}).placement == Placement("ann", "staff", 2, 1 << 20)
    empty = {**stored, "type": "DIRECTORY", "replication": 0, "blockSize": 0}
    assert entry_of_status("d", {**status, **empty}).placement == Placement("ann", "staff")
    assert entry_of_status("d", {**status, "type": "DIRECTORY"}).identity.size_bytes == 0
    assert entry_of_status("l", {**status, "type": "SYMLINK"}).kind is EntryKind.LINK


_BARE: dict[str, object] = {"FileStatus": {"type": "FILE", "length": 1}}
_PAGE: dict[str, object] = {
    "DirectoryListing": {"partialListing": {"FileStatuses": {"FileStatus": [{}]}}, "remainingEntries": 0}
}


def reaching(url: str) -> HdfsFileSystem:
    return HdfsFileSystem("127.0.0.1:8020", HdfsSettings("me", web_url=url))


@pytest.mark.parametrize("answer", [{}, [], _BARE, {"FileStatus": None}, {"DirectoryListing": {}}, _PAGE])
def test_an_answer_without_what_was_asked_for_may_be_asked_for_again(answer: object) -> None:
    with answering(answer) as url:
        files = reaching(url)
        tree = files.open_tree("source", hidden=frozenset(), follow_links=False)
        asks = (files.find_entry, files.is_empty, files.list_files, tree.find_file)
        for ask in (*asks, lambda path: list(tree.list_tree(path))):
            with pytest.raises(RetryableError, match="/a"):
                ask("/a")


def test_a_panic_of_the_native_client_is_an_error_of_its_call() -> None:
    class PanicException(BaseException):
        pass

    def panic() -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    streams = HdfsStreams("127.0.0.1:8020", HdfsSettings("me"), "destination")
    with pytest.raises(RetryableError, match=r"can't read /a: .*unwrap"):
        streams.attempt(panic, "read", "/a")


def test_a_time_before_1970_is_refused_before_it_is_asked_for() -> None:
    """WebHDFS takes -1 ms for `leave it`, and nothing below."""
    with answering({}) as url, pytest.raises(RejectedError, match="before 1970") as found:
        reaching(url).set_attributes("/a", None, -1)
    assert found.value.field == "preserve"
