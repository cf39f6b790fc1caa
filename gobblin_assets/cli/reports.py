"""A run's report, as a table of its datasets or as JSON."""

from typing import Final

import click

from gobblin_assets.cli.output import EXIT_FAILED, EXIT_SKIPPED, print_json, print_table
from gobblin_assets.model.state import DatasetOutcome
from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import OPTIONAL_ROWS, CheckResult
from gobblin_assets.run.quality_checks import SAMPLES
from gobblin_assets.run.run_values import DatasetReport, RunReport

_COLUMNS: Final = ("dataset", "partition", "mode", "outcome", "rows", "files", "watermark before", "after", "note")
_OF_ROWS: Final = frozenset({"rows", "watermark before", "after"})


def print_report(report: RunReport, *, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    lines = [_line(each, "recovered") for each in report.recovered]
    lines += [_line(each, each.outcome.value) for each in sorted(report.datasets, key=_place)]
    columns: tuple[str, ...] = _COLUMNS
    published = [each for each in (*report.recovered, *report.datasets) if each.publication is not None]
    if published and not any(each.has_rows for each in published):
        kept = [number for number, name in enumerate(_COLUMNS) if name not in _OF_ROWS]
        columns = tuple(_COLUMNS[number] for number in kept)
        lines = [tuple(line[number] for number in kept) for line in lines]
    print_table(f"run {report.run_id}: {_name_state(report)}", columns, lines)
    samples = [line for each in (*report.recovered, *report.datasets) for line in _sample_lines(each)]
    if samples:
        print_table("rows that failed a policy", ("dataset", "partition", "check", "row"), samples)


def exit_as_reported(report: RunReport) -> None:
    """End the command by the code of what was not published; return if all was."""
    if report.failed:
        is_left_out = all(each.is_busy for each in report.failed)
        click.get_current_context().exit(EXIT_SKIPPED if is_left_out else EXIT_FAILED)


def _name_state(report: RunReport) -> str:
    """A run that others kept from all of its datasets has done nothing, and has not failed."""
    is_left_out = [each.is_busy for each in report.datasets]
    return DatasetOutcome.SKIPPED.value if is_left_out and all(is_left_out) else report.state.value


def _sample_lines(report: DatasetReport) -> list[tuple[object, ...]]:
    """Lines of samples, each once: the check of the quarantined share has the same rows as that of its only policy."""
    found = ((check.name, check.figures.get(SAMPLES)) for check in report.checks)
    shown = {tuple(map(str, samples)): name for name, samples in found if isinstance(samples, list | tuple)}
    return [(report.urn, report.partition.key, name, row) for rows, name in shown.items() for row in rows]


def _is_warning(check: CheckResult) -> bool:
    return not check.passed and not check.blocking and check.figures.keys() >= OPTIONAL_ROWS


def _place(report: DatasetReport) -> tuple[str, str]:
    return report.urn, report.partition.key or ""


def _line(report: DatasetReport, outcome: str) -> tuple[object, ...]:
    publication = report.publication
    note = report.error or "; ".join(report.notes)
    if publication is None:
        return report.urn, report.partition.key, None, outcome, None, None, None, None, note
    aside = {role: count for role, count in publication.rows_by_role.items() if role != Role.DATA and count}
    lines = [f"{count:,} rows are {role}" for role, count in aside.items()]
    # Checks that are kept with a publication and failed have let it pass, so that nothing else says it.
    lines += [f"{each.name}: {each.description}" for each in report.checks if _is_warning(each)]
    note = "; ".join([*lines, *([note] if note else [])])
    if not report.has_rows:
        return (
            report.urn,
            report.partition.key,
            publication.mode,
            outcome,
            None,
            publication.file_count,
            None,
            None,
            note,
        )
    moves = list(publication.watermarks.values())
    before, after = moves[0] if len(moves) == 1 else (None, f"{len(moves)} keys moved" if moves else None)
    return (
        *(report.urn, report.partition.key, publication.mode, outcome),
        *(publication.rows_by_role.get(Role.DATA, 0), publication.file_count),
        *(before, after, note),
    )
