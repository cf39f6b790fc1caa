"""Archives that copies unpack: names and sizes that are refused, broken headers, and honest archives."""

import gzip
import io
import struct
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.converters.chain import open_chain
from gobblin_assets.jobs.copy.converters.converter_port import Archive, PackedEntry, Unpacker
from gobblin_assets.jobs.copy.converters.tar_archives import EXTENDED_BYTES_MAX
from tests.support.archives import member_of, raw_tar, tar_of, zip_of

ARCHIVE = "/in/a.tar"
FORMATS = [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]


def unpack(content: bytes, kind: str = "untar", **limits: int) -> dict[str, bytes | None]:
    """The members as a copy takes them; None: a directory."""
    chain = open_chain([{"kind": kind, **limits}])
    file = io.BytesIO(content)
    members = chain.read_members(file, file, ARCHIVE, len(content), (0,))
    return {each.path: inside.read(1 << 30) if each.kind == "file" else None for each, inside in members}


def refuse(content: bytes, kind: str = "untar", **limits: int) -> str:
    with pytest.raises(RejectedError) as found:
        unpack(content, kind, **limits)
    assert ARCHIVE in found.value.message
    assert found.value.hint
    return found.value.message


@pytest.mark.parametrize("format_", FORMATS)
def test_members_have_plain_paths(format_: int) -> None:
    deep = "/".join(["a" * 60] * 3)
    members = [("./", b""), ("./d/", b""), ("./d/one", b"1" * 513), ("two", b""), (f"{deep}", b"long")]
    found = unpack(tar_of(members, format_=format_))
    assert found == {"d": None, "d/one": b"1" * 513, "two": b"", deep: b"long"}


@pytest.mark.parametrize("format_", FORMATS[:2])
def test_names_may_have_more_bytes_than_a_header(format_: int) -> None:
    name = "/".join(["ä" * 100, "b" * 250])
    assert unpack(tar_of([(name, b"x")], format_=format_)) == {name: b"x"}


HOSTILE_NAMES = {
    "/etc/passwd": "has an absolute path",
    "a/../../b": "has `..` in its path",
    "..": "has `..` in its path",
    "a\\b": "has a backslash",
    ".gobblin/x": "copies' own directory",
    "a/.gobblin": "copies' own directory",
    "x" * 256: "too long",
    "/".join("x" * 40): "lies deeper than 32",
    "./.": "has no name",
}


@pytest.mark.parametrize(("name", "said"), HOSTILE_NAMES.items(), ids=ascii)
@pytest.mark.parametrize("kind", ["untar", "unzip"])
def test_hostile_names_are_refused(kind: str, name: str, said: str) -> None:
    made = tar_of([("good", b""), (name, b"x")]) if kind == "untar" else zip_of([("good", b""), (name, b"x")])
    assert said in refuse(made, kind)


def test_names_with_nul_or_other_bytes_are_refused() -> None:
    named = tar_of([("abc", b"")], format_=tarfile.PAX_FORMAT)
    pax = raw_tar([(member_of("x", pax_headers={"path": "a\0b"}), b"")])
    assert "NUL" in refuse(pax)
    assert "NUL" in refuse(zip_of([("aXb", b"")]).replace(b"aXb", b"a\0b"), "unzip")
    info = tarfile.TarInfo.frombuf(named[:512], "utf-8", "surrogateescape")
    info.name = "a\udcff"
    assert "not UTF-8" in refuse(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape") + bytes(1024))


@pytest.mark.parametrize(
    ("type_", "said"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a pipe"),
        (tarfile.GNUTYPE_SPARSE, "a sparse file"),
        (b"Z", "of the unknown type"),
    ],
)
def test_only_files_and_directories_are_unpacked(type_: bytes, said: str) -> None:
    made = raw_tar([(member_of("link", type_=type_, linkname="/etc/passwd"), b"")], format_=tarfile.USTAR_FORMAT)
    assert said in refuse(made)


def test_a_link_in_a_zip_archive_is_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.create_system = 3
        info.external_attr = 0o120777 << 16
        archive.writestr(info, b"/etc/passwd")
    assert "a symbolic link" in refuse(out.getvalue(), "unzip")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a", "a"], "two members are called 'a'"),
        (["a", "./a"], "two members are called 'a'"),
        (["a", "a/b"], "lies below 'a', which is a file"),
        (["a/b", "a"], "a file and a directory"),
        (["a/", "a/"], "two members are called 'a'"),
    ],
)
def test_no_name_stands_twice(names: list[str], said: str) -> None:
    assert said in refuse(tar_of([(name, b"") for name in names]))


def test_caps_hold() -> None:
    many = [(f"f{n}", b"x" * 10) for n in range(11)]
    assert "more than 10 members" in refuse(tar_of(many), members_max=10)
    assert "more than 10 members" in refuse(zip_of(many), "unzip", members_max=10)
    assert "more than 109 bytes" in refuse(zip_of(many), "unzip", bytes_max=109)
    bomb = [("zeros", bytes(20_000_000))]
    assert "more than 200 times" in refuse(zip_of(bomb), "unzip")
    assert len(unpack(zip_of(bomb), "unzip", ratio_max=2_000)["zeros"] or b"") == 20_000_000


def test_a_header_that_promises_more_than_there_is_ends_the_reading() -> None:
    info = tarfile.TarInfo("large")
    info.size = 1 << 40
    header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
    assert "more than" in refuse(header + bytes(4096))
    assert "in the middle" in refuse(header + bytes(4096), bytes_max=1 << 41, ratio_max=1 << 40)


def test_long_names_have_a_limit() -> None:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, EXTENDED_BYTES_MAX + 1
    assert "extended header" in refuse(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict") + bytes(2048))
    info.type = tarfile.GNUTYPE_LONGNAME
    assert "extended header" in refuse(info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict") + bytes(2048))


def _extended(records: bytes, type_: bytes = tarfile.XHDTYPE) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = type_, len(records)
    return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict") + records + bytes(-len(records) % 512)


def test_many_small_records_are_read_in_one_pass() -> None:
    small = b"".join(b"11 %06d=\n" % number for number in range(EXTENDED_BYTES_MAX // 11))
    begun = time.process_time()
    assert unpack(_extended(small) + tar_of([("a", b"x")])) == {"a": b"x"}
    assert time.process_time() - begun < 1.5, "it was copied for each record"
    assert "an extended header is broken" in refuse(_extended(small[11:] + b"11 xxxxxx=") + tar_of([("a", b"x")]))


@pytest.mark.parametrize(
    "type_", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]
)
def test_headers_before_one_member_have_a_limit(type_: bytes) -> None:
    record = b"9 a=bcde\n"
    assert "extended headers" in refuse(_extended(record, type_) * 1_000 + tar_of([("a", b"x")]))
    half = b"%d a=%s\n" % (EXTENDED_BYTES_MAX // 2, b"b" * (EXTENDED_BYTES_MAX // 2 - 10))
    assert "extended headers" in refuse(_extended(half, type_) * 3 + tar_of([("a", b"x")]))


def test_global_headers_may_not_name_all_members() -> None:
    def with_global(records: Mapping[str, str]) -> bytes:
        header = tarfile.TarInfo.create_pax_global_header(dict(records))
        return header + tar_of([("a", b"x")])

    assert unpack(with_global({"comment": "a commit"})) == {"a": b"x"}
    assert "global header" in refuse(with_global({"path": "b"}))


@pytest.mark.parametrize("cut", [0, 100, 512, 600, 1024, 1536])
def test_an_archive_that_ends_too_early_is_refused(cut: int) -> None:
    assert "ends in the middle" in refuse(tar_of([("a", b"1" * 600), ("b", b"2")])[:cut])


@pytest.mark.parametrize("behind", [b"junk", bytes(10_240) + b"x", tar_of([("b", b"2")])], ids=["junk", "far", "tar"])
def test_what_stands_behind_the_end_of_a_tar_archive_is_not_lost(behind: bytes) -> None:
    first = tar_of([("a", b"1")])
    assert "goes on behind its end" in refuse(first + behind)
    assert unpack(first + bytes(4 << 20)) == {"a": b"1"}
    # One block of zeros, as some programs write.
    assert unpack(first[:1_536]) == {"a": b"1"}


def test_a_compressed_tar_archive_of_two_members_is_refused() -> None:
    content = b"".join(gzip.compress(tar_of([(name, b"x")])) for name in ("a", "b"))
    chain = open_chain(["gunzip", "untar"])
    file = io.BytesIO(content)
    with pytest.raises(RejectedError, match="goes on behind its end"):
        list(chain.read_members(file, file, "/in/a.tgz", len(content), (0, 1)))


def test_a_zip_archive_is_all_of_its_file() -> None:
    first, second = zip_of([("a", b"1")]), zip_of([("b", b"2")])
    assert "bytes stand before its first member" in refuse(first + second, "unzip")
    assert "bytes stand before its first member" in refuse(b"#!/bin/sh\n" + second, "unzip")
    assert "bytes stand before its first member" in refuse(first + zip_of([]), "unzip")
    for junk in (b"x", bytes(100), b"x" * 70_000):
        assert "can't be read" in refuse(first + junk, "unzip")
    commented = first[:-2] + struct.pack("<H", 5) + b"hello"
    assert unpack(commented, "unzip") == {"a": b"1"}
    assert "bytes follow behind its end" in refuse(commented + b"x", "unzip")
    assert unpack(zip_of([]), "unzip") == {}


def test_a_broken_header_in_the_middle_is_not_the_end() -> None:
    made = bytearray(tar_of([("a", b"1"), ("b", b"2")], format_=tarfile.USTAR_FORMAT))
    made[1024] ^= 1
    assert "a header is broken" in refuse(bytes(made))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda made: made[:-30], "can't be read"),
        (lambda made: b"", "no end of a zip archive"),
        (lambda made: made.replace(b"stored", b"STORED", 1), "can't be read"),
        (lambda made: _set_flag(made, 0x1), "is encrypted"),
        (lambda made: _set_method(made, 14), "by method 14"),
    ],
)
def test_broken_zip_archives_are_refused(change: object, said: str) -> None:
    made = zip_of([("a", b"stored in plain")], zipfile.ZIP_STORED)
    assert callable(change)
    assert said in refuse(change(made), "unzip")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_change_of_bytes_of_a_zip_archive_gets_past_the_families(data: st.DataObject) -> None:
    """Of a real file, whose seeks fail otherwise than those of bytes in memory."""
    made = bytearray(zip_of([("d/", b""), ("d/one", b"1" * 40), ("two", b"2")]))
    places = st.one_of(st.integers(0, len(made) - 1), st.integers(_directory_place(bytes(made)), len(made) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=6)):
        made[place] = value
    for chain in (open_chain(["unzip"]), open_chain([{"kind": "unzip", "members_max": 10**6}])):
        with tempfile.TemporaryFile() as file:
            file.write(made)
            file.seek(0)
            with suppress(RejectedError):
                for _member, inside in chain.read_members(file, file, ARCHIVE, len(made), (0,)):
                    inside.read(1 << 20)


def _change_end(made: bytes, offset: int, layout: str, value: int) -> bytes:
    place = made.rindex(b"PK\5\6") + offset
    return made[:place] + struct.pack(layout, value) + made[place + struct.calcsize(layout) :]


@pytest.mark.parametrize(
    "change",
    [
        lambda made: _change_end(made, 12, "<L", len(made)),
        lambda made: _change_end(made, 16, "<L", len(made) + 1),
        lambda made: made.replace(b"\0\0name", b"\0\x08n\xffme"),
    ],
)
def test_zip_archives_that_no_parser_expects_are_refused_too(change: Callable[[bytes], bytes]) -> None:
    made = change(zip_of([("name", b"stored in plain")], zipfile.ZIP_STORED))
    with tempfile.TemporaryFile() as file:
        file.write(made)
        file.seek(0)
        with pytest.raises(RejectedError, match="can't be read"):
            list(open_chain(["unzip"]).read_members(file, file, ARCHIVE, len(made), (0,)))


def test_the_size_that_is_judged_is_that_of_the_directory_that_is_read() -> None:
    """The locator of zip64 names a small directory elsewhere; Python reads the record before the locator."""
    made = zip_of([(f"{number}{'x' * 200}", b"") for number in range(30)])
    place, end = _directory_place(made), made.rindex(b"PK\5\6")

    def record(members: int, size_bytes: int) -> bytes:
        return struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, members, members, size_bytes, place)

    def archive(named: int) -> bytes:
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, named, 1)
        last = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
        return made[:end] + record(30, end - place) + locator + last

    assert len(unpack(archive(end), "unzip")) == 30
    assert "more than 2 members" in refuse(archive(end), "unzip", members_max=2)
    forged = record(1, 10) + archive(0)
    assert "can't be read" in refuse(forged, "unzip", members_max=2)


def test_what_the_reader_of_an_archive_raises_is_its_own() -> None:
    made = zip_of([("name", b"1")])
    with tempfile.TemporaryFile() as file:
        file.write(made)
        members = open_chain(["unzip"]).steps[0].converter
        assert isinstance(members, Unpacker)
        found = members.unpack(Archive(file, file, ARCHIVE, 10))
        assert isinstance(found, Generator)
        next(found)
        with pytest.raises(ValueError, match="mine"):
            found.throw(ValueError("mine"))


def _directory_place(made: bytes) -> int:
    return made.index(b"PK\1\2")


def _set_flag(made: bytes, flag: int) -> bytes:
    place = _directory_place(made) + 8
    return made[:place] + struct.pack("<H", flag) + made[place + 2 :]


def _set_method(made: bytes, method: int) -> bytes:
    place = _directory_place(made) + 10
    return made[:place] + struct.pack("<H", method) + made[place + 2 :]


_NAMES = st.text(st.characters(exclude_characters="/\\\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
    lambda name: name not in {".", "..", ".gobblin"}
)


@settings(max_examples=40)
@given(st.dictionaries(_NAMES, st.binary(max_size=1_500), max_size=6), st.sampled_from(["tar", "zip"]))
def test_what_is_packed_is_unpacked_to_the_same(files: dict[str, bytes], kind: str) -> None:
    chain = open_chain([{"kind": kind, "name": f"all.{kind}"}])
    entries = [PackedEntry("d", True, 0, 0o750, 0)] + [
        PackedEntry(f"d/{name}", False, len(files[name]), 0o640, number * 10**18)
        for number, name in enumerate(sorted(files))
    ]

    def pack() -> bytes:
        assert chain.packer is not None
        return b"".join(chain.packer.pack(entries, open_entry))

    def open_entry(entry: PackedEntry) -> "_Opened":
        return _Opened(files[entry.path.removeprefix("d/")])

    assert unpack(pack(), f"un{kind}") == {"d": None, **{f"d/{name}": content for name, content in files.items()}}
    assert pack() == pack()


class _Opened:
    def __init__(self, content: bytes) -> None:
        self._content = io.BytesIO(content)

    def __enter__(self) -> io.BytesIO:
        return self._content

    def __exit__(self, *_error: object) -> None:
        self._content.close()


@settings(max_examples=150)
@given(st.data())
def test_no_change_of_a_byte_gets_past_the_rules(data: st.DataObject) -> None:
    """Whatever a header says, a member's path stays below its directory, or the archive is refused."""
    made = bytearray(tar_of([("d/one", b"1" * 20), ("two", b"2")], format_=data.draw(st.sampled_from(FORMATS))))
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, 2_600), st.integers(0, 255)), max_size=4)):
        made[place] = value
    header = bytearray(made[:512])
    header[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(header)
    try:
        found = unpack(bytes(made))
    except RejectedError:
        return
    for path in found:
        assert path == "/".join(_plain(path)), path


def _plain(path: str) -> Iterator[str]:
    for name in path.split("/"):
        assert name not in {"", ".", "..", ".gobblin"}
        assert "\0" not in name
        yield name
