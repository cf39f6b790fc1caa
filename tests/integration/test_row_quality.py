"""Row policies on a real Spark session: one write, every row in exactly one role."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.jobs.ingest.quality import check_rows
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.columns import find_raised
from gobblin_assets.rows.hidden_columns import parse_role_path
from gobblin_assets.rows.optional_failures import count_in_files, list_optional
from gobblin_assets.rows.parquet_writer import collect_output, write_parquet
from gobblin_assets.rows.row_quality import explain_row_failure, split_rows
from gobblin_assets.run.job_kind import Output
from gobblin_assets.spec.job_spec import RowPolicySpec

pytestmark = pytest.mark.turns(of=4)


def _policy(name: str, check: str, on_failure: str = "fail") -> RowPolicySpec:
    return RowPolicySpec.model_validate({"name": name, "check": check, "on_failure": on_failure})


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    values = [(1, 10, "eu"), (2, -1, "eu"), (3, None, "us"), (4, -5, None), (5, 7, "us")]
    return spark.createDataFrame(values, "id INT, amount INT, region STRING")


def _failed(frame: DataFrame) -> dict[int, list[str]]:
    return {row.id: sorted(row.failed_policies) for row in frame.collect()}


def test_without_policies_nothing_changes(rows: DataFrame) -> None:
    split = split_rows(rows, [], dataset="d")
    assert split.frame.columns == ["id", "amount", "region"]
    assert split.partition_columns == ()
    assert dict(split.schemas) == {Role.DATA: rows.schema}
    assert split.frame.count() == 5


def test_null_is_a_failure_and_every_row_has_exactly_one_role(rows: DataFrame) -> None:
    policies = [
        _policy("positive", "amount > 0", "err_file"),
        _policy("has_region", "region is not null", "err_file"),
        _policy("small", "amount < 9", "optional"),
    ]
    split = split_rows(rows, policies, dataset="d")
    assert split.partition_columns == ("gobblin_role",)
    roles = Counter(row.gobblin_role for row in split.frame.collect())
    assert roles == {"data": 2, "quarantine": 3}
    assert _failed(split.frame.where("gobblin_role = 'quarantine'")) == {
        2: ["positive"],
        3: ["positive", "small"],
        4: ["has_region", "positive"],
    }
    assert _failed(split.frame.where("gobblin_role = 'data'")) == {1: ["small"], 5: []}
    assert split.schemas[Role.DATA].names == ["id", "amount", "region", "failed_policies"]
    assert split.schemas[Role.QUARANTINE].names == ["id", "amount", "region", "failed_policies"]


def test_an_optional_policy_never_drops_a_row(rows: DataFrame) -> None:
    split = split_rows(rows, [_policy("never", "false", "optional")], dataset="d")
    assert split.partition_columns == ()
    assert set(split.schemas) == {Role.DATA}
    assert _failed(split.frame) == {number: ["never"] for number in range(1, 6)}


def test_data_has_no_column_of_policies_where_none_is_optional(rows: DataFrame) -> None:
    split = split_rows(rows, [_policy("positive", "amount > 0", "err_file")], dataset="d")
    assert split.schemas[Role.DATA].names == ["id", "amount", "region"]
    assert split.schemas[Role.QUARANTINE].names == ["id", "amount", "region", "failed_policies"]


def test_one_write_gives_both_roles_their_directories_and_counts(
    rows: DataFrame, spark: SparkSession, tmp_path: Path
) -> None:
    # The source may be read only once: a second read finds the counter used up.
    reads = spark.sparkContext.accumulator(0)
    counted = spark.createDataFrame(rows.rdd.map(lambda row: (reads.add(1), row)[1]), rows.schema)
    split = split_rows(counted, [_policy("positive", "amount > 0", "err_file")], dataset="d")
    directory = str(tmp_path / "attempt")
    write_parquet(split.frame, f"file://{directory}", partition_columns=(*split.partition_columns, "region"))
    assert reads.value == 5
    counts: Counter[tuple[Role, str]] = Counter()
    for written in collect_output(PosixFileSystem(), directory):
        counts[parse_role_path(written.partition_path)] += written.row_count
    assert counts == {
        (Role.DATA, "region=eu"): 1,
        (Role.DATA, "region=us"): 1,
        (Role.QUARANTINE, "region=eu"): 1,
        (Role.QUARANTINE, "region=us"): 1,
        (Role.QUARANTINE, "region=__HIVE_DEFAULT_PARTITION__"): 1,
    }


def test_a_failing_row_fails_the_task_and_names_the_policy_but_no_value(rows: DataFrame, tmp_path: Path) -> None:
    policies = [_policy("any", "true"), _policy("positive", "amount > 0"), _policy("x", "id > 0", "err_file")]
    split = split_rows(rows, policies, dataset="public.orders")
    with pytest.raises(PySparkException) as raised:
        split.frame.write.parquet(str(tmp_path / "attempt"))
    explained = explain_row_failure(raised.value, dataset="public.orders")
    assert explained is not None
    # The error is the task's alone: other tasks of the dataset may well be published.
    assert explained.hint.startswith("Nothing that its task read was published.")
    assert explained.fields["policy"] == "positive"
    assert "'positive'" in str(explained)
    assert "-1" not in str(explained)
    assert not list((tmp_path / "attempt").glob("*.parquet"))
    assert explain_row_failure(ValueError("other"), dataset="d") is None
    assert find_raised(raised.value) == ("row_policy", "positive")


def test_the_failure_is_found_through_the_writers_error(rows: DataFrame, tmp_path: Path) -> None:
    split = split_rows(rows, [_policy("positive", "amount > 0")], dataset="d")
    with pytest.raises(Exception, match="gobblin:row_policy:positive") as raised:
        write_parquet(split.frame, f"file://{tmp_path}/attempt")
    assert explain_row_failure(raised.value, dataset="d") is not None


def test_rows_that_are_left_out_anyway_do_not_fail_the_task(spark: SparkSession, rows: DataFrame) -> None:
    policies = [_policy("positive", "amount > 0")]
    published = spark.createDataFrame([(2,), (4,)], "seen INT")
    kept = rows.where("amount is not null").join(published, f.col("id") == f.col("seen"), "left_anti")
    split = split_rows(kept, policies, dataset="d")
    assert sorted(row.id for row in split.frame.collect()) == [1, 5]


def test_good_rows_pass_a_fail_policy_unchanged(rows: DataFrame) -> None:
    split = split_rows(rows, [_policy("known", "id between 1 and 5")], dataset="d")
    assert split.frame.collect() == rows.collect()
    assert dict(split.schemas) == {Role.DATA: rows.schema}


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("nope > 1", "nope"),
        ("amount >", "PARSE_SYNTAX_ERROR"),
        ("amount", "found an expression of type int"),
        ("count(*) > 0", "Available columns: id, amount, region"),
        ("explode(array(true))", "row policy 'p'"),
    ],
)
def test_a_check_that_is_no_condition_is_refused(rows: DataFrame, check: str, said: str) -> None:
    with pytest.raises(RejectedError) as refused:
        split_rows(rows, [_policy("p", check)], dataset="public.orders")
    assert refused.value.field == "quality.rows[0].check"
    assert said in str(refused.value)


def test_a_column_of_the_name_that_policies_need_is_refused(rows: DataFrame) -> None:
    for name in ("gobblin_role", "FAILED_POLICIES"):
        with pytest.raises(RejectedError, match="the data has it"):
            split_rows(rows.withColumnRenamed("region", name), [_policy("p", "true", "err_file")], dataset="d")
        assert (
            split_rows(rows.withColumnRenamed("region", name), [_policy("p", "true")], dataset="d").frame.count() == 5
        )


def test_rows_that_optional_policies_let_pass_are_counted_in_what_was_written(rows: DataFrame, tmp_path: Path) -> None:
    policies = [
        _policy("positive", "amount > 0", "err_file"),
        _policy("small", "amount < 9", "optional"),
        _policy("known", "id > 0", "optional"),
    ]
    split = split_rows(rows, policies, dataset="d")
    directory, fs = str(tmp_path / "attempt"), PosixFileSystem()
    write_parquet(split.frame, f"file://{directory}", partition_columns=split.partition_columns)
    written = collect_output(fs, directory)
    outputs = [Output(parse_role_path(each.partition_path)[0], each.path, "", each.files) for each in written]
    # The row without an amount failed "small" as well, and was set aside.
    found = count_in_files(fs, outputs, list_optional(policies))
    assert found == {"small": 1, "known": 0}

    small, known = check_rows(policies[1:], broken=None, rows_set_aside=0, rows_written=2, optional_failures=found)
    assert (small.passed, small.blocking, small.figures) == (False, False, {"rows_failed": 1, "rows": 2})
    assert small.description == "1 of 2 published rows did not pass: amount < 9"
    assert known.passed
