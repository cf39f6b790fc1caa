"""Copies whose files are converted on the way: names, bytes, what the next copy finds, and what is refused."""

import bz2
import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
from backports import zstd

from gobblin_assets import failpoints
from gobblin_assets.errors import ErrorFamily, RejectedError, RetryableError
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.jobs.copy.converters.chain import open_chain, write_chain
from gobblin_assets.jobs.copy.converters.listing import ConvertedListing
from gobblin_assets.jobs.copy.copyable import Conversion, CopyItem, PlannedFile
from gobblin_assets.jobs.copy.difference import DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.globs import Filters
from gobblin_assets.jobs.copy.sameness import Sameness
from gobblin_assets.jobs.copy.transfer.bins import plan_bins
from gobblin_assets.jobs.copy.transfer.converting import convert_entries
from gobblin_assets.jobs.copy.transfer.crews import ProcessCrew, ProcessPool
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions
from gobblin_assets.jobs.copy.transfer.results import SplitFiles, list_results
from gobblin_assets.jobs.copy.transfer.writing import BinWork, RowBatch, pack_item
from gobblin_assets.run.run_values import RunReport
from tests.support import copy_lake
from tests.support.archives import AT_S, put, tar_of, zip_of
from tests.support.copy_lake import CopyLake, CopyWorld, Open, files_of, inodes_of, look_at
from tests.support.copying import entry_of
from tests.support.gpg import Keys, look_at_programs, open_keys, store

pytestmark = pytest.mark.turns(of=8)

job = copy_lake.job

WHOLE: dict[str, Any] = {"datasets": []}


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.source.mkdir()
    return made


@pytest.fixture
def keys() -> Iterator[Keys]:
    with open_keys() as opened:
        yield opened


def copy(world: CopyWorld) -> int:
    """The files that were published."""
    report = world.run()
    assert not report.failed, report.failed
    return sum(each.publication.file_count for each in report.datasets if each.publication is not None)


def refused(report: RunReport) -> str:
    (failed,) = report.failed
    assert failed.error_family is ErrorFamily.REJECTED, failed
    return str(failed.error)


def bytes_of(lake: CopyLake) -> dict[str, bytes]:
    return {name: (lake.tree / name).read_bytes() for name in files_of(lake.tree)}


def test_each_ending_names_its_converter(lake: CopyLake, job: Open) -> None:
    text = os.urandom(3_000_000)
    put(lake.source / "a.csv.gz", gzip.compress(text[:1_000_000], 1) + gzip.compress(text[1_000_000:], 1) + bytes(512))
    put(lake.source / "d/b.csv.bz2", bz2.compress(b"b") + bz2.compress(b"c"))
    put(lake.source / "d/c.csv.zst", zstd.compress(b"z" * 9) + zstd.compress(b"s"))
    put(lake.source / "d/d.csv.lz4", lz4.frame.compress(b"l" * 9))
    put(lake.source / "d/plain.gz.txt", b"stays")
    world = job({**WHOLE, "verify": "reread"}, converters=["gunzip", "bunzip2", "unzstd", "unlz4"])

    assert copy(world) == 5

    assert bytes_of(lake) == {
        "a.csv": text,
        "d/b.csv": b"bc",
        "d/c.csv": b"z" * 9 + b"s",
        "d/d.csv": b"l" * 9,
        "d/plain.gz.txt": b"stays",
    }
    assert {found[1] for found in files_of(lake.tree).values()} == {AT_S * 10**9}
    assert copy(world) == 0
    put(lake.source / "a.csv.gz", gzip.compress(b"new"), at_s=AT_S + 1)
    assert copy(world) == 1
    assert bytes_of(lake)["a.csv"] == b"new"


def test_names_are_compared_as_they_are_after_conversion(lake: CopyLake, job: Open) -> None:
    """In another order than the source's: ``t`` comes before ``t-1`` and ``t.2``, and ``t.gz`` between both."""
    for name in ("t.gz", "t-1/x.gz", "t-1/x-y", "t.2/z.gz", "u"):
        put(lake.source / name, gzip.compress(name.encode()) if name.endswith(".gz") else name.encode())
    world = job(WHOLE, converters=["gunzip"], deletes="all", exclude=["u"])

    assert copy(world) == 4
    assert copy(world) == 0
    assert sorted(files_of(lake.tree)) == ["t", "t-1/x", "t-1/x-y", "t.2/z"]
    (lake.source / "t.gz").unlink()
    assert copy(world) == 0, "it is only removed"
    assert sorted(files_of(lake.tree)) == ["t-1/x", "t-1/x-y", "t.2/z"]


@pytest.mark.parametrize(
    ("files", "converters", "said"),
    [
        ({"a.tar": tar_of([("x", b"")]), "a/y": b""}, ["untar"], "'a/'"),
        ({"a.tar": tar_of([("x", b"")]), "a": b""}, ["untar"], "'a' is the name of a file, and of a directory"),
        ({"a.tar": tar_of([("x.gz", b""), ("x", b"")])}, ["untar", "gunzip"], "two of its members become 'a/x'"),
        ({"A.gz": gzip.compress(b""), "a": b""}, ["gunzip"], "differ by case only"),
        ({"a.tar": tar_of([("../x", b"")])}, ["untar"], "a.tar: the member '../x' has `..` in its path"),
    ],
)
def test_what_no_archive_or_name_may_be_is_refused_when_it_is_planned(
    tmp_path: Path, files: dict[str, bytes], converters: list[str], said: str
) -> None:
    for name, content in files.items():
        put(tmp_path / name, content)
    chain = open_chain(converters)
    tree = PosixTree("source", order=chain.sort_key_of)
    listed = ConvertedListing(chain, str(tmp_path), Filters(), lambda _path: None, Sameness())

    with pytest.raises(RejectedError) as found:
        list(compare_trees(listed.list_entries(tree.list_tree(str(tmp_path))), (), DifferenceRules(ignores_case=True)))

    assert said in found.value.message


@pytest.mark.parametrize("name", ["a.gz", "a.tar"])
def test_a_source_that_changes_while_it_is_converted_fails(tmp_path: Path, name: str) -> None:
    noise = os.urandom(3_000_000)
    source = put(tmp_path / name, gzip.compress(noise, 1) if name.endswith("gz") else tar_of([("m", noise)]))
    origin = entry_of(tmp_path, name)
    file = PlannedFile.of(name, origin, conversion=Conversion(1, (0,), "" if name.endswith("gz") else "m"))

    def grow(_count: int) -> None:
        with source.open("ab") as out:
            out.write(b"more")

    converters = write_chain(["gunzip" if name.endswith("gz") else "untar"])
    entries = [((0, 0), file, str(tmp_path / "target"))]
    options = CopyOptions(checksum=True, access_lists=False, extended=False)
    ((_place, staged, error),) = convert_entries(str(tmp_path), converters, options, entries, grow)

    assert staged is None
    assert isinstance(error, RetryableError)
    assert "changed while it was read" in error.message


def test_copying_processes_convert_as_threads_do(tmp_path: Path) -> None:
    """An archive is read by the process that has all of its members, whatever else lies between them."""
    root, attempt = tmp_path / "in", tmp_path / "attempt"
    put(root / "a.tar.gz", gzip.compress(tar_of([(f"m{n}", b"%d" % n) for n in range(6)])))
    put(root / "b.gz", gzip.compress(b"b"))
    archive, single = entry_of(root, "a.tar.gz"), entry_of(root, "b.gz")
    members = [PlannedFile.of(f"a/m{n}", archive, conversion=Conversion(1, (0, 1), f"m{n}")) for n in range(6)]
    items = [CopyItem(n, file.path, (file,)) for n, file in enumerate(members)]
    items.insert(3, CopyItem(7, "b", (PlannedFile.of("b", single, conversion=Conversion(1, (0,))),)))
    (found,) = plan_bins(items, 1)
    (attempt / found.writer).mkdir(parents=True)
    options = (True, False, False, False)
    chain = write_chain(["gunzip", "untar"])
    work = BinWork(
        str(root), str(attempt / found.writer), options, tuple(map(pack_item, found.items)), converters=chain
    )
    pool = ProcessPool()
    crew = ProcessCrew(pool, [lambda: work], 1)

    rows = [row for batch in crew.reports() if isinstance(batch, RowBatch) for row in batch.rows]

    crew.close()
    pool.close()
    splits = SplitFiles(str(root), str(attempt), CopyOptions(*options), (found,))
    results = list_results(found, rows, splits)
    assert [result.failure for result in results] == [None] * 7
    assert {result.path: (attempt / result.staged_path).read_bytes() for result in results} == {
        "b": b"b",
        **{f"a/m{n}": b"%d" % n for n in range(6)},
    }


@pytest.mark.core
def test_broken_files_fail_by_name_and_nothing_is_published(lake: CopyLake, job: Open) -> None:
    whole = gzip.compress(os.urandom(100_000))
    put(lake.source / "cut.gz", whole[:-9])
    put(lake.source / "flipped.gz", whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:])
    put(lake.source / "good.gz", whole)

    said = refused(job(WHOLE, converters=["gunzip"]).run())

    assert "2 files could not be copied" in said
    assert "cut: " in said
    assert "flipped: " in said
    assert not look_at(lake.tree)


MEMBERS = [("d/", b""), ("d/one", b"1" * 700), ("./d/two", b"2"), ("three.lz4", lz4.frame.compress(b"3"))]


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("name", ["in/a.tgz", "in/a.zip"])
def test_an_archive_becomes_a_directory(lake: CopyLake, job: Open, name: str) -> None:
    def make(members: list[tuple[str, bytes]], at_s: int) -> None:
        made = zip_of(members) if name.endswith("zip") else gzip.compress(tar_of(members))
        put(lake.source / name, made, at_s=at_s)

    kinds: list[Any] = ["gunzip", "untar"] if name.endswith("tgz") else ["unzip"]
    world = job(WHOLE, converters=[*kinds, {"kind": "unlz4", "include": ["/in/a/*"]}], deletes="ours")
    make(MEMBERS, AT_S)

    assert copy(world) == 3

    assert bytes_of(lake) == {"in/a/d/one": b"1" * 700, "in/a/d/two": b"2", "in/a/three": b"3"}
    assert {found[1] for found in files_of(lake.tree).values()} == {AT_S * 10**9}
    originals = inodes_of(lake.tree)
    assert copy(world) == 0
    make([("d/one", b"1" * 700), ("d/new", b"n"), ("three.lz4", lz4.frame.compress(b"4"))], AT_S + 5)
    assert copy(world) == 3, "one, new and three"
    assert bytes_of(lake) == {"in/a/d/one": b"1" * 700, "in/a/d/new": b"n", "in/a/three": b"4"}
    assert copy(world) == 0
    assert inodes_of(lake.tree)["in/a/d"] == originals["in/a/d"]
    (lake.tree / "in/a/d/new").unlink()
    assert copy(world) == 1, "what somebody removed comes back"


OF_TABLES = [("a.csv", b"1"), ("b.json", b"2"), ("c.csv.gz", gzip.compress(b"3"))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"include": ["*.csv"]}, {"include": ["*.csv", "*.json"]}, {"in/a/a.csv": b"1", "in/a/b.json": b"2"}),
        (
            {"exclude": ["*.json"]},
            {"exclude": ["*.json"], "converters": ["unzip", "gunzip"]},
            {"in/a/a.csv": b"1", "in/a/c.csv": b"3"},
        ),
        (
            {"converters": ["unzip"], "exclude": ["*.gz"]},
            {"converters": [{"kind": "unzip", "exclude": ["nothing"]}]},
            {f"in/a/{name}": content for name, content in OF_TABLES},
        ),
    ],
)
def test_other_options_reach_archives_that_were_unpacked_before(
    lake: CopyLake, job: Open, before: dict[str, Any], after: dict[str, Any], expected: dict[str, bytes]
) -> None:
    archive = put(lake.source / "in/a.zip", zip_of(OF_TABLES))
    fixed = {"deletes": "all", "converters": ["unzip"]}
    world = job(WHOLE, **{**fixed, **before})
    assert copy(world) > 0
    assert copy(world) == 0

    world = job(WHOLE, **{**fixed, **after})
    copy(world)
    assert bytes_of(lake) == expected
    assert copy(world) == 0

    originals = archive.stat()
    archive.unlink()
    put(archive, zip_of(OF_TABLES), at_s=int(originals.st_mtime) + 1)
    copy(world)
    assert bytes_of(lake) == expected


def test_an_unpacked_archive_is_not_opened_again_while_options_and_times_stay(lake: CopyLake, job: Open) -> None:
    """Also where other file sets of the dataset were published meanwhile."""
    for day in ("2026-01-01", "2026-01-02"):
        put(lake.source / f"days/{day}/a.zip", zip_of(OF_TABLES))
    finder = {"kind": "stream", "pattern": "days/%Y-%m-%d"}
    options = {**WHOLE, "finder": finder}
    world = job(options, converters=["unzip"])
    assert copy(world) == 6
    assert copy(world) == 0
    put(lake.source / "days/2026-01-02/b.zip", zip_of(OF_TABLES))
    assert copy(world) == 3

    first = lake.source / "days/2026-01-01/a.zip"
    put(first, bytes(first.stat().st_size))
    assert copy(world) == 0, "what is no archive any more was not read"
    said = refused(job(options, converters=["unzip"], exclude=["nothing"]).run())
    assert "a.zip: the zip archive can't be read" in said


def test_other_options_reach_archives_also_where_files_wait(lake: CopyLake, job: Open) -> None:
    put(lake.source / "in/a.zip", zip_of(OF_TABLES))
    assert copy(job(WHOLE, converters=["unzip"], include=["*.csv"])) == 1
    world = job(WHOLE, converters=["unzip"], files_per_run_max=1)
    assert [copy(world) for _run in range(3)] == [1, 1, 0]
    assert len(bytes_of(lake)) == 3


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_file_set_becomes_one_archive(lake: CopyLake, job: Open, kind: str) -> None:
    for name in ("b", "a/c", "a.txt"):
        put(lake.source / name, name.encode() * 400)
    world = job(WHOLE, converters=[{"kind": kind, "name": f"all.{kind}"}, "gzip"])

    assert copy(world) == 1
    (name,) = files_of(lake.tree)
    assert name == f"all.{kind}.gz"
    first = gzip.decompress((lake.tree / name).read_bytes())
    unpacked = lake.tree.parent / "unpacked"
    (lake.tree.parent / f"x.{kind}").write_bytes(first)
    shutil.unpack_archive(lake.tree.parent / f"x.{kind}", unpacked)
    assert {n: c[2] for n, c in files_of(unpacked).items()} == {n: c[2] for n, c in files_of(lake.source).items()}
    assert copy(world) == 0
    (lake.source / "b").unlink()
    assert copy(world) == 1, "an older file is missing now"
    put(lake.source / "b", b"b" * 400)
    assert copy(world) == 1
    assert gzip.decompress((lake.tree / name).read_bytes()) == first, "the same files give the same bytes"


@pytest.mark.core
def test_what_gpg_encrypts_is_decrypted_to_the_same_bytes(
    lake: CopyLake, job: Open, keys: Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The passphrase is in no command line or environment of a program, and in no line or error."""
    monkeypatch.setenv("COPY_PASSPHRASE", keys.passphrase)
    text = os.urandom(4_000_000)
    put(lake.source / "a.csv", text)
    encrypt = {"kind": "gpg_encrypt", "homedir": keys.homedir, "recipients": [keys.fingerprint]}
    assert copy(job(WHOLE, converters=["zstd", encrypt])) == 1
    (message,) = bytes_of(lake).items()
    assert message[0] == "a.csv.zst.gpg"
    assert text[:1_000] not in message[1]

    decrypt = {"kind": "gpg_decrypt", "homedir": keys.homedir, "passphrase_env": "COPY_PASSPHRASE"}
    back = {**WHOLE, "job": "back", "source": lake.root, "destination": str(tmp_path / "back")}
    world = job(back, converters=[decrypt, "unzstd"])
    seen: list[bytes] = []
    with failpoints.install(lambda _point: seen.extend(look_at_programs(keys.homedir))):
        assert copy(world) == 1
    assert (tmp_path / "back/a.csv").read_bytes() == text
    assert seen, "gpg was never seen"
    assert not [found for found in seen if keys.passphrase.encode() in found]

    put(lake.tree / "a.csv.zst.gpg", b"no message", at_s=AT_S + 9)
    assert "gpg ended with 2: gpg: no valid OpenPGP data found" in refused(world.run())
    put(lake.tree / "a.csv.zst.gpg", store(zstd.compress(b"packed"), keys.homedir), at_s=AT_S + 10)
    assert "gpg found nothing encrypted in it" in refused(world.run())
    monkeypatch.setenv("COPY_PASSPHRASE", "two\nlines")
    assert "COPY_PASSPHRASE" in refused(world.run())
    assert not [line for line in world.lines if keys.passphrase in line or "two\n" in line]
    assert (tmp_path / "back/a.csv").read_bytes() == text
