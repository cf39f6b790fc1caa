"""Journals of writers: what is written is read again, as guids; what is torn is not."""

import itertools
from pathlib import Path
from typing import BinaryIO

import pytest

from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.copyable import Attributes, PlannedFile
from gobblin_assets.jobs.copy.file_staging import find_finished
from gobblin_assets.jobs.copy.transfer.journal import (
    JOURNAL_NAME,
    FinishedFile,
    encode_header,
    encode_line,
    read_lines,
    work_guid_of,
)
from gobblin_assets.model.files import FileIdentity

ROOT = '/data/"in"\nside'
NAMES = ("a", 'd/quo"te', "line\nbreak", "ü/\\", "\u2028")
DESIRED = (Attributes(), Attributes(0o640, 1, 2, 5), Attributes(mode=0, mtime_ns=7))


def planned(path: str, desired: Attributes, *, mtime_ns: int | None = 9) -> PlannedFile:
    return PlannedFile(path, path, 12, 3, mtime_ns, desired=desired)


@pytest.mark.parametrize(("path", "desired"), list(itertools.product(NAMES, DESIRED)))
def test_a_line_is_read_as_it_was_written(path: str, desired: Attributes) -> None:
    line = encode_line(planned(path, desired), f"7/{path}", (12, 50, 60, 70))
    assert line is not None

    ((guid, found),) = read_lines(encode_header(ROOT) + line)

    assert found == FinishedFile(f"7/{path}", 12, 50, 60, 70)
    assert guid == work_guid_of(ROOT, path, FileIdentity(12, mtime_ns=9), None, desired)


def test_the_etag_tells_versions_of_one_second_apart() -> None:
    root = "s3://bucket/in"
    line = encode_line(planned("a", Attributes())._replace(tag='e"1'), "1", (12, 50, 60, 70))
    assert line is not None
    ((guid, _found),) = read_lines(encode_header(root) + line)
    assert guid == work_guid_of(root, "a", FileIdentity(12, mtime_ns=9, tag='e"1'), None, Attributes())
    assert guid != work_guid_of(root, "a", FileIdentity(12, mtime_ns=9, tag="e2"), None, Attributes())


def test_the_ctime_tells_versions_of_one_time_apart() -> None:
    line = encode_line(planned("a", Attributes())._replace(changed_ns=11), "1", (12, 50, 60, 70))
    assert line is not None
    ((guid, _found),) = read_lines(encode_header(ROOT) + line)
    found = [work_guid_of(ROOT, "a", FileIdentity(12, mtime_ns=9), each, Attributes()) for each in (11, 12, None)]
    assert [guid == each for each in found] == [True, False, False]


def test_files_that_nothing_tells_apart_have_no_line() -> None:
    staged = (12, 50, 60, 70)
    assert encode_line(planned("a", Attributes(), mtime_ns=None), "1", staged) is None
    assert encode_line(planned("a", Attributes(xattrs=(("user.a", b"1"),))), "1", staged) is None
    assert encode_line(planned("a", Attributes()), "1", (12, 50, 60, None)) is None
    assert work_guid_of(ROOT, "a", FileIdentity(12), None, Attributes()) is None


def test_only_whole_lines_count_wherever_others_stand() -> None:
    lines = [encode_line(planned(name, Attributes()), str(n), (12, 50, 60, 70)) for n, name in enumerate("abc")]
    first, second, third = (line or b"" for line in lines)
    header = encode_header(ROOT)

    def places(content: bytes) -> list[str]:
        return [found.path for _guid, found in read_lines(content)]

    assert places(header + first + second + third) == ["0", "1", "2"]
    for length in range(len(third)):
        assert places(header + first + second + third[:length]) == ["0", "1"]
    assert places(header + first + bytes(len(second)) + b"\n" + third) == ["0", "2"]
    assert places(header + first + b'["a",1]\n{"a":1}\n\xff\n[]\n' + third) == ["0", "2"]
    assert places(header + first.replace(b"12", b"true") + second.replace(b"60", b'"x"')) == []
    assert places(first + second) == []
    assert places(b'["gobblin-copy-journal-1","/x"]\n' + first) == []
    assert places(b"") == places(b"\n") == []


@pytest.mark.parametrize("place", ["../w000/1", "/etc/passwd", "1/../../2", "", "1//2", "./1"])
def test_a_place_outside_of_the_writers_directory_is_no_line(place: str) -> None:
    line = encode_line(planned("a", Attributes()), place, (12, 50, 60, 70))
    assert line is not None
    assert not list(read_lines(encode_header(ROOT) + line))


def test_a_journal_that_can_not_be_read_gives_nothing(tmp_path: Path) -> None:
    class Broken(PosixNamedFiles):
        def open_input(self, path: str) -> BinaryIO:
            del path
            # Its first page belongs to nobody: reading it fails with EIO.
            return Path("/proc/self/mem").open("rb")

    (tmp_path / "w000").mkdir()
    (tmp_path / "w000" / JOURNAL_NAME).write_bytes(b"a line")
    lines: list[str] = []
    assert find_finished(Broken(), [str(tmp_path)], lines.append) == {}
    assert "EIO" in lines[0]
