"""Files of rows in each format: they hold the rows that were written, and damage to them is found."""

import base64
import csv
import datetime as dt
import gzip
import io
import json
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gobblin_assets.commit.published.verification import find_damage
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.files import DataFile, FileFormat, format_of, name_ending
from gobblin_assets.rows.new_files import FilesInDirectory
from gobblin_assets.rows.open_files import OpenFile
from gobblin_assets.rows.text_rows import require_text_columns

FORMS = [(each, kind) for each in (FileFormat.JSON, FileFormat.CSV) for kind in ("gzip", "none")]
COLUMNS = pa.schema([("n", pa.int64()), ("text", pa.string())])
TEXTS = ("", " a ", 'q"', "a\nb", "\r\n", "\\", "\0\x1f", "é𝄞", ",")


def write(
    root: Path, form: tuple[FileFormat, str], *batches: pa.RecordBatch, fs: PosixFileSystem | None = None
) -> tuple[Path, DataFile]:
    files = FilesInDirectory(fs or PosixFileSystem(), str(root))
    file = OpenFile(files.create("", f"part-1{name_ending(*form)}"), batches[0].schema, *form)
    for each in batches:
        file.add(each)
        file.flush()
    finished = file.finish().file
    return root / finished.name, finished


def numbered(*texts: str | None) -> pa.RecordBatch:
    return pa.record_batch([list(range(len(texts))), list(texts)], schema=COLUMNS)


def content_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


@pytest.mark.parametrize("form", FORMS, ids=".".join)
def test_other_programs_read_the_same_rows(tmp_path: Path, form: tuple[FileFormat, str]) -> None:
    path, file = write(tmp_path, form, numbered(*TEXTS), numbered(*reversed(TEXTS)))
    expected = [(n, text) for some in (TEXTS, TEXTS[::-1]) for n, text in enumerate(some)]
    if form[0] is FileFormat.JSON:
        found = [(row["n"], row["text"]) for row in map(json.loads, content_of(path).split("\n")[:-1])]
    else:
        header, *records = csv.reader(io.StringIO(content_of(path), newline=""))
        assert header == ["n", "text"]
        found = [(int(n), text) for n, text in records]
    assert found == expected
    assert file.row_count == len(expected)
    assert file.identity.size_bytes == path.stat().st_size


def test_each_type_has_its_text(tmp_path: Path) -> None:
    at = dt.datetime(2026, 3, 29, 1, 30, 0, 7)  # noqa: DTZ001  a wall clock's
    schema = pa.schema(
        [
            ("money", pa.decimal128(38, 18)),
            ("at", pa.timestamp("us", tz="Europe/Berlin")),
            ("clock", pa.timestamp("ms")),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("float", pa.float32()),
            ("none", pa.int64()),
            ("map", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ]
    )
    row = {
        "money": Decimal("12345678901234567890.123456789012345678"),
        "at": at.replace(tzinfo=dt.UTC),
        "clock": at.replace(microsecond=7000),
        "day": at.date(),
        "raw": b"\0\xff",
        "float": 0.1,
        "map": [("a", [1, None]), ("b", None)],
    }
    path, _file = write(tmp_path, (FileFormat.JSON, "none"), pa.RecordBatch.from_pylist([row], schema))
    assert json.loads(path.read_text(), parse_float=str) == {
        "money": "12345678901234567890.123456789012345678",
        "at": "2026-03-29T01:30:00.000007Z",
        "clock": "2026-03-29T01:30:00.007000",
        "day": "2026-03-29",
        "raw": base64.b64encode(b"\0\xff").decode(),
        "float": "0.1",
        "map": {"a": [1, None], "b": None},
    }


def test_slices_of_nested_columns_hold_their_own_values_only(tmp_path: Path) -> None:
    schema = pa.schema(
        [("l", pa.list_(pa.struct([("x", pa.int64())]))), ("m", pa.map_(pa.string(), pa.list_(pa.int64())))]
    )
    rows = [{"l": [{"x": n}] * (n % 3), "m": [(str(n), [n] * (n % 4))]} if n % 5 else {} for n in range(200)]
    whole = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)
    path, _file = write(
        tmp_path, (FileFormat.JSON, "none"), *(whole.slice(begin, 7) for begin in range(0, whole.num_rows, 7))
    )
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [{"l": row["l"], "m": dict(row["m"])} if row else {} for row in rows]


def test_large_batches_are_written_in_pieces_in_order(tmp_path: Path) -> None:
    batch = pa.record_batch([list(range(150_000)), ["x" * 100] * 150_000], schema=COLUMNS)
    path, file = write(tmp_path, (FileFormat.JSON, "gzip"), batch)
    assert [json.loads(line)["n"] for line in content_of(path).splitlines()] == list(range(150_000))
    assert file.row_count == 150_000


def test_null_and_the_empty_text_differ_in_csv(tmp_path: Path) -> None:
    path, _file = write(tmp_path, (FileFormat.CSV, "none"), numbered("", None, '"'))
    assert path.read_text() == '"n","text"\n0,""\n1,\n2,""""\n'


@pytest.mark.parametrize(
    ("file_format", "kind"),
    [
        (FileFormat.CSV, pa.list_(pa.int64())),
        (FileFormat.CSV, pa.struct([("a", pa.int64())])),
        (FileFormat.CSV, pa.map_(pa.string(), pa.int64())),
        (FileFormat.JSON, pa.map_(pa.int64(), pa.int64())),
        (FileFormat.JSON, pa.list_(pa.map_(pa.int64(), pa.int64()))),
        (FileFormat.JSON, pa.struct([])),
        (FileFormat.JSON, pa.time64("us")),
        (FileFormat.JSON, pa.float16()),
    ],
)
def test_what_a_format_cannot_hold_is_refused_by_name(file_format: FileFormat, kind: pa.DataType) -> None:
    with pytest.raises(RejectedError, match="'odd'") as refused:
        require_text_columns(file_format, pa.schema([("n", pa.int64()), ("odd", kind)]))
    assert refused.value.hint
    require_text_columns(file_format, COLUMNS)


def test_the_only_column_of_csv_is_refused() -> None:
    with pytest.raises(RejectedError, match="'n' is the only column"):
        require_text_columns(FileFormat.CSV, pa.schema([("n", pa.int64())]))
    require_text_columns(FileFormat.JSON, pa.schema([("n", pa.int64())]))


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")])
def test_years_that_no_text_has_are_refused_by_name(tmp_path: Path, kind: pa.DataType) -> None:
    """Parquet has them."""
    unit, numbers = (1, pa.int32()) if pa.types.is_date(kind) else (86_400_000_000, pa.int64())
    for days, is_good in ((-719_162, True), (2_932_896, True), (-719_163, False), (2_932_897, False)):
        batch = pa.record_batch({"when": pa.array([None, days * unit], numbers).view(kind)})
        root = tmp_path / str(days)
        root.mkdir()
        with nullcontext() if is_good else pytest.raises(RejectedError, match="'when'"):
            write(root, (FileFormat.JSON, "none"), batch)


@pytest.mark.parametrize("form", [*FORMS, (FileFormat.PARQUET, "zstd")], ids=".".join)
def test_the_format_is_told_by_the_name(form: tuple[FileFormat, str]) -> None:
    assert format_of(f"/a.csv/part.json.x/part-1{name_ending(*form)}") is form[0]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "lz4"])
def test_a_compression_that_not_every_reader_of_text_knows_is_refused(compression: str) -> None:
    with pytest.raises(RejectedError, match=compression):
        name_ending(FileFormat.JSON, compression)


class LossyDisk(PosixFileSystem):
    """Loses what was written last to each file, and says nothing."""

    def create_file(self, path: str) -> BinaryIO:
        stream = super().create_file(path)
        close = stream.close

        def cut() -> None:
            close()
            content = Path(path).read_bytes()
            Path(path).write_bytes(content[: len(content) // 2])

        stream.close = cut  # type: ignore[method-assign]  # a stream that loses bytes as it is closed
        return stream


@pytest.mark.parametrize("form", [*FORMS, (FileFormat.PARQUET, "zstd")], ids=".".join)
def test_a_file_that_lost_bytes_is_never_finished(tmp_path: Path, form: tuple[FileFormat, str]) -> None:
    with pytest.raises(RetryableError):
        write(tmp_path, form, numbered(*TEXTS), fs=LossyDisk())


def _flip(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _shorten(content: bytes) -> bytes:
    return content[:-3]


def _without_last_row(content: bytes) -> bytes:
    return content[: content.rstrip(b"\n").rindex(b"\n") + 1]


def _not_text(content: bytes) -> bytes:
    return content.replace("é".encode(), b"\xc3\x28")


def _open_quote(content: bytes) -> bytes:
    return content.replace(b'"', b"'", 7)


@pytest.mark.parametrize(
    ("form", "damage"),
    [
        *((form, damage) for form in FORMS for damage in (_shorten, _open_quote) if form[1] == "none"),
        *((form, damage) for form in FORMS for damage in (_shorten, _flip) if form[1] == "gzip"),
        *((form, damage) for form in FORMS for damage in (_without_last_row, _not_text) if form[1] == "none"),
        ((FileFormat.PARQUET, "zstd"), _flip),
    ],
    ids=lambda each: each.__name__ if callable(each) else ".".join(each),
)
def test_damage_is_found(tmp_path: Path, form: tuple[FileFormat, str], damage: Callable[[bytes], bytes]) -> None:
    path, file = write(tmp_path, form, numbered(*TEXTS[2:], "last"), numbered(*map(str, range(2000))))
    fs = PosixFileSystem()
    assert find_damage(fs, str(path), row_count=file.row_count) is None
    assert find_damage(fs, str(path), row_count=file.row_count + 1) is not None
    content = path.read_bytes()
    assert damage(content) != content
    path.write_bytes(damage(content))
    assert find_damage(fs, str(path), row_count=file.row_count) is not None


@pytest.mark.parametrize("form", FORMS, ids=".".join)
def test_an_empty_text_file_is_damaged(tmp_path: Path, form: tuple[FileFormat, str]) -> None:
    path, file = write(tmp_path, form, numbered("a"))
    path.write_bytes(b"")
    assert find_damage(PosixFileSystem(), str(path), row_count=file.row_count) is not None


def test_parquet_is_what_it_was(tmp_path: Path) -> None:
    path, file = write(tmp_path, (FileFormat.PARQUET, "zstd"), numbered("a"), numbered("b", "c"))
    metadata = pq.read_metadata(path)
    assert (metadata.num_rows, metadata.num_row_groups, file.row_count) == (3, 2, 3)
    assert b"org.apache.spark.version" in metadata.metadata
    assert metadata.row_group(0).column(0).compression == "ZSTD"
