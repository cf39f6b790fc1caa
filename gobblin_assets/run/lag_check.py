"""The check of the lag: how much of a log is not published."""

from typing import Final

from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.lag import Lag

LAG_CHECK: Final = "lag"


def check_lag(lag: Lag, *, lag_max: int) -> CheckResult:
    """Check that the unread part of the log is at most ``quality.lag_max``. The check never blocks a publication."""
    figures: dict[str, object] = {"lag": lag.total, "lag_max": lag_max}
    for worst in lag.largest[:1]:
        figures |= {"largest_lag": worst.count, "largest_lag_key": worst.key}
    return CheckResult(
        name=LAG_CHECK,
        passed=lag.total <= lag_max,
        blocking=False,
        description=f"{lag.total} offsets were not published; allowed: {lag_max}",
        figures=figures,
    )
