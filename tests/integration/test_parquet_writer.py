from pathlib import Path

import pytest
from pyarrow import parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.commit.published.verification import find_damage
from gobblin_assets.errors import ConflictError, RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.rows.new_files import plan_file_rows_max
from gobblin_assets.rows.parquet_writer import collect_output, write_parquet

FS = PosixFileSystem()


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_a_write_leaves_exactly_the_counted_data_files(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "attempt %2F ü"
    write_parquet(spark.range(0, 1000, 1, 3), FS.to_uri(str(target)))
    assert not [name for name in names(target) if name.endswith(".crc")]
    [written] = collect_output(FS, str(target))
    assert (written.path, written.partition_path, written.row_count) == (str(target), "", 1000)
    assert names(target) == [file.name for file in written.files]
    for file in written.files:
        path = target / file.name
        assert file.identity == FS.find_identity(str(path))
        assert pq.read_metadata(path).num_rows == file.row_count
        assert pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
    assert written.size_bytes == sum((target / file.name).stat().st_size for file in written.files)
    assert spark.read.parquet(FS.to_uri(str(target))).count() == 1000


def test_partition_columns_become_directories_that_spark_reads_back(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(
        [(1, "a/b", None), (2, "a b", "x"), (3, "", "x"), (4, "é=ü", "x")], "id long, _place string, kind string"
    )
    write_parquet(frame, FS.to_uri(str(tmp_path / "out")), partition_columns=("_place", "kind"))
    written = collect_output(FS, str(tmp_path / "out"))
    assert sum(directory.row_count for directory in written) == 4
    assert [directory.path for directory in written] == sorted(directory.path for directory in written)
    assert all(directory.partition_path.startswith("_place=") for directory in written)
    assert all((tmp_path / "out" / directory.partition_path).is_dir() for directory in written)
    back = spark.read.option("basePath", str(tmp_path / "out")).parquet(*[directory.path for directory in written])
    found = {(row.id, row._place, row.kind) for row in back.collect()}
    assert found == {(1, "a/b", None), (2, "a b", "x"), (3, None, "x"), (4, "é=ü", "x")}


@pytest.mark.parametrize("name", [".day", "../x"])
def test_rows_below_a_hidden_name_are_refused_and_stay_where_they_are(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    frame = spark.range(23).withColumn(name, f.lit("2024"))
    write_parquet(frame, FS.to_uri(str(tmp_path / "out")), partition_columns=(name,))
    for _time in range(2):
        with pytest.raises(RejectedError, match="which readers skip"):
            collect_output(FS, str(tmp_path / "out"))
    assert [entry for entry in names(tmp_path / "out") if entry.endswith(".parquet")]


def test_files_have_no_more_rows_than_asked(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.range(0, 250, 1, 1), FS.to_uri(str(tmp_path / "out")), file_rows_max=100)
    [written] = collect_output(FS, str(tmp_path / "out"))
    assert sorted(file.row_count for file in written.files) == [50, 100, 100]


def test_a_write_without_rows_leaves_no_file_and_no_directory(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.range(10).where("id > 100"), FS.to_uri(str(tmp_path / "out")))
    assert any(name.endswith(".parquet") for name in names(tmp_path / "out"))
    assert collect_output(FS, str(tmp_path / "out")) == []
    assert names(tmp_path / "out") == []


def test_everything_that_is_no_data_is_removed_from_the_attempt(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_parquet(spark.range(4).withColumn("p", f.col("id") % 2), FS.to_uri(str(target)), partition_columns=("p",))
    for junk in ("_temporary/0/task/part-0.parquet", "_committed_1", ".part-0.parquet.crc", "p=0/.hidden/x", "p=1/_x"):
        (target / junk).parent.mkdir(parents=True, exist_ok=True)
        (target / junk).write_text("junk")
    (target / "_temporary" / "1").mkdir()
    written = collect_output(FS, str(target))
    assert sum(directory.row_count for directory in written) == 4
    kept = {f"{directory.partition_path}/{file.name}" for directory in written for file in directory.files}
    assert set(names(target)) == kept | {"p=0", "p=1"}


def test_an_incomplete_write_is_not_collected_and_keeps_its_files(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.range(10), FS.to_uri(str(tmp_path / "out")))
    (tmp_path / "out" / "_SUCCESS").unlink()
    before = names(tmp_path / "out")
    with pytest.raises(RetryableError, match="_SUCCESS"):
        collect_output(FS, str(tmp_path / "out"))
    assert names(tmp_path / "out") == before


def test_a_torn_file_stops_the_collection_which_can_be_repeated(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.range(10), FS.to_uri(str(tmp_path / "out")))
    torn = tmp_path / "out" / "part-99999.parquet"
    torn.write_bytes(b"PAR1torn")
    with pytest.raises(RetryableError, match="part-99999"):
        collect_output(FS, str(tmp_path / "out"))
    torn.unlink()
    assert [directory.row_count for directory in collect_output(FS, str(tmp_path / "out"))] == [10]


def test_a_directory_that_exists_is_never_written_to(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.range(10), FS.to_uri(str(tmp_path / "out")))
    before = names(tmp_path / "out")
    with pytest.raises(ConflictError, match="exists"):
        write_parquet(spark.range(5), FS.to_uri(str(tmp_path / "out")))
    assert names(tmp_path / "out") == before


def test_a_task_that_fails_is_no_complete_write(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 100, 1, 4).withColumn("x", f.expr("IF(id = 99, raise_error('row 99'), id)"))
    with pytest.raises(RetryableError, match="row 99") as failed:
        write_parquet(frame, FS.to_uri(str(tmp_path / "out")))
    assert len(str(failed.value)) < 700
    with pytest.raises(RetryableError, match="_SUCCESS"):
        collect_output(FS, str(tmp_path / "out"))


def test_a_type_that_parquet_cannot_hold_is_rejected_by_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="gap"):
        write_parquet(spark.sql("SELECT make_interval(1) AS gap"), FS.to_uri(str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_times_are_written_with_statistics_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    write_parquet(spark.sql("SELECT timestamp'2024-03-31 02:30:00' AS at"), FS.to_uri(str(tmp_path / "out")))
    [written] = collect_output(FS, str(tmp_path / "out"))
    column = pq.read_metadata(Path(written.path) / written.files[0].name).row_group(0).column(0)
    assert column.statistics.max.isoformat() == "2024-03-31T02:30:00+00:00"


def test_the_bound_on_rows_follows_the_schema() -> None:
    schema = t.StructType().add("id", t.LongType()).add("name", t.StringType()).add("ok", t.BooleanType())
    assert plan_file_rows_max(schema.jsonValue(), file_bytes_max=28_125) == 1000
    assert plan_file_rows_max(schema.jsonValue(), file_bytes_max=1) == 1
    assert plan_file_rows_max(t.StructType().jsonValue(), file_bytes_max=100) == 100
    nested = t.StructType().add("tags", t.ArrayType(schema)).add("by", t.MapType(t.StringType(), t.DecimalType(10)))
    assert plan_file_rows_max(nested.jsonValue(), file_bytes_max=10**6) == int(10**6 / (4 * 28.125 + 4 * 36))


def test_pages_bear_checksums_whatever_the_site_has_set(spark: SparkSession, tmp_path: Path) -> None:
    """Without compression a damaged byte still decodes: only the checksum shows the damage."""
    name = "parquet.page.write-checksum.enabled"
    spark.conf.set(name, "false")
    try:
        write_parquet(spark.range(0, 5000, 1, 1), FS.to_uri(str(tmp_path / "out")), compression="uncompressed")
    finally:
        spark.conf.unset(name)
    [written] = collect_output(FS, str(tmp_path / "out"))
    path = Path(written.path, written.files[0].name)
    assert find_damage(FS, str(path), row_count=5000) is None
    column = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 0x10
    path.write_bytes(content)

    assert pq.read_table(path).num_rows == 5000
    assert "CRC" in (find_damage(FS, str(path), row_count=5000) or "")
