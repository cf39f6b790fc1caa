"""What is said of commands that Dagster does not know of yet: by `status`, and by the check of a publication."""

import datetime as dt
from typing import Final

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
    counts = {"publication": backlog.publications, "failed run": backlog.failed_runs}
    what = " and ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items() if count)
    are = "is" if sum(counts.values()) == 1 else "are"
    return (
        f"{backlog.job}: {what} {are} not reported to Dagster since {_show(backlog.since)}, because {_explain(backlog)}"
    )


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
            f"no daemon of Dagster has looked since {_show(backlog.looked_at)}. "
            "Start it, and look at its storage and at the sensor that reports. Or: gobblin-assets report JOB_FILE"
        )
    return (
        "the code location that looks at the job does not have these datasets, or has much to report. "
        "If it stays, reload the code location."
    )


def _show(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
