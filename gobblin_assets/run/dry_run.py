"""A dry run: the WorkUnits that a run would read now, planned and packed by the same code, without leases or writes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import DatasetId, DatasetState, LaneId
from gobblin_assets.model.urn import DatasetUrn, JobName, parse_job_name
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.work_unit import WorkUnit
from gobblin_assets.run.job_kind import JobKind, LoadIntervals, PlannedChange, PlanRequest, Session, UnitPlan
from gobblin_assets.run.job_rules import SplitRules
from gobblin_assets.run.packing import pack_run
from gobblin_assets.run.progress import StepProgress
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.run.slices import label_of
from gobblin_assets.state.datasets import DatasetStore

# Stands for a dataset that no run has registered yet; nothing is stored under it.
_UNREGISTERED = DatasetId(LaneId(0))


@dataclass(frozen=True, slots=True)
class PlannedUnit:
    """A WorkUnit; ``multi_work_unit`` None: it is empty, and no task reads it."""

    key: str
    number: int
    interval: Interval | None
    reread_from: Watermark | None
    estimated_row_count: int | None
    multi_work_unit: int | None


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """One dataset partition. ``error`` says why it can't be planned.

    ``reader``, ``changes`` and ``degraded`` are as in ``UnitPlan``; ``notes`` begin with what is ``degraded``.
    """

    urn: DatasetUrn
    partition: str | None
    mode: Mode
    reader: str = ""
    units: tuple[PlannedUnit, ...] = ()
    notes: tuple[str, ...] = ()
    error: str | None = None
    changes: tuple[PlannedChange, ...] = ()
    degraded: tuple[str, ...] = ()


def plan_dry(
    request: RunRequest,
    datasets: DatasetStore,
    kind: JobKind,
    clock: Clock,
    say: Callable[[str], None],
) -> list[PlannedSlice]:
    """Plan each selected partition. A partition that is refused has its error; the others are planned."""
    job = parse_job_name(request.job.job)
    known = datasets.load(job, sorted(request.selection))
    wanted = [
        PlanRequest(
            urn,
            partition,
            known.get(urn) or _new_state(job, urn),
            mode=request.mode,
            by_hand=request.by_hand,
            restart=request.restart,
            load_intervals=_look_up(datasets, known.get(urn)),
            confirm_deletes=request.confirm_deletes,
            only_moves=request.only_moves,
        )
        for urn in sorted(request.selection)
        for partition in request.selection[urn]
    ]
    progress = StepProgress(clock, say, "partitions planned", len(wanted))
    planned: list[tuple[PlannedSlice, tuple[WorkUnit, ...]]] = []
    splits: dict[DatasetUrn, SplitRules] = {}
    capacities: dict[DatasetUrn, tuple[int, ...]] = {}
    with kind.open(say, wanted) as session:
        for each in wanted:
            outcome = _plan_one(session, each, say)
            # Nobody will read: what reads, judges and learns would be most of what is kept.
            if isinstance(outcome, UnitPlan):
                planned.append((_describe(outcome), outcome.work_units))
                splits[each.urn], capacities[each.urn] = outcome.split, outcome.task_capacities
            else:
                planned.append((PlannedSlice(each.urn, each.partition.key, request.mode, error=str(outcome)), ()))
            progress.add()
    units = [unit for _slice, found in planned for unit in found if not unit.is_empty]
    numbers = {
        unit.id: multi.number for multi in pack_run(request.job, units, splits, capacities) for unit in multi.work_units
    }
    return [
        replace(each, units=tuple(_describe_unit(unit, numbers.get(unit.id)) for unit in found)) if found else each
        for each, found in planned
    ]


def _look_up(datasets: DatasetStore, state: DatasetState | None) -> LoadIntervals:
    return (lambda _partition: {}) if state is None else partial(datasets.load_intervals, state.dataset_id)


def _plan_one(session: Session, request: PlanRequest, say: Callable[[str], None]) -> UnitPlan | GobblinError:
    try:
        return session.plan(request)
    except Exception as error:  # noqa: BLE001  explained as the failure of this partition
        return explain_exception(label_of(request.urn, request.partition), error, say)


def _new_state(job: JobName, urn: DatasetUrn) -> DatasetState:
    return DatasetState(_UNREGISTERED, job, urn, 0)


def _describe(plan: UnitPlan) -> PlannedSlice:
    """Without its WorkUnits, whose tasks are not known yet."""
    notes = (*plan.degraded, *plan.notes)
    key, changes, degraded = plan.partition.key, plan.changes, tuple(plan.degraded)
    return PlannedSlice(plan.urn, key, plan.mode, plan.reader, notes=notes, changes=changes, degraded=degraded)


def _describe_unit(unit: WorkUnit, multi_work_unit: int | None) -> PlannedUnit:
    return PlannedUnit(
        unit.key, unit.number, unit.interval, unit.reread_from, unit.estimated_row_count, multi_work_unit
    )
