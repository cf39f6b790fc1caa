"""A stream of a job whose runs are short: the run is repeated until it is asked to stop, and finds anew what there is.

A stop takes effect between two runs. The next run tries again where a run failed. It first completes the sequences that
an earlier run left open.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.errors import CorruptionError, GobblinError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.defects import explain_exception
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.state import DatasetOutcome, WorkingState
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.run_values import DatasetReport, RunReport
from gobblin_assets.run.streaming import SAME_LINE_S, WaitForStop

RECOVERED_KEPT_MAX: Final = 1_000

_Name = tuple[DatasetUrn, AssetPartition]


@dataclass(slots=True)
class _Failures:
    """The failures of repeated runs, as they are said: once for each reason, again after a while, and their end."""

    say: Callable[[str], None]
    report_dataset: Callable[[DatasetReport], None]
    monotonic: Callable[[], float]
    reported: dict[_Name, tuple[str | None, float]] = field(default_factory=dict)

    def hear(self, reports: Iterable[DatasetReport]) -> None:
        """The reports of a whole run. What has gone meanwhile is over too, and is not reported."""
        before, self.reported = self.reported, {}
        now_s = self.monotonic()
        for each in reports:
            name = each.urn, each.partition
            text, reported_at_s = before.get(name, (None, float("-inf")))
            if each.is_busy:
                # The run has said who holds it, and the next one comes soon.
                self.reported |= {name: before[name]} if name in before else {}
                continue
            if not each.is_good:
                is_reported = name in before and text == each.error and now_s - reported_at_s < SAME_LINE_S
                self.reported[name] = each.error, reported_at_s if is_reported else now_s
                if not is_reported:
                    self.say(f"{each.label}: {each.error}")
                    self.report_dataset(each)
                continue
            if each.publication is not None:
                self.say(_describe_publication(each, each.publication))
            if name in before:
                self.say(f"{each.label}: it is well again")
                if each.publication is None:
                    self.report_dataset(each)


def repeat_run(
    run_once: Callable[[], RunReport],
    wait_for_stop: WaitForStop,
    *,
    every_s: float,
    clock: Clock,
    say: Callable[[str], None],
    report_dataset: Callable[[DatasetReport], None],
) -> RunReport:
    """Begin a run every ``every_s`` seconds, or when the last one has ended, until ``wait_for_stop`` returns True.

    The report has the last outcome of each partition that there still is. An error of the first run is raised: it is
    the job's. Later ones are said, and the next run tries again, unless no run could help. A dataset's failure is said
    too, but not at each run. ``report_dataset`` gets each failure that is said, and each partition that is well again
    without a publication.
    """
    latest: dict[_Name, DatasetReport] = {}
    recovered: list[DatasetReport] = []
    failures = _Failures(say, report_dataset, clock.monotonic)
    last: RunReport | None = None
    while True:
        begun_s = clock.monotonic()
        try:
            report = run_once()
            latest = {(each.urn, each.partition): _choose_last(latest, each) for each in report.datasets}
            recovered = [*recovered, *report.recovered][-RECOVERED_KEPT_MAX:]
            last = report
            failures.hear(report.datasets)
        except Exception as error:  # what nobody expected may not come again
            is_passed_over = isinstance(error, RetryableError | OutcomeUnknownError | RejectedError)
            if last is None or (isinstance(error, GobblinError) and not is_passed_over):
                raise
            say(_describe(explain_exception("the run", error, say)))
        if wait_for_stop(max(0.0, begun_s + every_s - clock.monotonic())):
            break
    if last is None:
        raise CorruptionError("a stream ended without a run")
    is_good = all(each.is_good for each in latest.values())
    state = WorkingState.COMMITTED if is_good else WorkingState.FAILED
    return RunReport(last.run_id, state, tuple(latest.values()), tuple(recovered))


def _choose_last(latest: dict[_Name, DatasetReport], report: DatasetReport) -> DatasetReport:
    """A run that did nothing to a partition leaves its last publication as it was."""
    before = latest.get((report.urn, report.partition))
    is_same = report.outcome is DatasetOutcome.SKIPPED and before is not None and before.publication is not None
    return before if before is not None and is_same else report


def _describe_publication(report: DatasetReport, publication: Publication) -> str:
    figures = report.figures
    replaced, removed = (f", {figures[name]:,} {name}" if figures.get(name) else "" for name in ("replaced", "removed"))
    files = count_of(publication.file_count, "file", "files")
    return f"{report.label}: version {publication.version} is published: {files}{replaced}{removed}"


def _describe(error: GobblinError) -> str:
    return f"{error} The next run tries again."
