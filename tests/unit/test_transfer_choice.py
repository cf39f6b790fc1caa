"""Which way an order is copied, before anything of Spark is imported or started."""

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import EntryKind, TreeEntry
from gobblin_assets.jobs.copy.copyable import CopyItem, PlannedFile
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.copy.transfer.choice import SPARK_WEIGHT_MIN, ChosenTransfer
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferOrder, TransferWay
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.model.files import FileIdentity

REMOTE = "sc://localhost:1"
LARGE = CopyItem(1, "f", (PlannedFile.of("f", TreeEntry("f", EntryKind.FILE, FileIdentity(SPARK_WEIGHT_MIN, 1, 1))),))
NOTHING = TransferOrder("/source", "/attempt", (), 1, "a tag")


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (None, "no Spark was asked for"),
        (SparkEngine(), "no Spark was asked for"),
        (SparkEngine(master="local"), "local has one executor"),
        (SparkEngine(master="local[8]"), "local[8] has one executor"),
        (SparkEngine(master="spark://cluster:7077"), "would take longer to begin"),
        (SparkEngine(master="local-cluster[2,1,1024]"), "would take longer to begin"),
        (SparkEngine(remote=REMOTE), "would take longer to begin"),
    ],
)
def test_a_small_copy_is_made_by_this_machine_and_says_why(engine: SparkEngine | None, reason: str) -> None:
    said: list[str] = []
    transfer = ChosenTransfer(TransferWay.AUTO, LocalTransfer(), engine, said.append)
    assert list(transfer.copy(NOTHING)) == []
    assert list(transfer.copy(NOTHING)) == []
    (line,) = said
    assert line.startswith("transfer: this machine, since ")
    assert reason in line
    assert transfer.describe_interruption("a tag", []) is None
    assert engine is None or not engine.has_session


def test_where_spark_does_not_answer_a_large_copy_is_made_by_this_machine() -> None:
    engine = SparkEngine(remote=REMOTE)
    transfer = ChosenTransfer(TransferWay.AUTO, LocalTransfer(), engine, print)
    assert transfer.describe_interruption("a tag", [LARGE]) is None


def test_this_machine_is_taken_without_a_word_where_the_job_says_so() -> None:
    said: list[str] = []
    transfer = ChosenTransfer(TransferWay.LOCAL, LocalTransfer(), SparkEngine(remote=REMOTE), said.append)
    assert list(transfer.copy(NOTHING)) == []
    assert said == []


def test_a_job_that_insists_on_spark_is_refused_where_a_run_has_none() -> None:
    with pytest.raises(RejectedError, match="no Spark") as error:
        ChosenTransfer(TransferWay.SPARK, LocalTransfer(), None, print)
    assert error.value.field == "transfer"


def test_executors_do_not_read_object_stores() -> None:
    job = {"job": "m", "kind": "distcp", "source": "s3://bucket/in", "destination": "/b", "transfer": "spark"}
    with pytest.raises(RejectedError, match="file systems that its executors mount") as error:
        read_copy(job)
    assert error.value.field == "transfer"
    assert read_copy({**job, "transfer": "auto"}).transfer is TransferWay.AUTO
