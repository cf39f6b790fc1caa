"""One attempt at a ticket of a worker: this process publishes a log until somebody ends it, and reports how far it is.

Several tickets of one job are several workers, which share its lanes.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Final

from gobblin_assets.errors import FencedError, GobblinError, RetryableError
from gobblin_assets.jobs.sink.running import (
    find_spark_needs,
    open_log_connection,
    read_sink_datasets,
    work_beside_others,
)
from gobblin_assets.jobs.sink.sink_ports import SinkSpark
from gobblin_assets.jobs.sink.stream_status import DatasetStatus, find_stream_status, open_copied_logs
from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketVerb
from gobblin_assets.model.state import DatasetState, RunId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.own_process import StopRequest
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_parsing import parse_job
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.sinks import sum_lags

PROGRESS_S: Final = 10.0
DRAIN_S_MAX: Final = 600.0
"""So long workers that were asked to end may take, those that were killed until their leases end."""

_LOOK_S: Final = 0.5
_SOON_S: Final = 1.0
"""The first report comes so soon, and the next ones ever later: jobs may wait for what it publishes."""


def run_worker_ticket(
    sent: SentTicket,
    run_id: RunId,
    stores: Stores,
    spark: SinkSpark,
    say: Callable[[str], None],
    stop: StopRequest,
    report_progress: Callable[[Mapping[str, Any]], None],
    dagster_run_id: str | None = None,
) -> str:
    """Do what the ticket says until it is done, or ``stop`` is made. Returns what was done, as a sentence.

    ``run_id``: of the worker that it starts; ``dagster_run_id``: of the Dagster run that the worker is, if it is one.

    FencedError by ``report_progress``: the attempt is not the last one any more, and the worker ends.
    """
    job = parse_job(sent.get_job_ticket().job)
    specs = read_sink_datasets(job, sent.selection.datasets)
    if sent.verb is not TicketVerb.ADD and not _end_older(sent.ticket_id, job, stores, stop):
        return "interrupted while older workers ended"
    if sent.verb is TicketVerb.DELETE:
        for copied in list(open_copied_logs(job, specs, open_log_connection(job)).values())[:1]:
            copied.drop_stream()
        return "no worker lives, and the source keeps nothing for the job"
    if find_spark_needs(job, specs):
        spark.get_session(job)
    with _reporting(lambda: report_progress(describe_progress(job, specs, stores)), stop, say):
        work_beside_others(*(job, specs, stores, stop.wait, say, spark), dagster_run_id=dagster_run_id, run_id=run_id)
    return "drained"


def describe_progress(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], stores: Stores) -> dict[str, Any]:
    """What a report of progress says of the whole sink, in plain JSON.

    Of each dataset: its lag in records, or in bytes of a stream; up to where it is published, by key, or the place of a
    stream; lanes, and how many are held; what is BLOCKED; what workers leave alone after a failure. Of a stream: the
    slot, and the bytes that the server keeps for it.
    """
    name = JobName(job.job)
    live = stores.sink_workers.list_live(name)
    ids = {urn: state.dataset_id for urn, state in stores.datasets.load(name, list(specs)).items()}
    found = stores.sink_windows.look(list(ids.values()))
    looks = {urn: found[dataset_id] for urn, dataset_id in ids.items() if dataset_id in found}
    states = stores.datasets.load(name, list(looks))
    unanswered: str | None = None
    try:
        status = find_stream_status(job, specs, open_log_connection(job), states, looks)
    except GobblinError as error:
        # What the log says is reported without the server as well.
        status, unanswered = None, error.message
    datasets = {}
    for urn, look in looks.items():
        of_stream = DatasetStatus() if status is None else status.datasets.get(urn, DatasetStatus())
        stuck = [lane.unfinished for lane in look.lanes if lane.unfinished is not None and lane.unfinished.is_blocked]
        datasets[urn] = {
            "lag": sum_lags(live, ids[urn]) if status is None else of_stream.lag_bytes,
            "lag_s": of_stream.lag_s,
            "position": of_stream.position,
            "watermarks": _write_watermarks(states[urn]) if status is None and urn in states else {},
            "copy": of_stream.progress,
            "lanes": len(look.lanes),
            "lanes_held": sum(lane.holder is not None for lane in look.lanes),
            "blocked": [{"sequence_id": str(each.sequence_id), "error": each.error} for each in stuck],
            "rests": sorted({b.error for worker in live for b in worker.back_offs if b.dataset_id == ids[urn]}),
        }
    stream = None if status is None else status.stream
    return {
        "workers": [each.owner for each in live],
        "datasets": datasets,
        "unanswered": unanswered,
        "stream": stream
        and {
            "slot": stream.name,
            "status": stream.status,
            "confirmed": stream.confirmed,
            "retained_bytes": stream.retained_bytes,
            "safe_bytes": stream.safe_bytes,
        },
    }


def _write_watermarks(state: DatasetState) -> dict[str, str]:
    """By key; of several partitions, the last of each."""
    marks = [(key.name, key.watermark) for key in state.keys.values() if key.watermark is not None]
    return {name: str(mark) for name, mark in sorted(marks, key=itemgetter(1))}


def _end_older(ticket_id: TicketId, job: JobSpec, stores: Stores, stop: StopRequest) -> bool:
    """Drain the job's workers, and end the tickets that would start them again. False: ``stop`` was made before that.

    RetryableError: some are still alive after ``DRAIN_S_MAX``.
    """
    name = JobName(job.job)
    until_s = time.monotonic() + DRAIN_S_MAX
    while True:
        others = stores.tickets.supersede(ticket_id)
        asked = stores.sink_workers.drain(name)
        if not others and not asked:
            return True
        if time.monotonic() >= until_s:
            alive = ", ".join(each.owner for each in stores.sink_workers.list_live(name)) or "none that says so"
            raise RetryableError(
                f"workers of {name} are still alive after {DRAIN_S_MAX:g} s: {alive}",
                hint="Whoever was killed counts until its lease ends. `gobblin-assets sink status` shows the others.",
            )
        if stop.wait(_LOOK_S):
            return False


@contextmanager
def _reporting(report: Callable[[], None], stop: StopRequest, say: Callable[[str], None]) -> Iterator[None]:
    is_over = threading.Event()

    def tell() -> None:
        wait_s = min(_SOON_S, PROGRESS_S)
        while not is_over.wait(wait_s):
            wait_s = min(2 * wait_s, PROGRESS_S)
            try:
                report()
            except FencedError as error:
                say(str(error))
                stop.make()
                return
            except Exception as error:  # noqa: BLE001  the worker goes on, whatever a report ends with
                say(f"how far it is could not be reported: {error}")

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
