"""Events of finished sequences: sent at least once, each carrying the sequence's id.

A sequence is finished before its event is sent. A process that dies between the two leaves the sequence
unannounced in the log, and the next run or recovery of the job sends the event again.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gobblin_assets.commit.sequence import COMPACTION, Publication
from gobblin_assets.commit.store import SequenceFinisher
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.source_declarations import comments_from_json, constraints_from_json
from gobblin_assets.model.state import DatasetOutcome, SequenceId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.job_kind import FIGURES, HAS_ROWS, CheckResult
from gobblin_assets.run.lag import lag_from_json
from gobblin_assets.run.run_values import DatasetReport

_log = logging.getLogger(__name__)


# One run sends at most this many events of earlier runs; the rest waits for the next run.
ANNOUNCED_PER_RUN_MAX: Final = 1_000


def report_of(publication: Publication, partition: AssetPartition | None = None) -> DatasetReport:
    """The report of a finished sequence, from its entry in the log."""
    details: Mapping[str, Any] = publication.details
    checks = checks_from_json(details.get("checks", ()))
    duration_s = float(details.get("duration_s", 0.0))
    has_rows = bool(details.get(HAS_ROWS, True))
    return DatasetReport(
        urn=publication.urn,
        partition=partition or AssetPartition(publication.partition or None),
        outcome=DatasetOutcome.COMMITTED if publication.complete else DatasetOutcome.PARTIAL,
        publication=publication,
        checks=checks,
        columns=dict(details.get("columns", ())),
        uri=details.get("uri"),
        notes=tuple(details.get("notes", ())),
        figures={
            **({"rows_read": int(details.get("rows_read", 0))} if has_rows else {}),
            "duration_s": duration_s,
            **details.get(FIGURES, {}),
        },
        has_rows=has_rows,
        lag=lag_from_json(details.get("lag")),
        comments=comments_from_json(details),
        constraints=constraints_from_json(details),
    )


def checks_from_json(kept: Sequence[Mapping[str, Any]]) -> tuple[CheckResult, ...]:
    """Checks as the log keeps them, of a publication or of a partition without one."""
    return tuple(CheckResult(**check) for check in kept)


def is_compaction(publication: Publication) -> bool:
    """Whether the publication only holds the rows of earlier publications."""
    return COMPACTION in publication.details


def announce(
    store: SequenceFinisher,
    reports: Sequence[DatasetReport],
    send: Callable[[DatasetReport], None],
    *,
    marks: bool = True,
) -> None:
    """Send an event for each publication, then record which were sent. A compaction has no event.

    ``marks`` False: whoever reports to Dagster from the log records them.
    """
    sent: list[SequenceId] = []
    for report in reports:
        if report.publication is not None:
            reach(Failpoint.FINISHED_BEFORE_EVENTS)
            try:
                if not is_compaction(report.publication):
                    send(report)
            except Exception:  # noqa: BLE001  of whoever takes the event
                # The publication is done, and the next run reports it.
                _log.exception("%s: nobody took the event of its publication", report.label)
                continue
            sent.append(report.publication.sequence_id)
    if sent and marks:
        store.mark_announced(*sent)


def announce_left_over(
    store: SequenceFinisher, job: JobName, send: Callable[[DatasetReport], None]
) -> Sequence[DatasetReport]:
    """Send the events that earlier runs of the job could not send."""
    found = store.list_unannounced(job=job, limit=ANNOUNCED_PER_RUN_MAX)
    reports = [report_of(replace(publication, recovered=True)) for publication in found]
    for report in reports:
        announce(store, [report], send)
    return reports
