"""Commands that look at the log: status, watermark, ledger, history."""

import difflib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import click

from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.commit.published.current import list_kept_versions, sort_current
from gobblin_assets.commit.published.published_port import PublishedSegment
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.state.overview import DatasetLine, GapLine, LedgerLine, RunLine, list_gaps
from gobblin_assets.state.reports import describe_backlog, is_late

job_option = click.option("--job", help="Only this job's.")
dataset_option = click.option("--dataset", "urn", metavar="URN", help="Only this dataset's.")
sequence_argument = click.argument("sequence_id", type=click.UUID)


@click.command(epilog=example("status --job shop"))
@job_option
@json_option
def status(job: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show all datasets: what is published, what is open, who works on them."""
    with open_log(say) as log:
        lines = [_with_files(log, each) for each in log.overview.list_datasets(find_job(job))]
        require_known_job(log, job, lines)
        backlogs = log.stores.reports.list_backlogs(find_job(job))
    for each in backlogs:
        if is_late(each):
            say(describe_backlog(each))
    if as_json:
        print_json(lines)
        return
    columns = ("job", "dataset", "version", "partitions", "rows", "files", "MiB", "open", "held by", "last run", "at")
    rows = [
        (
            *(each.job, each.urn, each.version, each.partitions, each.rows, each.files),
            None if each.file_bytes is None else each.file_bytes / (1 << 20),
            *(each.open_state, each.held_by, each.last_outcome, each.last_ended_at),
        )
        for each in lines
    ]
    print_table("datasets", columns, rows)


def _with_files(log: Log, line: DatasetLine) -> DatasetLine:
    """The line; of a copy, with the files that its names hold now."""
    if line.files is not None:
        return line
    found = log.stores.published.scan(line.job, line.urn, role=Role.DATA, read=_count_current)
    files, file_bytes = found or (0, 0)
    return replace(line, files=files, file_bytes=file_bytes)


def _count_current(_version: int, segments: Iterator[PublishedSegment]) -> tuple[int, int]:
    return sort_current(segments).total()


@click.group()
def watermark() -> None:
    """The positions up to which datasets are published."""


@watermark.command("show", epilog=example("watermark show --job shop"))
@job_option
@dataset_option
@json_option
def show_watermarks(job: str | None, urn: str | None, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show how far each watermark key is published. A snapshot has a generation and no position."""
    with open_log(say) as log:
        lines = log.overview.list_watermarks(find_job(job), find_urn(urn))
        require_known_job(log, job, lines)
    if as_json:
        print_json(lines)
        return
    columns = ("job", "dataset", "partition", "key", "watermark", "moved at")
    rows = [
        (each.job, each.urn, each.partition, each.key, each.watermark or "(snapshot)", each.moved_at) for each in lines
    ]
    print_table("watermarks", columns, rows)


@click.command(epilog=example("ledger --job shop --dataset public.orders --files"))
@job_option
@dataset_option
@click.option("--all", "with_retired", is_flag=True, help="Also show what later publications replaced or removed.")
@click.option("--files", "with_files", is_flag=True, help="Also show the published files, one by one.")
@json_option
def ledger(job: str | None, urn: str | None, with_retired: bool, with_files: bool, as_json: bool) -> None:  # noqa: FBT001  options that click passes by name
    """Show the intervals of each key that each sequence published, the gaps between them, and the files."""
    with open_log(say) as log:
        lines = log.overview.list_ledger(find_job(job), find_urn(urn), with_retired=with_retired)
        require_known_job(log, job, lines)
        files = _list_files(log, lines, with_earlier=with_retired) if with_files else []
    gaps = list_gaps(lines)
    if as_json:
        print_json({"intervals": lines, "gaps": gaps, **({"files": files} if with_files else {})})
        return
    columns = ("job", "dataset", "partition", "key", "interval", "rows", "files", "sequence", "done at", "")
    rows = [
        (
            *(each.job, each.urn, each.partition, each.key, each.interval or "(snapshot)", each.rows, each.files),
            *(each.sequence_id, each.done_at, None if each.active else "retired"),
        )
        for each in lines
    ]
    print_table("ledger", columns, rows)
    _print_gaps(gaps)
    if with_files:
        names = ("dataset", "partition", "role", "path", "rows", "bytes", "became")
        shown = names if with_retired else names[:-1]
        print_table("files", shown, [tuple(each[name] for name in shown) for each in files])


def _print_gaps(gaps: Sequence[GapLine]) -> None:
    columns = ("job", "dataset", "partition", "key", "after", "before")
    print_table("gaps", columns, [(g.job, g.urn, g.partition, g.key, g.gap.after, g.gap.before) for g in gaps])


def _list_files(log: Log, lines: Sequence[LedgerLine], *, with_earlier: bool) -> list[dict[str, object]]:
    """``with_earlier``: also versions at given names that later publications replaced or removed."""
    files: list[dict[str, object]] = []
    for job, urn in dict.fromkeys((line.job, line.urn) for line in lines):
        for role in Role:
            found = log.stores.published.find(job, urn, role=role)
            files += [
                {
                    "job": job,
                    "dataset": urn,
                    "partition": segment.partition,
                    "role": role.value,
                    "path": file.path,
                    "rows": file.row_count,
                    "bytes": file.identity.size_bytes,
                    "sequence": file.publisher or segment.sequence_id,
                    "became": became,
                }
                for segment, file, became in list_kept_versions(() if found is None else found.segments)
                if with_earlier or became is None
            ]
    return files


@click.command(epilog=example("history --job shop --limit 5"))
@click.argument("run_id", required=False, type=click.UUID)
@job_option
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000))
@json_option
def history(run_id: uuid.UUID | None, job: str | None, limit: int, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show the last runs, or one run with its datasets and tasks."""
    with open_log(say) as log:
        if run_id is not None:
            _show_run(log, run_id, as_json=as_json)
            return
        lines = log.overview.list_runs(find_job(job), limit=limit)
        require_known_job(log, job, lines)
    if as_json:
        print_json(lines)
        return
    _print_runs(lines)


def _print_runs(lines: Sequence[RunLine]) -> None:
    columns = ("run", "job", "state", "started at", "ended at", "rows", "files", "owner", "error")
    rows = [
        (
            *(each.run_id, each.job, each.state, each.started_at, each.ended_at),
            *(each.figures.get("rows"), each.figures.get("files"), each.owner, each.error),
        )
        for each in lines
    ]
    print_table("runs", columns, rows)


def _show_run(log: Log, run_id: uuid.UUID, *, as_json: bool) -> None:
    line = log.overview.get_run(run_id)
    datasets, attempts = log.overview.list_run_datasets(run_id), log.overview.list_run_attempts(run_id)
    if as_json:
        print_json({"run": line, "datasets": datasets, "tasks": attempts})
        return
    _print_runs([line])
    columns = ("dataset", "partition", "outcome", "sequence", "error")
    print_table("datasets", columns, [(d.urn, d.partition, d.outcome, d.sequence_id, d.error) for d in datasets])
    rows = [
        (
            *(a.urn, a.partition, a.multi_work_unit, a.try_number, a.state, a.rows, a.files),
            *((a.ended_at - a.started_at).total_seconds() if a.ended_at else None, a.error),
        )
        for a in attempts
    ]
    print_table("tasks", ("dataset", "partition", "task", "try", "state", "rows", "files", "s", "error"), rows)


def find_job(text: str | None) -> JobName | None:
    """The option's value, unchecked: for a job that the log does not know, the answer is empty."""
    return None if text is None else JobName(text)


def require_known_job(log: Log, text: str | None, found: Sequence[object]) -> None:
    """RejectedError with the jobs that the log knows, if nothing was found because it does not know this one."""
    if text is None or found:
        return
    known = sorted({str(each.job) for each in log.overview.list_datasets(None)})
    if text not in known:
        close = difflib.get_close_matches(text, known, n=1)
        names = ", ".join(known) or "none, since no job has run"
        raise RejectedError(
            f"nothing of a job {text!r} is recorded here",
            field="--job",
            hint=f"Did you mean {close[0]!r}?" if close else f"Known: {names}.",
        )


def find_urn(text: str | None) -> DatasetUrn | None:
    return None if text is None else DatasetUrn(text)
