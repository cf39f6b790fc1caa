"""Answers to the question what the run of a ticket's job would read or copy now. Nothing is read, taken or written."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Final

from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.job_ticket import SentTicket
from gobblin_assets.run.dry_run import PlannedSlice, PlannedUnit, plan_dry
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.run_values import RunRequest
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.tickets.ticket_selection import select_of_ticket

LISTED_MAX: Final = 2_000


def answer_dry_run(
    sent: SentTicket, stores: Stores, open_spark: Callable[[], AnnouncedEngine], say: Callable[[str], None]
) -> dict[str, Any]:
    """The partitions, WorkUnits and changes of files that the run would have, in plain JSON.

    RejectedError for a job that can't be run; a partition that can't be planned has its error.
    """
    job = parse_any_job(sent.get_job_ticket().job)
    program = program_of(job)
    datasets = program.read_datasets(job)
    selection = select_of_ticket(sent.selection, job, datasets, stores, dt.datetime.now(dt.UTC))
    if not selection:
        return show_slices([])
    request = RunRequest(program.rules_of(job), selection, mode=sent.selection.mode, by_hand=False)
    with program.open_run(job, datasets, open_spark, stores, say, unheard) as ports:
        return show_slices(plan_dry(request, stores.datasets, ports.kind, ports.clock, say))


def show_slices(slices: Sequence[PlannedSlice]) -> dict[str, Any]:
    """``rows``: estimated, of the WorkUnits whose source estimates them. Counts are of all, lists of the first ones."""
    units = [(each, unit) for each in slices for unit in each.units]
    changes = [(each, change) for each in slices for change in each.changes]
    return {
        "partition_count": len(slices),
        "work_unit_count": len(units),
        "rows": sum(unit.estimated_row_count or 0 for _slice, unit in units),
        "change_count": len(changes),
        "change_bytes": sum(change.size_bytes for _slice, change in changes),
        "partitions": [_show_slice(each) for each in slices[:LISTED_MAX]],
        "work_units": [_show_unit(each, unit) for each, unit in units[:LISTED_MAX]],
        "changes": [
            {
                "dataset": each.urn,
                "partition": each.partition,
                "action": change.action,
                "path": change.path,
                "bytes": change.size_bytes,
                "why": change.why,
            }
            for each, change in changes[:LISTED_MAX]
        ],
    }


def _show_slice(each: PlannedSlice) -> dict[str, Any]:
    estimates = [unit.estimated_row_count for unit in each.units]
    return {
        "dataset": each.urn,
        "partition": each.partition,
        "mode": each.mode.value,
        "reader": each.reader,
        "work_units": len(each.units),
        "rows": sum(known) if (known := [rows for rows in estimates if rows is not None]) else None,
        "changes": len(each.changes),
        "bytes": sum(change.size_bytes for change in each.changes),
        "notes": list(each.notes),
        "error": each.error,
    }


def _show_unit(each: PlannedSlice, unit: PlannedUnit) -> dict[str, Any]:
    return {
        "dataset": each.urn,
        "partition": each.partition,
        "key": unit.key,
        "number": unit.number,
        "task": unit.multi_work_unit,
        "interval": None if unit.interval is None else str(unit.interval),
        "rows": unit.estimated_row_count,
    }
