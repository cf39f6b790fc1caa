"""Datasets whose files are text are read with the values that were written, as if the files were Parquet."""

import datetime as dt
import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema
from sqlalchemy import Engine

from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.sink.lane_files import LaneFiles, LaneFormat, PlacedRows
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import Role
from gobblin_assets.rows import dataset_reader
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.rows.new_files import FilesInDirectory
from gobblin_assets.rows.parquet_writer import WrittenDirectory
from gobblin_assets.rows.row_quality import RowSplit
from gobblin_assets.spec.job_spec import RowPolicySpec, WriterSpec
from tests.support.publishing import Publisher

pytestmark = pytest.mark.turns(of=8)

URN = "public.orders"
UTC = dt.UTC

PLAIN = pa.schema([
    ("text", pa.string()), ("long", pa.int64()), ("int", pa.int32()), ("short", pa.int16()), ("byte", pa.int8()),
    ("double", pa.float64()), ("float", pa.float32()), ("yes", pa.bool_()), ("bytes", pa.binary()),
    ("money", pa.decimal128(38, 18)), ("small", pa.decimal128(9, 2)), ("day", pa.date32()),
    ("at", pa.timestamp("us", tz="UTC")), ("clock", pa.timestamp("us")), ("_corrupt_record", pa.string()),
])  # fmt: skip
NESTED = pa.schema([
    ("text", pa.string()),
    ("times", pa.list_(pa.timestamp("us", tz="UTC"))),
    ("parts", pa.list_(pa.struct([("Name", pa.string()), ("price", pa.decimal128(20, 3)), ("raw", pa.binary())]))),
    ("place", pa.struct([("x", pa.float64()), ("inner", pa.struct([("days", pa.list_(pa.date32()))]))])),
    ("counts", pa.map_(pa.string(), pa.int64())),
    ("lists", pa.map_(pa.string(), pa.list_(pa.float64()))),
    ("deep", pa.list_(pa.list_(pa.string()))),
])  # fmt: skip

TEXTS = (
    *("", " ", "  both  ", '"', '""', '"quoted"', "a,b", ",", "\\", '\\"', "\\N", "null", "NULL", "#", "\ttab"),
    *("line\nfeed", "\n", "\r", "\r\n", "a\r\nb\rc\n", "\n\n", "\0", 'a\0"b', "\x1f\x7f", "ü€𝄞", "\u2028", "\ufeff"),
    *("{}", "[1]", "NaN", "true", "1e3", "x" * 70_000, "'", "%", "a\\", '","', '"\n"', "\x85"),
)


def plain_row(**values: object) -> dict[str, object]:
    return dict.fromkeys(PLAIN.names) | values


PLAIN_ROWS = (
    *(plain_row(text=text, _corrupt_record=text, bytes=text.encode()) for text in TEXTS),
    plain_row(),
    plain_row(long=2**63 - 1, int=-(2**31), short=-(2**15), byte=127, yes=True),
    plain_row(long=-(2**63), int=2**31 - 1, short=0, byte=-128, yes=False),
    *(
        plain_row(double=value)
        for value in (math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1, 1e16, 1e23, -1e-7)
    ),
    *(plain_row(float=struct.unpack("f", struct.pack("f", value))[0]) for value in (math.nan, -math.inf, 0.1, 3.4e38)),
    plain_row(money=Decimal("12345678901234567890.123456789012345678"), small=Decimal("-0.01")),
    plain_row(money=Decimal("1E-18"), small=Decimal("9999999.99")),
    plain_row(money=Decimal("-99999999999999999999.999999999999999999"), small=Decimal(0)),
    plain_row(bytes=bytes(range(256))),
    *(
        plain_row(day=at.date(), at=at, clock=at.replace(tzinfo=None))
        for at in (
            dt.datetime(1, 1, 1, tzinfo=UTC),
            dt.datetime(1582, 10, 10, 1, tzinfo=UTC),
            dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            dt.datetime(2026, 3, 29, 2, 30, 0, 1, tzinfo=UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        )
    ),
)
NESTED_ROWS = (
    *({"text": text, "deep": [[text], [], None, [None, text]]} for text in TEXTS),
    {},
    {"times": [], "parts": [], "counts": [], "lists": [], "deep": [], "place": {}},
    {
        "times": [None, dt.datetime(2026, 1, 1, tzinfo=UTC)],
        "parts": [None, {}, {"Name": 'a"', "price": Decimal("0.100")}],
    },
    {"parts": [{"raw": b""}, {"raw": b"\0\xff"}], "place": {"inner": {}}},
    {"place": {"x": math.nan, "inner": {"days": [None, dt.date(2026, 2, 28)]}}},
    {"counts": [("", 1), ("a\nb", None), ('"', -1)], "lists": [("a", None), ("b", []), ("c", [None, math.inf])]},
)


@dataclass
class TextPublisher(Publisher):
    """Publishes what a lane's files are, in place of a frame's."""

    batches: Iterable[PlacedRows] = ()
    schema: pa.Schema = field(default_factory=lambda: PLAIN)
    lane_format: tuple[FileFormat, str] = (FileFormat.JSON, "gzip")
    partition_fields: tuple[t.StructField, ...] = ()

    def _write(
        self, frame: DataFrame, directory: str, urn: str, writer: WriterSpec, policies: tuple[RowPolicySpec, ...]
    ) -> tuple[RowSplit, list[WrittenDirectory]]:
        del urn, writer, policies
        fs, _root = open_file_system(str(self.root))
        fs.make_directories(directory)
        files = LaneFiles(
            LaneFormat({Role.DATA: self.schema}, *self.lane_format), lambda _role: FilesInDirectory(fs, directory)
        )
        for placed in self.batches:
            files.add(placed)
        written = [
            WrittenDirectory(
                f"{directory}/{each.partition_path}".rstrip("/"), each.partition_path, (each.finished.file,)
            )
            for each in files.close()
        ]
        data = t.StructType([*from_arrow_schema(self.schema, prefer_timestamp_ntz=True).fields, *self.partition_fields])
        return RowSplit(frame, (), {Role.DATA: data}), written


FORMATS = [(FileFormat.JSON, "gzip"), (FileFormat.JSON, "none"), (FileFormat.CSV, "gzip"), (FileFormat.CSV, "none")]


def shown(frame: DataFrame) -> Counter[str]:
    return Counter(map(str, frame.toArrow().to_pylist()))


def publish(
    spark: SparkSession,
    engine: Engine,
    root: Path,
    schema: pa.Schema,
    rows: Iterable[dict[str, Any]],
    form: tuple[FileFormat, str],
) -> TextPublisher:
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(schema.names) | row for row in rows], schema)
    half = batch.num_rows // 2
    publisher = TextPublisher(
        engine,
        root,
        batches=[PlacedRows(Role.DATA, "", batch.slice(0, half)), PlacedRows(Role.DATA, "", batch.slice(half))],
        schema=schema,
        lane_format=form,
    )
    publisher.publish(spark.range(0), f"{URN}.{form[0]}.{form[1]}")
    return publisher


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("form", FORMATS, ids=".".join)
def test_plain_values_are_those_of_parquet(
    spark: SparkSession, engine: Engine, tmp_path: Path, form: tuple[FileFormat, str]
) -> None:
    frames = []
    for each in ((FileFormat.PARQUET, "zstd"), form):
        publish(spark, engine, tmp_path, PLAIN, PLAIN_ROWS, each)
        frames.append(read_dataset(spark, f"{URN}.{each[0]}.{each[1]}", job="shop", database=engine))
    expected, found = frames
    assert found.schema == expected.schema
    assert found.count() == len(PLAIN_ROWS)
    wanted, got = shown(expected), shown(found)
    assert got - wanted == Counter()
    assert got == wanted
    assert shown(found.select("day", "long")) == shown(expected.select("day", "long"))


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("form", FORMATS[:2], ids=".".join)
def test_nested_values_are_those_of_parquet(
    spark: SparkSession, engine: Engine, tmp_path: Path, form: tuple[FileFormat, str]
) -> None:
    frames = []
    for each in ((FileFormat.PARQUET, "zstd"), form):
        publish(spark, engine, tmp_path, NESTED, NESTED_ROWS, each)
        frames.append(read_dataset(spark, f"{URN}.{each[0]}.{each[1]}", job="shop", database=engine))
    expected, found = frames
    wanted, got = shown(expected), shown(found)
    assert got - wanted == Counter()
    assert got == wanted


def _frame(spark: SparkSession, publisher: TextPublisher, **options: Any) -> DataFrame:
    return read_dataset(spark, URN, job="shop", database=publisher.engine, **options)


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("form", FORMATS[::2], ids=".".join)
@pytest.mark.parametrize("directories_max", [50, 0], ids=["by directory", "by path"])
def test_directories_and_columns_of_several_publications(
    spark: SparkSession,
    engine: Engine,
    tmp_path: Path,
    form: tuple[FileFormat, str],
    directories_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column that came later, one that was widened, a directory column, and files of another format."""
    monkeypatch.setattr(dataset_reader, "DIRECTORIES_MAX", directories_max)
    old = pa.schema([("raw", pa.binary()), ("n", pa.int32())])
    new = pa.schema([("more", pa.string()), ("n", pa.int64()), ("raw", pa.binary())])
    by = (t.StructField("day", t.StringType()),)
    publisher = TextPublisher(engine, tmp_path / "la ke~%20", schema=old, lane_format=form, partition_fields=by)
    publisher.batches = [
        PlacedRows(Role.DATA, "day=2026-01-01", pa.record_batch([[b"\0", None], [1, 2]], schema=old)),
        PlacedRows(Role.DATA, "day=a%2Fb", pa.record_batch([[b""], [3]], schema=old)),
    ]
    publisher.publish(spark.range(0), URN, partition="2026-01-01")
    publisher.schema = new
    publisher.batches = [PlacedRows(Role.DATA, "day=x", pa.record_batch([["é"], [2**40], [b"r"]], schema=new))]
    publisher.publish(spark.range(0), URN, partition="2026-02-01")
    publisher.lane_format = (FileFormat.PARQUET, "zstd")
    publisher.batches = [PlacedRows(Role.DATA, "day=x", pa.record_batch([["p"], [7], [None]], schema=new))]
    publisher.publish(spark.range(0), URN, partition="2026-02-01")
    frame = _frame(spark, publisher)
    assert frame.schema.simpleString() == "struct<more:string,n:bigint,raw:binary,day:string>"
    found = Counter((row["more"], row["n"], row["raw"], row["day"]) for row in frame.toArrow().to_pylist())
    assert found == Counter(
        [
            (None, 1, b"\0", "2026-01-01"),
            (None, 2, None, "2026-01-01"),
            (None, 3, b"", "a/b"),
            ("é", 2**40, b"r", "x"),
            ("p", 7, None, "x"),
        ]
    )
    assert [row.n for row in frame.where("day = 'a/b'").select("n").collect()] == [3]


@pytest.mark.parametrize(
    ("form", "old", "new"),
    [
        ((FileFormat.JSON, "none"), b'"n":12345', b'"n":"1345'),
        ((FileFormat.JSON, "none"), b'{"n":12345', b'["n",12345'),
        ((FileFormat.CSV, "none"), b"12345", b"1x345"),
        ((FileFormat.CSV, "none"), b'"n","text"', b'"m","text"'),
    ],
)
def test_a_text_that_is_no_value_of_its_column_fails_the_query(
    spark: SparkSession, engine: Engine, tmp_path: Path, form: tuple[FileFormat, str], old: bytes, new: bytes
) -> None:
    """Spark alone would give NULL."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    publisher = TextPublisher(engine, tmp_path, schema=schema, lane_format=form)
    publisher.batches = [PlacedRows(Role.DATA, "", pa.record_batch([[12345], ["a"]], schema=schema))]
    publisher.publish(spark.range(0), URN)
    (path,) = tmp_path.rglob("part-*")
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(Py4JJavaError, match="FAILED_READ_FILE"):
        _frame(spark, publisher).collect()
