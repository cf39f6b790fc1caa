"""An error that nobody expected, in the plan or the worker of one file set: it fails alone, and shows its origin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.jobs.copy.copy_kind import CopyKind, SharedPlanning
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.run.dry_run import plan_dry
from gobblin_assets.run.job_kind import PlanRequest, Staged, UnitPlan, Worker, WorkOrder
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


def break_plan(patch: pytest.MonkeyPatch, error: Exception) -> None:
    plan = CopyKind.plan

    def plan_or_break(kind: CopyKind, request: PlanRequest, shared: SharedPlanning) -> UnitPlan:
        if request.urn == "albums":
            raise error
        return plan(kind, request, shared)

    patch.setattr(CopyKind, "plan", plan_or_break)


@pytest.mark.parametrize("options", [{}, {"files_per_run_max": 1000}], ids=["unbounded", "planned by priority"])
@pytest.mark.parametrize(
    ("error", "family", "text"),
    [
        (ValueError("year 0 is out of range"), ErrorFamily.CORRUPTION, "albums: an unexpected ValueError: year 0"),
        (OSError(5, "Input/output error"), ErrorFamily.RETRYABLE, "albums: [Errno 5] Input/output error"),
    ],
    ids=["a defect", "a disk"],
)
def test_an_error_of_a_plan_fails_its_file_set_alone(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, int],
    error: Exception,
    family: ErrorFamily,
    text: str,
) -> None:
    lake = CopyLake(database_url, str(tmp_path), options=options)
    lake.make_source()
    world = lake.open_world()
    with monkeypatch.context() as patch:
        break_plan(patch, error)
        report = world.run()

        (failed,) = report.failed
        assert (failed.urn, failed.error_family) == ("albums", family)
        assert str(failed.error).startswith(text)
        assert set(files_of(lake.tree)) == {"logs/app/today.log"}
        is_shown = any("Traceback" in line and "in plan_or_break" in line for line in world.lines)
        assert is_shown is (family is ErrorFamily.CORRUPTION)

        job = lake.copy_job()
        request = RunRequest(job, dict.fromkeys(list_copy_datasets(job), (WHOLE,)), Mode.APPEND, by_hand=True)
        with open_copy_run(job, world.stores, world.lines.append, lambda _report: None) as ports:
            albums, logs = plan_dry(request, world.stores.datasets, ports.kind, ports.clock, ports.say)
        assert str(albums.error).startswith(text)
        assert logs.error is None

    assert not world.run().failed
    assert look_at(lake.tree) == look_at(lake.source)
    world.close()
