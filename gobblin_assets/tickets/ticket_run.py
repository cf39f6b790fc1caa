"""One attempt at a ticket: the job's run in this process, with its reports."""

import datetime as dt
import logging
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Protocol

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import (
    ErrorFamily,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
    family_of,
)
from gobblin_assets.jobs.ingest.engine_port import AnnouncedEngine
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.job_ticket import ProbeQuestion, SentTicket, TicketShape, TicketVerb
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.model.wording import join_some
from gobblin_assets.run.run_values import DatasetReport, ReportedAs, RunReport, RunRequest
from gobblin_assets.run.runner import owner_text, run_request
from gobblin_assets.run.stores import Stores
from gobblin_assets.spec.job_options import JobOptions
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.spec.selection import Datasets
from gobblin_assets.state.tickets import AttemptEnd, Claim, TicketReportKind
from gobblin_assets.tickets.interruption import Interruption
from gobblin_assets.tickets.ticket_selection import select_of_ticket

REPORTED_BY: Final = "gobblin-assets executor"

_MESSAGE_CHARACTERS_MAX: Final = 4_000

_BY_WEIGHT: Final = (
    ErrorFamily.CORRUPTION,
    ErrorFamily.CONFLICT,
    ErrorFamily.REJECTED,
    ErrorFamily.FENCED,
    ErrorFamily.OUTCOME_UNKNOWN,
    ErrorFamily.RETRYABLE,
)
"""The family of an end is the first of these that some partition failed with."""

_SAID: Final = {
    AttemptEnd.COMPLETE: "drained",
    AttemptEnd.CANCELLED: "cancelled",
    AttemptEnd.DRAINED: "its executor was asked to end",
    AttemptEnd.DIED: "its executor has died",
}

_log = logging.getLogger(__name__)


class HostRun(Protocol):
    """A run of Dagster's that an attempt is a part of. It keeps the events of the attempt's run."""

    @property
    def dagster_run_id(self) -> str: ...

    def run(
        self, job: JobOptions, datasets: Datasets, request: RunRequest, hear: Callable[[DatasetReport], None]
    ) -> RunReport:
        """Run the request. ``hear`` gets each publication that the run makes. KeyboardInterrupt: it was interrupted."""
        ...


def run_claimed(
    claim: Claim,
    stores: Stores,
    open_spark: Callable[[], AnnouncedEngine],
    say: Callable[[str], None],
    interruption: Interruption,
    host: HostRun | None = None,
) -> AttemptEnd:
    """Run the ticket's job to its end, and report that. What the job's own code raises ends the attempt as FAILED.

    ``host`` None: this process itself runs the job.

    FencedError: the attempt is not the last one any more; nothing is reported. KeyboardInterrupt: it was interrupted,
    and whoever takes it reports the end. Drivers make other errors of a KeyboardInterrupt, which count as one.
    """
    reports = _Reports(claim, stores)
    # Until the ticket is read: another attempt may read it.
    goes_on, deletes = True, False
    try:
        sent = stores.tickets.get_claimed(claim)
        goes_on = sent.ticket is not None and sent.ticket.shape is TicketShape.WORKER
        deletes = sent.verb is TicketVerb.DELETE
        # Told before it takes a lease: the executor ends the leases of a run whose process has died.
        run_id = RunId(SystemClock().new_id())
        reports.append(TicketReportKind.RUNNING, _describe_begin(run_id, host))
        if sent.question is not None:
            end, details = _answer(sent, sent.question, stores, open_spark, say)
        elif goes_on:
            end, details = _work(sent, run_id, stores, open_spark, say, interruption, reports, host)
        else:
            end, details = _describe_end(_run(sent, run_id, stores, open_spark, say, reports, host))
    except FencedError:
        raise
    except GobblinError as error:
        message = error.message[:_MESSAGE_CHARACTERS_MAX]
        # A worker goes on, in another attempt, once what was away is there again; a DELETE until it is done.
        passes = goes_on and (deletes or isinstance(error, RetryableError | OutcomeUnknownError))
        end = AttemptEnd.DIED if passes else AttemptEnd.FAILED
        details = describe_end(message, family=family_of(error), hint=error.hint)
    except Exception as error:  # noqa: BLE001  a job's own functions and converters raise what they like
        _log.exception("the job of the ticket %s failed", claim.ticket_id)
        # Its text may hold what no report may: the executor's own log has it.
        said = f"{type(error).__name__}: the executor's log has the rest"
        end, details = AttemptEnd.DIED if deletes else AttemptEnd.FAILED, describe_end(said)
    if (interruption.end is not None or interruption.is_heard) and end is not AttemptEnd.COMPLETE:
        raise KeyboardInterrupt
    report_missed(claim, stores)
    stores.tickets.end(claim, end, details)
    return end


def report_interrupted(claim: Claim, stores: Stores, end: AttemptEnd, said: str = "") -> AttemptEnd | None:
    """Report the end of an attempt that was interrupted. None: it may report no more.

    ``said``: why, as a sentence; by default, as of an executor's own processes.
    """
    try:
        report_missed(claim, stores)
    except FencedError:
        return None
    return end if stores.tickets.end(claim, end, describe_end(said or _SAID[end])) else None


def report_missed(claim: Claim, stores: Stores) -> None:
    """Report publications of the job that no report has: a process may die between a publication and its report."""
    missing = stores.tickets.list_unreported(claim.ticket_id)
    reports = _Reports(claim, stores)
    for publication in stores.commits.load_publications(*missing) if missing else ():
        reports.append_publication(publication)


def describe_end(message: str = "", *, family: ErrorFamily | None = None, hint: str = "") -> dict[str, Any]:
    """What the report of an end says, beside its state. ``message``: a sentence for people, without secrets."""
    return {"family": None if family is None else family.value, "message": message, "hint": hint}


def _describe_begin(run_id: RunId, host: HostRun | None) -> dict[str, Any]:
    details = {"owner": owner_text(), "run_id": str(run_id)}
    return details if host is None else {**details, "dagster_run_id": host.dagster_run_id}


class _Reports:
    """The reports of one attempt."""

    def __init__(self, claim: Claim, stores: Stores) -> None:
        self._claim = claim
        self._tickets = stores.tickets

    def append(self, kind: TicketReportKind, details: Mapping[str, Any]) -> None:
        self._tickets.report(self._claim, uuid.uuid4(), kind, details)

    def append_publication(self, publication: Publication) -> None:
        details = describe_published(publication)
        kind = TicketReportKind.PUBLISHED
        self._tickets.report(self._claim, uuid.uuid4(), kind, details, publication.sequence_id)

    def hear(self, report: DatasetReport) -> None:
        if report.publication is not None:
            self.append_publication(report.publication)


def describe_published(publication: Publication) -> dict[str, Any]:
    """What the report of a publication says. ``watermarks``: of each key that moved, its position before and after."""
    return {
        "sequence_id": str(publication.sequence_id),
        "urn": publication.urn,
        "partition": publication.partition or None,
        "mode": publication.mode.value,
        "rows": publication.rows_by_role.get(Role.DATA, 0),
        "files": publication.file_count,
        "bytes": publication.file_bytes,
        "watermarks": {key: list(each) for key, each in publication.watermarks.items()},
    }


def _answer(
    sent: SentTicket,
    question: ProbeQuestion,
    stores: Stores,
    open_spark: Callable[[], AnnouncedEngine],
    say: Callable[[str], None],
) -> tuple[AttemptEnd, dict[str, Any]]:
    from gobblin_assets.tickets.probe import answer_probe  # noqa: PLC0415  runs need none of what answers questions

    return answer_probe(sent, question, stores, open_spark, say)


def _run(
    sent: SentTicket,
    run_id: RunId,
    stores: Stores,
    open_spark: Callable[[], AnnouncedEngine],
    say: Callable[[str], None],
    reports: _Reports,
    host: HostRun | None,
) -> RunReport | None:
    """None: nothing is missing."""
    job = parse_any_job(sent.get_job_ticket().job)
    if live := stores.sink_workers.list_live(JobName(job.job)):
        raise RejectedError(
            f"{len(live)} workers publish the job {job.job}, and a run would wait for their lanes",
            field="job",
            hint="Cancel their tickets first, which drains them.",
        )
    program = program_of(job)
    datasets = program.read_datasets(job)
    selection = select_of_ticket(sent.selection, job, datasets, stores, dt.datetime.now(dt.UTC))
    if not selection:
        return None
    request = RunRequest(
        program.rules_of(job),
        selection,
        mode=sent.selection.mode,
        by_hand=False,
        # The attempt before may have died with its leases and its executor: then they have to expire.
        waits_for_turn=True,
        dagster_run_id=None if host is None else host.dagster_run_id,
        reported_as=ReportedAs(by=REPORTED_BY, mode=sent.selection.mode.value) if host is None else None,
        run_id=run_id,
        # Attempts before this one published some of it, and what they sealed is published by recovery.
        find_done=partial(stores.tickets.list_done, sent.ticket_id),
    )
    if host is not None:
        return host.run(job, datasets, request, reports.hear)
    with program.open_run(job, datasets, open_spark, stores, say, reports.hear) as ports:
        return run_request(request, ports)


def _work(
    sent: SentTicket,
    run_id: RunId,
    stores: Stores,
    open_spark: Callable[[], AnnouncedEngine],
    say: Callable[[str], None],
    interruption: Interruption,
    reports: _Reports,
    host: HostRun | None,
) -> tuple[AttemptEnd, dict[str, Any]]:
    from gobblin_assets.tickets.ticket_worker import run_worker_ticket  # noqa: PLC0415  it imports PySpark

    def report_progress(details: Mapping[str, Any]) -> None:
        reports.append(TicketReportKind.PROGRESS, details)

    interruption.is_graceful = True
    dagster_run_id = None if host is None else host.dagster_run_id
    stop = interruption.stop
    done = run_worker_ticket(sent, run_id, stores, open_spark(), say, stop, report_progress, dagster_run_id)
    if interruption.end is not None:
        raise KeyboardInterrupt
    return AttemptEnd.COMPLETE, describe_end(done)


def _describe_end(report: RunReport | None) -> tuple[AttemptEnd, dict[str, Any]]:
    if report is None:
        return AttemptEnd.COMPLETE, {**describe_end("nothing is missing"), "run_id": None, "partitions": 0, "failed": 0}
    failed = report.failed
    figures = {"run_id": str(report.run_id), "partitions": len(report.datasets), "failed": len(failed)}
    if not failed:
        return AttemptEnd.COMPLETE, {**describe_end(), **figures}
    families = {each.error_family for each in failed}
    said = join_some([f"{each.label}: {each.error or each.outcome.value}" for each in failed])
    family = next((each for each in _BY_WEIGHT if each in families), None)
    busy = all(each.is_busy for each in failed)
    return AttemptEnd.FAILED, {**describe_end(said[:_MESSAGE_CHARACTERS_MAX], family=family), "busy": busy, **figures}
