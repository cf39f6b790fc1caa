"""An error that nobody expected, in the worker of one file set: it fails alone, and shows where it came from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.jobs.copy.kind import CopyKind
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.run.job_kind import Staged, UnitPlan, Worker, WorkOrder
from gobblin_assets.run.run_values import RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from tests.support.copy_lake import CopyLake, CopyWorld, files_of, look_at


@dataclass(frozen=True)
class BreakingWorker:
    """A worker with a defect at one dataset."""

    worker: Worker
    error: Exception

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:
        return self.worker.describe_interruption(tag, plans)

    def do(self, order: WorkOrder) -> Staged:
        if order.plan.urn == "albums":
            raise self.error
        return self.worker.do(order)

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        return [self.do(order) for order in orders]

    def cancel(self, tag: str) -> None:
        self.worker.cancel(tag)


def run_broken(world: CopyWorld, error: Exception) -> RunReport:
    job = world.lake.copy_job()
    with open_copy_run(job, world.stores, world.lines.append, lambda _report: None) as opened:
        kind = opened.kind
        assert isinstance(kind, CopyKind)
        broken = replace(kind, make_worker=lambda: BreakingWorker(kind.make_worker(), error))
        selection = dict.fromkeys(list_copy_datasets(job), (WHOLE,))
        return run_request(RunRequest(job, selection, Mode.APPEND, by_hand=True), replace(opened, kind=broken))


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> CopyWorld:
    lake = CopyLake(database_url, str(tmp_path))
    lake.make_source()
    return lake.open_world()


def test_a_defect_fails_its_file_set_alone_and_shows_its_traceback(world: CopyWorld) -> None:
    report = run_broken(world, OverflowError("int too big to convert"))

    (failed,) = report.failed
    assert (failed.urn, failed.error_family) == ("albums", ErrorFamily.CORRUPTION)
    assert "an unexpected OverflowError: int too big to convert" in str(failed.error)
    assert set(files_of(world.lake.tree)) == {"logs/app/today.log"}
    assert [line for line in world.lines if "in do\n    raise self.error" in line]
    recorded = str(world.scalar("SELECT error FROM gobblin.attempt WHERE state = 'FAILED'"))
    assert recorded.startswith("CorruptionError: albums: an unexpected OverflowError")
    assert "Traceback (most recent call last)" in recorded

    assert not world.run().failed
    assert look_at(world.lake.tree) == look_at(world.lake.source)
    world.close()


def test_a_contradiction_of_the_program_ends_the_run(world: CopyWorld) -> None:
    with pytest.raises(AssertionError):
        run_broken(world, AssertionError("impossible"))
    world.close()
