"""Runs of jobs of every kind from Python, as the command line runs them.

from gobblin_assets import run_job
report = run_job("shop.yaml", partitions=["2026-01"])
"""

import datetime as dt
from collections.abc import Callable, Sequence

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.extract import Mode
from gobblin_assets.run.log import open_log
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.run_values import DatasetReport, RunReport, RunRequest
from gobblin_assets.run.runner import run_request
from gobblin_assets.spec.job_files import AnyJob, load_job
from gobblin_assets.spec.selection import select_partitions


def run_job(
    job: AnyJob,
    *,
    datasets: Sequence[str] = (),
    partitions: Sequence[str] = (),
    partition_ranges: Sequence[tuple[str, str]] = (),
    future: bool = False,
    mode: Mode | str = Mode.AUTO,
    spark: SparkEngine | None = None,
    say: Callable[[str], None] = unheard,
    on_publication: Callable[[DatasetReport], None] = unheard,
) -> RunReport:
    """Materialize datasets of the job, after completing what earlier runs left open, as `gobblin-assets run` does.

    ``datasets``: URNs. Without URNs, a run takes all datasets with partitions if ``partitions`` are given, else all
    without partitions (of logs: all datasets, in the open windows). ``partitions``: keys. ``partition_ranges``: (first,
    last), both included. ``future``: also take windows that have not begun. ``spark``: where Spark runs; its session
    stays open. ``say`` gets lines of progress, ``on_publication`` gets each publication at least once.

    The report has the failures of single datasets. A failure of the whole run raises a family of ``GobblinError``:
    RejectedError for a job or a selection that can't be run, before the run begins.
    """
    spec = load_job(job)
    program = program_of(spec)
    specs = program.read_datasets(spec)
    begun_by = None if future else dt.datetime.now(dt.UTC)
    selection = select_partitions(
        spec, specs, urns=datasets, keys=partitions, ranges=partition_ranges, begun_by=begun_by
    )
    engine = spark or SparkEngine(say=say)
    rules = program.rules_of(spec)
    with (
        open_log(say) as log,
        program.open_run(spec, specs, lambda: engine, log.stores, say, on_publication) as ports,
    ):
        return run_request(RunRequest(rules, selection, mode=_parse_mode(mode)), ports)


def _parse_mode(mode: Mode | str) -> Mode:
    try:
        return Mode(mode)
    except ValueError:
        raise RejectedError(
            f"expected one of {', '.join(each.value for each in Mode)}, found {mode!r}",
            field="mode",
            hint="Correct it, or leave it out.",
        ) from None
