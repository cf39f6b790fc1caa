"""Faults of the machines that run executors, in the words of Spark, as refusals that say what to do there."""

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.rows.new_files import NewFile
from gobblin_assets.rows.task_writer import TaskFiles, TaskWrite, write_rows
from gobblin_assets.spark.errors import family_of_spark

TRACE = "An error occurred while calling o292.parquet.\n: org.apache.spark.SparkException: Job aborted\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ModuleNotFoundError: No module named 'gobblin_assets'", "no package gobblin_assets"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.10", "another minor version"),
        ('java.io.IOException: Cannot run program "python3": error=2, No such file', "no python3"),
    ],
)
def test_executors_whose_python_can_t_run_tasks_are_refused_with_the_variable_that_names_another(
    text: str, why: str
) -> None:
    found = family_of_spark(Py4JError(TRACE + text), action="write rows")
    assert isinstance(found, RejectedError)
    assert why in found.message
    assert "PYSPARK_PYTHON" in found.hint


def test_modules_of_the_user_s_own_say_nothing_of_the_executors() -> None:
    found = family_of_spark(Py4JError(TRACE + "No module named 'theirs'"), action="write rows")
    assert isinstance(found, RetryableError)


class WithoutKeys:
    """A store whose keys are looked for at the first request, as the chain of AWS does."""

    def create(self, partition_path: str, name: str) -> NewFile:
        raise RejectedError(f"no keys for {partition_path}/{name}", field="GOBBLIN_S3_ACCESS_KEY_ID", hint="Give them.")

    def sample(self, partition_path: str, first: pa.RecordBatch) -> Sequence[str]:
        raise NotImplementedError


def refuse_to_open() -> TaskFiles:
    raise RejectedError("no secret key", field="GOBBLIN_S3_SECRET_ACCESS_KEY", hint="Give it.")


@pytest.mark.parametrize("open_files", [WithoutKeys, refuse_to_open])
def test_a_task_without_keys_says_that_it_is_its_own_environment(open_files: type[WithoutKeys]) -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 2]})
    (answer,) = write_rows(TaskWrite(open_files, (), 10, "zstd"), [rows])
    error = pickle.loads(answer.column(0)[0].as_py())
    assert isinstance(error, RejectedError)
    assert error.message.startswith("in a process of Spark's executors: GOBBLIN_S3_")
    assert "environment of each machine's executors counts" in str(error)
