"""Copies by a Spark job give what copies by this machine give: classic, in several processes, and on Connect."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.jobs.copy.transfer import choice
from gobblin_assets.jobs.copy.transfer.choice import ChosenTransfer
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer, plan_work
from gobblin_assets.jobs.copy.transfer.spark_transfer import SparkTransfer, plan_for_slots
from gobblin_assets.jobs.copy.transfer.transfer_port import (
    Executors,
    FileResult,
    Rate,
    TransferOrder,
    TransferProgress,
    TransferWay,
)
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.spark.connect_server import ConnectServer
from tests.support.copy_lake import look_at
from tests.support.copying import TAG, directory_item, divide, file_items, fill, identity_of, order_of, staged
from tests.support.forked_commands import Commands
from tests.support.shares import rotating
from tests.support.spark import in_child, wait_until

pytestmark = pytest.mark.turns(of=4)

BINS = 3

_JOB = """
job: mirror
kind: distcp
source: ./in
destination: ./out
transfer: spark
verify: reread
datasets:
  - urn: docs
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fill_tree(tmp_path / "source")


def fill_tree(root: Path) -> Path:
    for number in range(20):
        fill(root / f"f{number:02d}", os.urandom(number * 100_000))
    fill(root / "trip/sea/one", b"one").chmod(0o640)
    fill(root / "trip/two", b"two")
    (root / "trip/sea").chmod(0o700)
    return root


def plan(root: Path, attempt: Path, progress: list[TransferProgress] | None = None) -> TransferOrder:
    files = [item for item in file_items(root) if not item.path.startswith("trip")]
    items = [*files, directory_item(100, root, "trip")]
    hear = [].append if progress is None else progress.append
    return replace(order_of(root, attempt, divide(items, BINS), on_progress=hear), split_bytes=10_000)


def results_of(found: Iterator[tuple[FileResult, ...]]) -> dict[str, FileResult]:
    results = [result for batch in found for result in batch]
    assert len({result.path for result in results}) == len(results)
    return {result.path: result for result in results}


def check_copied(order: TransferOrder, root: Path, results: dict[str, FileResult], lost: str) -> None:
    """All but ``lost`` was copied; nothing lies beside the writers' directories."""
    assert {path for path, each in results.items() if each.failure is not None} == {lost}
    for path, each in results.items():
        copied = staged(order, each)
        if each.is_directory or path == lost:
            continue
        assert copied.read_bytes() == (root / path).read_bytes()
        assert each.identity == identity_of(copied)
        assert each.checksum is not None
        assert copied.stat().st_mtime_ns == (root / path).stat().st_mtime_ns
    assert {path.name.rstrip("0123456789") for path in Path(order.attempt).iterdir()} == {"splits", "w"}
    assert len(list(Path(order.attempt, "splits").iterdir())) == 9


def test_a_spark_job_copies_what_this_machine_copies(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    heard: list[TransferProgress] = []
    order = plan(root, tmp_path / "attempt", heard)
    (root / "f07").unlink()
    transfer = SparkTransfer(spark)
    with pytest.raises(RejectedError, match="does not see") as blind:
        list(transfer.copy_with(order, Executors(1, 2, ("a host does not see it",))))
    assert blind.value.field == "transfer"
    results = results_of(transfer.copy(order))
    check_copied(order, root, results, "f07")
    with LocalTransfer() as local:
        here = results_of(local.copy(plan_again(order, tmp_path / "local")))
    assert {path: each.checksum for path, each in results.items()} == {p: each.checksum for p, each in here.items()}
    tree = {name: entry[:2] for name, entry in look_at(staged(order, results["trip"])).items()}
    assert tree == {name: entry[:2] for name, entry in look_at(root / "trip").items()}
    assert heard[-1] == TransferProgress(
        21, 1, sum((root / p).stat().st_size for p in here if p not in {"f07", "trip"})
    )


@pytest.mark.parametrize("slots", [1, 3, 40])
def test_bins_that_may_all_run_at_once_keep_the_rate_together(root: Path, tmp_path: Path, slots: int) -> None:
    """Executors may come while the job runs, and give it more slots than it found."""
    order = replace(plan(root, tmp_path / "attempt"), rate=Rate(bytes_per_s=1_000, files_per_s=10))
    planned = plan_for_slots(order, slots, order.split_bytes)
    rates = [plan_work(planned, found).rate for found in planned.bins]
    assert sum(each or 0 for each, _files in rates) <= 1_000.001
    assert sum(each or 0 for _bytes, each in rates) <= 10.001
    assert len(plan_for_slots(replace(order, rate=Rate()), slots, None).bins) > min(slots, 3)


def test_parts_for_several_machines_share_no_page(root: Path, tmp_path: Path) -> None:
    fill(root / "large", b"").touch()
    os.truncate(root / "large", 3 << 30)
    planned = plan_for_slots(plan(root, tmp_path / "attempt"), 8, 10**9)
    parts = [part for found in planned.bins for part in found.parts]
    assert len(parts) == 4
    assert {part.offset % (1 << 20) for part in parts} == {0}


def test_a_probe_that_sees_no_source_or_attempt_itself_says_so(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """So that ``auto`` copies on this machine."""
    transfer, order = SparkTransfer(spark), plan(root, tmp_path / "attempt")
    with pytest.raises(RetryableError, match="gone since it was planned"):
        transfer.probe(replace(order, source_root=str(tmp_path / "gone")))
    with pytest.raises(RetryableError, match="the writer's directory is gone"):
        transfer.probe(replace(order, attempt=str(tmp_path / "gone")))


def test_a_spark_job_is_ended_in_the_middle_of_its_files(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    """At this rate it would take an hour."""
    transfer = SparkTransfer(spark)
    enders: list[threading.Thread] = []

    def end(progress: TransferProgress) -> None:
        if progress.moved_bytes and not enders:
            enders.append(threading.Thread(target=transfer.cancel, args=(TAG,)))
            enders[0].start()

    order = replace(plan(root, tmp_path / "attempt"), on_progress=end, rate=Rate(bytes_per_s=50, files_per_s=1))
    with pytest.raises(RetryableError, match="cancelled"):
        list(transfer.copy(order))
    enders[0].join()
    assert not list(tmp_path.glob("attempt/orders*"))
    with pytest.raises(RetryableError, match="cancelled"):
        list(transfer.copy(order))


def plan_again(order: TransferOrder, attempt: Path) -> TransferOrder:
    for found in order.bins:
        (attempt / found.writer).mkdir(parents=True)
    return TransferOrder(order.source_root, str(attempt), order.bins, 2, TAG, True, order.preserve)


@pytest.mark.parametrize("command", [rotating("run")])
def test_a_job_that_asks_for_spark_is_copied_on_a_connect_server(
    command: str, connect: ConnectServer, commands: Commands, tmp_path: Path, database_url: str
) -> None:
    fill_tree(tmp_path / "in/docs")
    (tmp_path / "mirror.yaml").write_text(_JOB)
    environment = {**os.environ, "GOBBLIN_DATABASE_URL": database_url, "GOBBLIN_HOME": str(tmp_path / "home")}
    done = commands.run(
        *(command, "mirror.yaml", "--no-dagster", "--remote", connect.url), environment=environment, folder=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert look_at(tmp_path / "out/docs") == look_at(tmp_path / "in/docs")
    assert "transfer: Spark, as the job says (1 executors, 2 tasks at once)" in done.stdout + done.stderr
    assert connect.url not in done.stdout + done.stderr


@pytest.mark.thorough
def test_what_a_killed_driver_left_on_a_connect_server_is_ended_by_the_next(
    connect: ConnectServer, commands: Commands, tmp_path: Path, database_url: str
) -> None:
    fill_tree(tmp_path / "in/docs")
    job = tmp_path / "mirror.yaml"
    job.write_text(f"{_JOB}lease: {{ttl_s: 3, wait_s: 60}}\nrate: {{name: slow, bytes_per_s: 1000}}\n")
    environment = {**os.environ, "GOBBLIN_DATABASE_URL": database_url, "GOBBLIN_HOME": str(tmp_path / "home")}
    arguments = ("run", str(job), "--no-dagster", "--remote", connect.url)
    killed = subprocess.Popen([sys.executable, "-m", "gobblin_assets.cli", *arguments], env=environment, cwd=tmp_path)
    wait_until(lambda: any(tmp_path.glob("out/.gobblin/**/orders/*.count")), "its tasks copy")
    killed.kill()
    killed.wait()
    job.write_text(f"{_JOB}lease: {{ttl_s: 3, wait_s: 60}}\n")

    done = commands.run(*arguments, environment=environment, folder=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert look_at(tmp_path / "out/docs") == look_at(tmp_path / "in/docs")
    wait_until(lambda: not any(tmp_path.glob("out/.gobblin/**/orders*")), "nothing of the killed driver is left")


def copy_in_cluster(folder: Path) -> tuple[list[str], list[str]]:
    """What ``auto`` says of an order with executors of their own, and what is staged."""
    said: list[str] = []
    root = fill_tree(folder / "source")
    order = plan(root, folder / "attempt")
    (root / "f07").unlink()
    choice.SPARK_WEIGHT_MIN = 1  # type: ignore[misc]  # an order of a gigabyte would only take longer
    engine = SparkEngine(master="local-cluster[2,1,1024]", work_folder=str(folder / "work"))
    transfer = ChosenTransfer(TransferWay.AUTO, LocalTransfer(), engine, said.append)
    check_copied(order, root, results_of(transfer.copy(order)), "f07")
    (folder / "other").mkdir()
    blind = SparkTransfer(engine.get_session()).probe(plan_again(order, folder / "other"))
    assert blind == Executors(2, 2)
    engine.get_session().stop()
    return said, sorted(path.name for path in Path(order.attempt).iterdir())


@pytest.mark.thorough
def test_auto_takes_executors_of_their_own_that_see_both_sides(tmp_path: Path) -> None:
    said, names = in_child(copy_in_cluster, tmp_path)
    assert said == ["transfer: Spark, since every executor sees both sides (2 executors, 2 tasks at once)"]
    assert names
