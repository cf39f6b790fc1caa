"""Words about commands that Dagster does not know of yet: by `status`, and by the check of a publication."""

from typing import Final

from gobblin_assets.model.wording import count_of, show_moment
from gobblin_assets.state.reports import ReportBacklog

_ON_ITS_WAY_S: Final = 60.0
"""A sensor looks every few seconds; what waits for less than this is on its way."""

_LOOKS_S_MAX: Final = 180.0
"""A sensor that has not looked for this long is not at work."""


def is_late(backlog: ReportBacklog) -> bool:
    """Whether Dagster should know of it by now."""
    return (backlog.now - backlog.since).total_seconds() > _ON_ITS_WAY_S


def describe_backlog(backlog: ReportBacklog) -> str:
    """What waits of a job, since when, why, and what to do."""
    counts = (
        (backlog.publications, "publication", "publications"),
        (backlog.failed_runs, "failed run", "failed runs"),
    )
    what = " and ".join(count_of(*each) for each in counts if each[0])
    are = "is" if backlog.publications + backlog.failed_runs == 1 else "are"
    since = f"since {show_moment(backlog.since)}, because {_explain(backlog)}"
    return f"{backlog.job}: {what} {are} not reported to Dagster {since}"


def _explain(backlog: ReportBacklog) -> str:
    if backlog.error is not None:
        return f"{backlog.error}"
    if backlog.looked_at is None:
        return (
            "no daemon of Dagster has looked at this job yet. Start one: gobblin-assets dagster dev. "
            "Or report it now: gobblin-assets report JOB_FILE; without Dagster, set GOBBLIN_REPORT_TO_DAGSTER=never."
        )
    if (backlog.now - backlog.looked_at).total_seconds() > _LOOKS_S_MAX:
        return (
            f"no daemon of Dagster has looked since {show_moment(backlog.looked_at)}. "
            "Start it, and look at its storage and at the sensor that reports. Or: gobblin-assets report JOB_FILE"
        )
    return (
        "the code location that looks at the job does not have these datasets, or has much to report. "
        "If it stays, reload the code location."
    )
