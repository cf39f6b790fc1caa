"""The audit of a copied dataset: both sides are compared by the job's own rule, and nothing is written."""

from typing import Final

from gobblin_assets.jobs.asset_view import DeclaredCheck
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.run.dry_run import PlannedSlice
from gobblin_assets.run.job_kind import CheckResult, PlannedChange

SIDES_AGREE: Final = DeclaredCheck(
    "sides_agree",
    "No path differs between source and destination, by the rule of the job. Evaluated when somebody asks.",
    is_audit=True,
)

PATHS_SHOWN_MAX: Final = 100
_NAMED_MAX: Final = 5
_WITHOUT_LIMITS: Final = {"files_per_run_max": None, "bytes_per_run_max": None}
_EVERYWHERE: Final = {**_WITHOUT_LIMITS, "skip_unchanged_directories": False}


def plan_audit(job: CopySpec) -> CopySpec:
    """The job without what bounds one run, and without what lets a run look at less than both sides."""
    return job.model_copy(
        update={
            **_WITHOUT_LIMITS,
            "defaults": job.defaults.model_copy(update=_EVERYWHERE),
            "datasets": tuple(each.model_copy(update=_EVERYWHERE) for each in job.datasets),
            "overrides": tuple(each.model_copy(update=_EVERYWHERE) for each in job.overrides),
        }
    )


def judge_sides(name: str, planned: PlannedSlice) -> CheckResult:
    """Passed if a run would change nothing. What the job's options leave at the destination does not count."""
    if planned.error is not None:
        said = f"The sides can't be compared: {planned.error}"
        return CheckResult(name, passed=False, blocking=False, description=said)
    changes = planned.changes
    figures: dict[str, object] = {"differing_paths": len(changes)}
    if not changes and planned.degraded:
        said = f"The sides can't be compared as a whole: {'; '.join(planned.degraded)}"
        return CheckResult(name, passed=False, blocking=False, description=said)
    if not changes:
        return CheckResult(name, passed=True, blocking=False, description=" ".join(planned.notes), figures=figures)
    figures["paths"] = [f"{each.action} {_name(each)}: {each.why}" for each in changes[:PATHS_SHOWN_MAX]]
    shown = ", ".join(map(_name, changes[:_NAMED_MAX]))
    more = f" and {len(changes) - _NAMED_MAX:,} more" if len(changes) > _NAMED_MAX else ""
    said = f"paths differ ({len(changes):,}): {shown}{more}"
    return CheckResult(name, passed=False, blocking=False, description=said, figures=figures)


def _name(change: PlannedChange) -> str:
    """The dataset's own directory has no name below itself."""
    return change.path or "."
