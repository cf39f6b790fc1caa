"""Quality results of a dataset partition before its seal, as pure decisions over counted figures.

Rows written and set aside are counted in the files' footers, rows read are counted during the read. Before,
``run.task.require_whole`` compared both for each attempt; this module compares them for whole dataset partitions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, assert_never

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.source_declarations import (
    SourceComments,
    SourceConstraints,
    comments_to_json,
    constraints_to_json,
)
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.carried_facts import carry_comments, carry_constraints
from gobblin_assets.rows.row_samples import SAMPLES_MAX, RowFailures
from gobblin_assets.run.job_kind import CheckResult, Staged
from gobblin_assets.run.quality_checks import check_dead_letters, check_quarantine, show_samples
from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec, TaskPolicySpec

COLUMNS_SHOWN_MAX: Final = 10
_NO_FAILURES: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class QualityJudge:
    """``Judge`` of a dataset of rows. ``comments`` and ``constraints`` are the source's, by its names of columns."""

    spec: DatasetSpec
    comments: SourceComments
    constraints: SourceConstraints
    may_fail_rows: bool = False

    def gate(self, staged: Sequence[Staged], state: DatasetState) -> tuple[CheckResult, ...]:
        quality = self.spec.quality
        written = _rows(staged, Role.DATA)
        quarantined, letters = _rows(staged, Role.QUARANTINE), _rows(staged, Role.DEAD_LETTER)
        checks = check_tasks(
            quality.tasks,
            rows_read=sum(each.rows_read for each in staged),
            rows_written=written,
            rows_set_aside=quarantined + letters,
            columns=_columns(staged),
            previous_columns=state.published_columns,
        )
        if any(policy.on_failure == "err_file" for policy in quality.rows):
            limit = quality.quarantine_fraction_max
            checks += (
                check_quarantine(
                    rows_written=written,
                    rows_set_aside=quarantined,
                    fraction_max=limit,
                    samples=_samples(staged),
                ),
            )
        if may_have_dead_letters(self.spec, may_fail_rows=self.may_fail_rows):
            checks += (
                check_dead_letters(
                    rows=written + quarantined,
                    dead_letters=letters,
                    fraction_max=quality.dead_letter_fraction_max,
                    count_max=quality.dead_letter_count_max,
                ),
            )
        return checks

    def report(self, staged: Sequence[Staged] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:
        """The results of row policies. A broken policy fails its task; other tasks may still be published."""
        aside = None if staged is None else _rows(staged, Role.QUARANTINE)
        return check_rows(
            self.spec.quality.rows,
            broken=_find_broken(error),
            rows_set_aside=aside,
            failures=_find_failures(error),
            samples=_samples(staged or ()),
            rows_written=0 if staged is None else _rows(staged, Role.DATA),
            optional_failures=_sum_failures(staged or ()),
        )

    def describe(self, staged: Sequence[Staged]) -> Mapping[str, object]:
        columns = _columns(staged)
        carried = carry_comments(self.comments, self.spec.converters, columns)
        constraints = carry_constraints(self.constraints, self.spec.converters, columns)
        # Pairs, because a jsonb object forgets the order of its keys.
        return {
            "columns": list(columns.items()),
            **comments_to_json(carried),
            **constraints_to_json(constraints),
        }


def check_tasks(
    policies: Sequence[TaskPolicySpec],
    *,
    rows_read: int,
    rows_written: int,
    rows_set_aside: int,
    columns: Mapping[str, str],
    previous_columns: Mapping[str, str] | None,
) -> tuple[CheckResult, ...]:
    """One result for each policy, in order. ``columns`` maps names to Spark types.

    ``previous_columns`` None: nothing was published before. ``rows_read`` counts the rows that should be written:
    those that the source gave, less those that the late window and converters removed. Zero rows read and written pass
    every check that compares the two.
    """
    results = []
    for policy in policies:
        match policy.kind:
            case "row_count":
                result = _check_row_count(policy, rows_read, rows_written, rows_set_aside)
            case "row_count_range":
                result = _check_range(policy, rows_read, rows_written, rows_set_aside)
            case "schema_compatible":
                result = _check_schema(policy, columns, previous_columns)
            case _:
                assert_never(policy.kind)
        results.append(result)
    return tuple(results)


def check_rows(
    policies: Sequence[RowPolicySpec],
    *,
    broken: str | None,
    rows_set_aside: int | None,
    failures: RowFailures | None = None,
    samples: Sequence[str] = (),
    rows_written: int = 0,
    optional_failures: Mapping[str, int] = _NO_FAILURES,
) -> tuple[CheckResult, ...]:
    """The results of the row policies, in order.

    ``broken`` names the ``fail`` policy that ended a task, if one did. ``rows_set_aside`` None: nothing was published,
    and the other policies have no result. ``failures``: the rows that broke the policy, if they were counted.
    ``samples``: some of the rows that were set aside. Rows that several ``err_file`` policies set aside are not counted
    for each, so these policies then have no result; such rows name their policy. ``optional_failures``: of
    ``rows_written``, the rows that did not pass an optional policy, by policy. Its result only warns.
    """
    fail = [policy for policy in policies if policy.on_failure == "fail"]
    aside = [policy for policy in policies if policy.on_failure == "err_file"]
    results = [
        _judge_broken(policy, failures)
        if policy.name == broken
        else CheckResult(policy.name, True, True, "Every row that was published passed.")
        for policy in fail
        if policy.name == broken or rows_set_aside is not None
    ]
    if rows_set_aside == 0 or (rows_set_aside is not None and len(aside) == 1):
        figures = {"rows_set_aside": rows_set_aside, **show_samples(samples)}
        text = f"Rows that were set aside: {rows_set_aside}"
        results += [CheckResult(policy.name, rows_set_aside == 0, False, text, figures) for policy in aside]
    if rows_set_aside is not None:
        results += [
            _judge_optional(policy, optional_failures, rows_written)
            for policy in policies
            if policy.name in optional_failures
        ]
    order = [policy.name for policy in policies]
    return tuple(sorted(results, key=lambda result: order.index(result.name)))


def _judge_optional(policy: RowPolicySpec, failures: Mapping[str, int], rows: int) -> CheckResult:
    failed = failures[policy.name]
    said = f"{failed:,} of {rows:,} published rows did not pass: {policy.check}"
    return CheckResult(policy.name, not failed, False, said, {"rows_failed": failed, "rows": rows})


def _judge_broken(policy: RowPolicySpec, failures: RowFailures | None) -> CheckResult:
    if failures is None or failures.count < 1:
        return CheckResult(policy.name, False, True, f"At least one row did not pass: {policy.check}")
    figures = {"rows_failed": failures.count, **show_samples(failures.samples)}
    return CheckResult(policy.name, False, True, f"{failures.count} rows did not pass: {policy.check}", figures)


def may_have_dead_letters(spec: DatasetSpec, *, may_fail_rows: bool) -> bool:
    """Whether records may become dead letters: while they are read (``may_fail_rows``), or by their event time."""
    rules = spec.writer.event_time
    return may_fail_rows or (rules is not None and "dead_letter" in (rules.on_missing, rules.on_future))


def _check_row_count(policy: TaskPolicySpec, read: int, written: int, aside: int) -> CheckResult:
    """With bounds, the rows written must lie within; without bounds, every row read must be written or set aside."""
    low, high = policy.min_row_count, policy.max_row_count
    figures = {"rows_read": read, "rows_written": written, "rows_set_aside": aside}
    if low is None and high is None:
        passed = written + aside == read
        description = f"{written} rows written and {aside} set aside of {read} read"
    else:
        passed = (low is None or written >= low) and (high is None or written <= high)
        bounds = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
        description = f"{written} rows written; expected {' and '.join(bounds)}"
    return CheckResult(policy.name, passed, policy.blocking, description, figures)


def _check_range(policy: TaskPolicySpec, read: int, written: int, aside: int) -> CheckResult:
    allowed = policy.range_fraction or 0.0
    difference = abs(written + aside - read)
    fraction = difference / read if read else float(bool(difference))
    return CheckResult(
        policy.name,
        fraction <= allowed,
        policy.blocking,
        f"{written} rows written and {aside} set aside of {read} read: off by {fraction:.4g}; allowed: {allowed:.4g}",
        {"rows_read": read, "rows_written": written, "rows_set_aside": aside, "fraction": fraction},
    )


def _check_schema(
    policy: TaskPolicySpec, columns: Mapping[str, str], previous: Mapping[str, str] | None
) -> CheckResult:
    """Columns may be added. A published column must stay, with its type. No columns at all: nothing was read."""
    if not columns:
        figures: dict[str, object] = {"dropped": 0, "retyped": 0, "added": 0}
        return CheckResult(policy.name, True, policy.blocking, "nothing was read; the columns stay", figures)
    before = previous or {}
    dropped = [name for name in before if name not in columns]
    retyped = [f"{n} ({before[n]} → {columns[n]})" for n in before if n in columns and columns[n] != before[n]]
    added = [name for name in columns if name not in before] if previous is not None else []
    said = [
        f"{verb}: {_list(names)}"
        for verb, names in (("gone", dropped), ("retyped", retyped), ("added", added))
        if names
    ]
    return CheckResult(
        policy.name,
        not dropped and not retyped,
        policy.blocking,
        "; ".join(said) or ("no schema was published before" if previous is None else "the schema is unchanged"),
        {"dropped": len(dropped), "retyped": len(retyped), "added": len(added)},
    )


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:COLUMNS_SHOWN_MAX])
    return shown if len(names) <= COLUMNS_SHOWN_MAX else f"{shown} and {len(names) - COLUMNS_SHOWN_MAX} more"


def _find_broken(error: GobblinError | None) -> str | None:
    """The row policy that ended a task, as ``rows.row_quality.explain_row_failure`` names it."""
    return None if error is None else str(error.fields.get("policy", "")) or None


def _find_failures(error: GobblinError | None) -> RowFailures | None:
    found = None if error is None else error.fields.get("failures")
    return found if isinstance(found, RowFailures) else None


def _samples(staged: Sequence[Staged]) -> list[str]:
    return [sample for each in staged for sample in each.samples][:SAMPLES_MAX]


def _sum_failures(staged: Sequence[Staged]) -> Mapping[str, int]:
    """Of a policy that no attempt counted there is nothing."""
    found: Counter[str] = Counter()
    for each in staged:
        found.update(each.optional_failures)
    return found


def _rows(staged: Sequence[Staged], role: Role) -> int:
    return sum(each.row_count(role) for each in staged)


def _columns(staged: Sequence[Staged]) -> Mapping[str, str]:
    return next((each.columns for each in staged), {})
