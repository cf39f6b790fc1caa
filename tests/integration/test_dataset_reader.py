"""A dataset is exactly its published files, with the types that the files were published with."""

import datetime as dt
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from sqlalchemy import Engine, text

from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows import dataset_reader
from gobblin_assets.rows.dataset_reader import read_dataset, read_published
from gobblin_assets.rows.output_partitions import add_output_partitions, explain_partition_failure
from gobblin_assets.spec.job_spec import RowPolicySpec, WriterSpec
from tests.support.publishing import Publisher

pytestmark = pytest.mark.turns(of=8)

URN = "public.orders"


@pytest.fixture
def publisher(engine: Engine, tmp_path: Path) -> Publisher:
    return Publisher(engine, tmp_path / "la ke~%20")


@pytest.fixture(params=["by directory", pytest.param("by path", marks=pytest.mark.rotating)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How values of directories are found: by Spark, or, if there are many directories, from each row's path."""
    if request.param == "by path":
        monkeypatch.setattr(dataset_reader, "DIRECTORIES_MAX", 0)
    return str(request.param)


def _numbers(spark: SparkSession, *numbers: int) -> DataFrame:
    # By SQL: rows from Python start a Python worker, which takes longer than all other work here.
    return spark.sql(f"SELECT explode(CAST(array({', '.join(map(str, numbers))}) AS array<int>)) AS id")


def _read(spark: SparkSession, publisher: Publisher, urn: str = URN, **options: object) -> DataFrame:
    return read_dataset(spark, urn, job="shop", database=publisher.engine, **options)  # type: ignore[arg-type]  # options of several types in one dict


def _ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


@pytest.mark.core
def test_only_finished_sequences_that_are_not_retired_are_read(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(_numbers(spark, 1, 2), URN, partition="2013-01-01")
    publisher.publish(_numbers(spark, 3), URN, partition="2013-02-01")
    publisher.publish(_numbers(spark, 4), URN, partition="2013-02-01", replaces=True)
    publisher.publish(_numbers(spark, 5), URN, partition="2013-03-01")
    publisher.publish(_numbers(spark, 6), URN, partition="2013-03-01", seal=False)
    publisher.publish(_numbers(spark, 7), URN, partition="2013-04-01", finish=False)
    stray = publisher.files(URN)[0]
    stray.with_name("stray.parquet").write_bytes(stray.read_bytes())
    assert _ids(_read(spark, publisher)) == [1, 2, 4, 5]
    assert _ids(_read(spark, publisher, partitions=["2013-02-01", "2013-03-01"])) == [4, 5]
    nothing = _read(spark, publisher, partitions=["2013-04-01"])
    assert nothing.collect() == []
    assert nothing.schema.simpleString() == "struct<id:int>"


@pytest.mark.parametrize(
    "urns", [["a/b", "a b", "a.b", "a%2Fb"], ["A", "a"], ["ü%20", "ü ", "..", "x" * 400], ["k=v", "*?[a]{b}\\"]]
)
@pytest.mark.usefixtures("way")
def test_hostile_names_stay_apart(spark: SparkSession, publisher: Publisher, urns: list[str]) -> None:
    for number, urn in enumerate(urns):
        frame = spark.sql(f"SELECT {number} AS id, 'x y/%=' AS region")
        publisher.publish(frame, urn, partition="p=1/ü ~", writer=WriterSpec(partition_by=("region",)))
    for number, urn in enumerate(urns):
        assert [tuple(row) for row in _read(spark, publisher, urn).collect()] == [(number, "x y/%=")]


@pytest.mark.usefixtures("way")
def test_values_of_directories_come_back_with_their_types(spark: SparkSession, publisher: Publisher) -> None:
    at = dt.datetime(2013, 10, 27, 2, 30, 0, 5)  # noqa: DTZ001  a wall clock's
    rows = [
        (1, "01", dt.date(2013, 1, 1), 7, Decimal("1.50"), True, at, at),
        (2, "1e3", dt.date(9999, 12, 31), -7, Decimal("0.00"), False, at, at),
        (3, "2013-01-01", None, None, None, None, None, None),
        (4, None, dt.date(2013, 1, 1), 0, Decimal("2.00"), True, at, at),
        (5, "a}b {*?[c]} ü:#'\"\\^%25 ", dt.date(2013, 1, 1), 0, Decimal("2.00"), True, at, at),
        (6, "null", dt.date(2013, 1, 1), 0, Decimal("2.00"), True, at, at),
    ]
    schema = (
        "id INT, code STRING, day DATE, n BIGINT, price DECIMAL(9,2), flag BOOLEAN, at TIMESTAMP, wall TIMESTAMP_NTZ"
    )
    frame = spark.createDataFrame(rows, schema)
    columns = ("code", "day", "n", "price", "flag", "at", "wall")
    publisher.publish(frame, URN, partition="2013-01-01", writer=WriterSpec(partition_by=columns))
    read = _read(spark, publisher)
    assert read.schema.simpleString() == frame.schema.simpleString()
    assert Counter(map(tuple, read.collect())) == Counter(map(tuple, frame.collect()))
    assert [row.id for row in read.where("code = '01'").collect()] == [1]


@pytest.mark.usefixtures("way")
def test_directories_by_time_are_in_utc_and_null_has_its_own(spark: SparkSession, publisher: Publisher) -> None:
    frame = spark.sql("SELECT 1 AS id, TIMESTAMP '2013-01-01 23:30:00+00:00' AS at UNION ALL SELECT 2, NULL")
    writer = WriterSpec(time_column="at", time_pattern="yyyy-MM-dd/HH", time_name="hour")
    publisher.publish(frame, URN, writer=writer)
    assert {row.id: row.hour for row in _read(spark, publisher).collect()} == {1: "2013-01-01/23", 2: None}
    names = {file.parents[1].name for file in publisher.files(URN)}
    assert names == {"hour=2013-01-01%2F23", "hour=__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "is an empty text"),
        ("__HIVE_DEFAULT_PARTITION__", "is the text '__HIVE_DEFAULT_PARTITION__'"),
        ("x._COPYING_", "readers skip such a directory"),
        ("a\0b", "has a NUL character"),
        ("x" * 249, "is too long"),
        ("é" * 125, "is too long"),
        ("=" * 83, "is too long"),
    ],
)
def test_a_text_that_can_not_become_a_directory_is_refused_by_name(
    spark: SparkSession, publisher: Publisher, value: str, said: str
) -> None:
    frame = spark.createDataFrame([(1, value), (2, "x")], "id INT, region STRING")
    with pytest.raises(RetryableError) as raised:
        publisher.publish(frame, URN, writer=WriterSpec(partition_by=("region",)))
    explained = explain_partition_failure(raised.value, dataset=URN)
    assert explained is not None
    assert f"'region' {said}" in str(explained) or said in str(explained)


def test_the_longest_texts_become_directories(spark: SparkSession, publisher: Publisher) -> None:
    values = ["x" * 248, "é" * 124, "=" * 82 + "xx", "😀" * 62, ".", "..", " ", "_x", "._COPYING_x"]
    frame = spark.createDataFrame(list(enumerate(values)), "id INT, region STRING")
    publisher.publish(frame, URN, writer=WriterSpec(partition_by=("region",)))
    assert [row.region for row in _read(spark, publisher).orderBy("id").collect()] == values


@pytest.mark.parametrize(
    ("writer", "said"),
    [
        ({"partition_by": ["nope"]}, "no column 'nope'"),
        ({"partition_by": ["id", "at", "tags", "price"]}, "array<string> column 'tags' can't become a directory"),
        ({"partition_by": ["price"]}, "double column 'price'"),
        ({"time_column": "id", "time_pattern": "yyyy"}, "expected a date or a time in 'id'"),
        ({"time_column": "at", "time_pattern": "yyyy", "time_name": "ID"}, "there is a column 'ID' already"),
    ],
)
def test_columns_that_can_not_become_directories_are_refused(
    spark: SparkSession, writer: dict[str, object], said: str
) -> None:
    frame = spark.createDataFrame([], "id INT, at TIMESTAMP, tags ARRAY<STRING>, price DOUBLE")
    with pytest.raises(RejectedError, match="dataset 'd'") as refused:
        add_output_partitions(frame, WriterSpec.model_validate(writer), dataset="d", now=dt.datetime.now(dt.UTC))
    assert said in str(refused.value)
    with pytest.raises(RejectedError, match="all of its columns"):
        add_output_partitions(
            frame.select("id"), WriterSpec(partition_by=("id",)), dataset="d", now=dt.datetime.now(dt.UTC)
        )


@pytest.mark.usefixtures("way")
def test_directories_may_change_between_publications(spark: SparkSession, publisher: Publisher) -> None:
    frame = spark.sql("SELECT * FROM VALUES (1, '01', 5), (2, NULL, 6) AS t(id, code, n)")
    for number, columns in enumerate([(), ("code",), ("n",), ("code", "n")]):
        publisher.publish(frame, URN, partition=f"p{number % 2}", writer=WriterSpec(partition_by=columns))
    read = _read(spark, publisher)
    assert read.columns == ["id", "code", "n"]
    assert Counter(map(tuple, read.collect())) == Counter({(1, "01", 5): 4, (2, None, 6): 4})


def test_columns_added_later_are_null_in_older_files_and_dropped_ones_in_newer(
    spark: SparkSession, publisher: Publisher
) -> None:
    publisher.publish(spark.sql("SELECT 1 AS id, 'x' AS gone, named_struct('a', 1) AS s"), URN, partition="1")
    publisher.publish(
        spark.sql("SELECT named_struct('b', 'n', 'a', 2) AS s, 2 AS ID, array(named_struct('k', 1)) AS new"), URN
    )
    read = _read(spark, publisher)
    assert read.schema.simpleString() == "struct<s:struct<b:string,a:int>,ID:int,new:array<struct<k:int>>,gone:string>"
    rows = {row.ID: row for row in read.collect()}
    assert (tuple(rows[1].s), rows[1].new, rows[1].gone) == ((None, 1), None, "x")
    assert (tuple(rows[2].s), rows[2].new[0].k, rows[2].gone) == (("n", 2), 1, None)
    assert _read(spark, publisher, partitions=["1"]).schema == read.schema


@pytest.mark.core
def test_rows_set_aside_are_published_with_the_rest_and_read_by_role(spark: SparkSession, publisher: Publisher) -> None:
    policy = RowPolicySpec(name="positive", check="id > 0", on_failure="err_file")
    publisher.publish(_numbers(spark, 1, 2), URN, policies=(policy,))
    empty = _read(spark, publisher, role=Role.QUARANTINE)
    assert empty.schema.simpleString() == "struct<id:int,failed_policies:array<string>>"
    assert empty.collect() == []
    publisher.publish(_numbers(spark, 3, -4), URN, policies=(policy,))
    assert _read(spark, publisher).columns == ["id"]
    assert _ids(_read(spark, publisher)) == [1, 2, 3]
    (aside,) = _read(spark, publisher, role=Role.QUARANTINE).collect()
    assert (aside.id, aside.failed_policies) == (-4, ["positive"])
    both = read_published(
        spark,
        DatasetUrn(URN),
        job=JobName("shop"),
        published=PostgresPublishedFiles(publisher.engine),
        partition="",
    )
    assert both is not None
    assert both.columns == ["id"]
    assert _ids(both) == [-4, 1, 2, 3]


def test_what_a_plain_reader_of_the_directory_finds(spark: SparkSession, publisher: Publisher) -> None:
    """As docs/ARCHITECTURE.md describes it."""
    fs, _root = open_file_system(str(publisher.root))
    directories = {urn: fs.to_uri(path_of(str(publisher.root), publisher.job, DatasetUrn(urn))) for urn in (URN, "by")}
    publisher.publish(_numbers(spark, 1, 2), URN)
    doubled = _numbers(spark, 1, 2).selectExpr("id", "id * 2 AS twice")
    publisher.publish(doubled, "by", writer=WriterSpec(partition_by=("twice",)))
    with pytest.raises(AnalysisException) as refused:
        spark.read.parquet(directories[URN])
    assert refused.value.getCondition() == "UNABLE_TO_INFER_SCHEMA"

    nested = spark.read.option("recursiveFileLookup", "true")
    assert _ids(nested.parquet(directories[URN])) == [1, 2]
    publisher.publish(_numbers(spark, 3), URN, finish=False)
    assert _ids(nested.parquet(directories[URN])) == [1, 2], "staging is hidden"
    assert _ids(_read(spark, publisher)) == [1, 2]
    assert sorted(spark.read.parquet(directories["by"]).collect()) == [(1, 2), (2, 4)]
    assert nested.parquet(directories["by"]).columns == ["id"], "without the values of its directories"


def test_a_plain_reader_sees_retired_files_as_well(spark: SparkSession, publisher: Publisher) -> None:
    fs, _root = open_file_system(str(publisher.root))
    directory = fs.to_uri(path_of(str(publisher.root), publisher.job, DatasetUrn(URN)))
    publisher.publish(_numbers(spark, 1, 2), URN)
    publisher.publish(_numbers(spark, 3), URN, replaces=True)
    assert _ids(spark.read.option("recursiveFileLookup", "true").parquet(directory)) == [1, 2, 3]
    assert _ids(_read(spark, publisher)) == [3]


def test_a_dataset_without_files_keeps_its_last_schema(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(_numbers(spark, 1), URN)
    publisher.publish(_numbers(spark), URN, replaces=True)
    assert _read(spark, publisher).schema.simpleString() == "struct<id:int>"
    assert _read(spark, publisher).collect() == []


def test_what_is_not_known_is_refused_with_what_is(spark: SparkSession, publisher: Publisher) -> None:
    with pytest.raises(RejectedError, match="No run of job 'shop'"):
        _read(spark, publisher)
    publisher.publish(_numbers(spark), URN)
    with pytest.raises(RejectedError, match=r"Did you mean 'public\.orders'"):
        _read(spark, publisher, "public.order")
    with pytest.raises(RejectedError, match="has published no data files yet"):
        _read(spark, publisher)
    publisher.publish(_numbers(spark, 1), URN)
    with pytest.raises(RejectedError, match="has published no dead_letter files yet"):
        _read(spark, publisher, role=Role.DEAD_LETTER)


@pytest.mark.core
def test_a_missing_file_is_a_corruption_that_names_it(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(_numbers(spark, 1), URN)
    (file,) = publisher.files(URN)
    file.unlink()
    with pytest.raises(CorruptionError, match="a published file is missing") as found:
        _read(spark, publisher).collect()
    assert file.name in str(found.value)


@pytest.mark.parametrize("change", [lambda content: content[:-9], lambda content: content + b"x"])
def test_a_file_of_another_length_is_a_corruption_that_names_it(
    spark: SparkSession, publisher: Publisher, change: Callable[[bytes], bytes]
) -> None:
    publisher.publish(_numbers(spark, 1), URN)
    (file,) = publisher.files(URN)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(CorruptionError, match="a published file is damaged") as found:
        _read(spark, publisher)
    assert file.name in str(found.value)
    assert "gobblin-assets verify" in str(found.value)


@pytest.mark.core
def test_a_segment_that_was_altered_is_a_corruption(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(_numbers(spark, 1), URN)
    with publisher.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.segment SET payload = payload || '\\x00'::bytea"))
    with pytest.raises(CorruptionError, match="digest"):
        _read(spark, publisher)


def test_more_files_than_one_query_can_hold_are_refused(
    spark: SparkSession, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher.publish(_numbers(spark, 1).coalesce(1), URN, partition="a")
    publisher.publish(_numbers(spark, 2).coalesce(1), URN, partition="b")
    monkeypatch.setattr(dataset_reader, "FILES_MAX", 1)
    with pytest.raises(RejectedError, match="2 files; one query takes at most 1"):
        _read(spark, publisher)
    assert _ids(_read(spark, publisher, partitions=["b"])) == [2]
