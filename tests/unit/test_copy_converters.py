"""Chains of converters: the names they give, their options, and bytes that are read piece by piece."""

import bz2
import datetime as dt
import gzip
import io
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import lz4.frame
import pytest
from backports import zstd

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import TreeEntry, sort_key
from gobblin_assets.jobs.copy.converters.chain import COPY_CONVERTERS, Chain, open_chain, read_chain, write_chain
from gobblin_assets.jobs.copy.converters.converter_port import ByteSource
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copyable import Conversion, ConvertedEntry
from gobblin_assets.jobs.copy.difference import DifferenceKind, DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.globs import Filters
from gobblin_assets.jobs.copy.sameness import Sameness
from tests.support.tree_entries import S_NS, file_entry, listing

BLOB = random.Random(7).randbytes(300_000)
COMPRESSORS = {"gunzip": gzip.compress, "bunzip2": bz2.compress, "unzstd": zstd.compress, "unlz4": lz4.frame.compress}


def convert(content: bytes, *kinds: str | dict[str, object], size: int = 10_000) -> bytes:
    chain = open_chain(kinds)
    found = bytearray()
    with chain.convert(io.BytesIO(content), range(len(kinds)), "/in/file") as source:
        while piece := source.read(size):
            assert len(piece) <= size
            found += piece
    return bytes(found)


@pytest.mark.parametrize(
    ("converters", "path", "expected"),
    [
        (["gunzip"], "d/a.csv.gz", "d/a.csv"),
        (["gunzip"], "d.gz/a.csv", "d.gz/a.csv"),
        (["gunzip"], "a.GZ", "a.GZ"),
        (["gunzip"], ".gz", ".gz"),
        (["gunzip"], "d/...gz", "d/...gz"),
        (["gunzip", "untar"], "a.tgz", "a/"),
        (["gunzip", "untar"], "a.tar.gz", "a/"),
        (["gunzip", "untar"], "a.b.gz", "a.b"),
        (["untar", "gunzip"], "a.tar.gz", "a.tar"),
        (["gunzip", "zstd"], "a.gz", "a.zst"),
        (["gunzip", "zstd"], "a.csv", "a.csv.zst"),
        ([{"kind": "gunzip", "include": ["/logs/**"]}], "logs/a.gz", "logs/a"),
        ([{"kind": "gunzip", "include": ["/logs/**"]}], "a.gz", "a.gz"),
        ([{"kind": "gzip", "exclude": ["_*"]}], "_SUCCESS", "_SUCCESS"),
        ([{"kind": "gpg_encrypt", "passphrase_env": "P"}], "a", "a.gpg"),
        (["gpg_decrypt", "bunzip2"], "a.bz2.pgp", "a"),
    ],
    ids=str,
)
def test_endings_follow(converters: Sequence[str | dict[str, object]], path: str, expected: str) -> None:
    assert open_chain(converters).sort_key_of(path) == expected


@pytest.mark.parametrize(
    ("converters", "field"),
    [
        (["unpack"], "converters[0]"),
        ([{"level": 3}], "converters[0]"),
        (["gunzip", {"kind": "gzip", "level": 10}], "converters[1].level"),
        ([{"kind": "gunzip", "level": 1}], "converters[0].level"),
        ([{"kind": "gunzip", "include": "*.gz"}], "converters[0].include"),
        ([{"kind": "gunzip", "exclude": ["a["]}], "converters[0].exclude[0]"),
        ([{"kind": "untar", "members_max": 0}], "converters[0].members_max"),
        (["gunzip", "unzip"], "converters[1]"),
        (["untar", "untar"], "converters[1]"),
        (["gunzip", {"kind": "tar", "name": "a.tar"}], "converters[1]"),
        ([{"kind": "tar", "name": "a.tar"}, "untar"], "converters[1]"),
        ([{"kind": "tar", "name": "d/a.tar"}], "converters[0].name"),
        (["tar"], "converters[0].name"),
        (["gpg_encrypt"], "converters[0].recipients"),
        ([{"kind": "gpg_encrypt", "recipients": ["bob"]}], "converters[0].recipients"),
        ([{"kind": "gpg_decrypt", "passphrase_env": "a-b"}], "converters[0].passphrase_env"),
        ([{"kind": "gpg_decrypt", "passphrase": "x"}], "converters[0].passphrase"),
    ],
    ids=str,
)
def test_options_that_no_chain_can_have(converters: Sequence[str | dict[str, object]], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_chain(converters)
    assert refused.value.field == field
    assert refused.value.hint


@pytest.mark.parametrize(("kind", "compress"), COMPRESSORS.items())
def test_all_members_of_a_file_are_decompressed(kind: str, compress: Callable[[bytes], bytes]) -> None:
    assert convert(compress(BLOB) + compress(b"") + compress(b"end"), kind) == BLOB + b"end"
    assert convert(compress(b""), kind) == b""


@pytest.mark.parametrize(("kind", "compress"), COMPRESSORS.items())
@pytest.mark.parametrize(
    "change",
    [
        lambda whole: b"",
        lambda whole: whole[:-1],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole + b"what is this",
        lambda whole: b"x" + whole[1:],
    ],
)
def test_what_is_broken_is_never_taken_for_whole(
    kind: str, compress: Callable[[bytes], bytes], change: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(RejectedError, match="/in/file"):
        convert(change(compress(BLOB)), kind)


def test_a_wrong_checksum_is_found() -> None:
    whole = bytearray(gzip.compress(BLOB))
    whole[-8] ^= 1
    with pytest.raises(RejectedError, match="broken"):
        convert(bytes(whole), "gunzip")


def test_compression_gives_the_same_bytes_each_time() -> None:
    for kind, back in (("gzip", "gunzip"), ("zstd", "unzstd")):
        assert convert(BLOB, kind) == convert(BLOB, kind, size=77_777)
        assert convert(BLOB, kind, back) == BLOB


def test_a_bomb_takes_no_memory() -> None:
    """A piece is never larger than was asked for, whatever a few bytes expand to."""
    with open_chain(["unzstd"]).convert(io.BytesIO(zstd.compress(bytes(50_000_000))), (0,), "bomb") as source:
        assert len(source.read(4_096)) <= 4_096


def test_a_bomb_takes_no_more_disk_than_it_may() -> None:
    limited = {"kind": "unzstd", "bytes_max": 300_000}
    assert convert(zstd.compress(BLOB), limited) == BLOB
    with pytest.raises(RejectedError, match="becomes more than 300,000 bytes"):
        convert(zstd.compress(bytes(300_001)), limited)


def test_a_package_s_converter_is_found_by_its_name() -> None:
    COPY_CONVERTERS.register("reverse_in_tests", lambda _options: _Reverse())
    assert convert(b"abc", "reverse_in_tests") == b"cba"
    COPY_CONVERTERS.register("nothing_in_tests", lambda _options: object())  # type: ignore[arg-type,return-value]  # what a package might do
    with pytest.raises(RejectedError, match="which is no converter"):
        open_chain(["nothing_in_tests"])


def test_a_step_that_reads_too_little_does_not_hide_a_fault_before_it() -> None:
    """The last bytes of the file are its checksum, which nobody would have looked at."""
    whole = bytearray(gzip.compress(BLOB))
    whole[-8] ^= 1
    COPY_CONVERTERS.register("first_bytes_in_tests", lambda _options: _Reverse())
    with pytest.raises(RejectedError, match="broken"):
        convert(bytes(whole), "gunzip", "first_bytes_in_tests")


class _Reverse:
    def rename(self, name: str) -> str | None:
        return f"{name}.reversed"

    def prepare(self) -> None:
        return

    @contextmanager
    def convert(self, source: ByteSource, path: str) -> Iterator[ByteSource]:
        yield io.BytesIO(source.read(100)[::-1])


def test_a_chain_is_read_as_it_was_written() -> None:
    written = [{"kind": "gzip", "level": 1, "exclude": ["_*"]}, "zstd"]
    assert read_chain(write_chain(written)).find_route("a") == open_chain(written).find_route("a")
    assert read_chain(write_chain([])) == Chain()


def convert_listing(converters: Sequence[str | dict[str, object]], *paths: str) -> list[TreeEntry]:
    chain = open_chain(converters)
    entries = sorted(listing(*paths), key=lambda entry: chain.sort_key_of(sort_key(entry)))
    return list(ConvertedListing(chain, "/in", Filters(), lambda _path: None, Sameness()).list_entries(iter(entries)))


def test_a_listing_is_in_the_order_of_the_names_after_conversion() -> None:
    found = convert_listing(["gunzip"], "t.gz", "t-1/x.gz", "t-1/x-y", "t.2/z.gz")
    assert [entry.path for entry in found] == ["t", "t-1", "t-1/x", "t-1/x-y", "t.2", "t.2/z"]
    converted = [entry for entry in found if isinstance(entry, ConvertedEntry)]
    assert [entry.origin.path for entry in converted] == ["t.gz", "t-1/x.gz", "t.2/z.gz"]


@pytest.mark.parametrize("paths", [("a.gz", "a"), ("a.tgz", "a.tar"), ("d/a", "d/a.gz"), (".gobblin.gz",)])
def test_names_that_collide_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(RejectedError, match="becomes") as refused:
        convert_listing(["gunzip"], *paths)
    assert refused.value.field == "converters"


def test_the_time_alone_tells_whether_a_converted_file_changed() -> None:
    def kind_of(length_there: int, mtime_ns: int) -> DifferenceKind:
        mine = convert_listing(["gunzip"], "a.gz")
        (found,) = compare_trees(mine, [file_entry("a", length_there, mtime_ns)], DifferenceRules())
        return found.kind

    assert kind_of(12_345, S_NS) is DifferenceKind.SAME
    assert kind_of(1, 2 * S_NS) is DifferenceKind.UPDATE


def test_a_packed_set_has_a_time_that_every_change_changes() -> None:
    def time_of(*entries: TreeEntry) -> int | None:
        chain = open_chain([{"kind": "tar", "name": "all.tar"}])
        (found,) = ConvertedListing(chain, "/in", Filters(), lambda _path: None, Sameness()).list_entries(iter(entries))
        assert isinstance(found, ConvertedEntry)
        assert isinstance(found.conversion, Conversion)
        assert [part.path for part in found.conversion.parts] == [entry.path for entry in entries]
        return found.identity.mtime_ns

    old, new = file_entry("a", mtime_ns=S_NS), file_entry("b", mtime_ns=9 * S_NS)
    times = [
        time_of(old, new),
        time_of(new),
        time_of(file_entry("a", 2, mtime_ns=S_NS), new),
        time_of(file_entry("a", mtime_ns=S_NS + 1), new),
        time_of(file_entry("a", mtime_ns=S_NS, mode=0o600), new),
    ]
    assert len(set(times)) == len(times)
    assert {(each or 0) // S_NS for each in times} == {9}
    assert time_of(old, new) == times[0]


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("year", [1600, 2300])
def test_a_file_whose_time_no_log_can_write_is_named_before_it_is_packed(kind: str, year: int) -> None:
    mtime_ns = int(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp()) * S_NS
    listed = iter(listing("a", file_entry("d/far", mtime_ns=mtime_ns)))
    chain = open_chain([{"kind": kind, "name": f"all.{kind}"}])

    with pytest.raises(RejectedError, match="after 2262-04-11: 'd/far'") as refused:
        list(ConvertedListing(chain, "/in", Filters(), lambda _path: None, Sameness()).list_entries(listed))

    assert refused.value.field == "source"
