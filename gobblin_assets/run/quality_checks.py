"""The checks of a publication: its dead letters, the rows that row policies set aside, and the lag behind it."""

from collections.abc import Sequence
from typing import Final

from gobblin_assets.run.job_kind import CheckResult
from gobblin_assets.run.lag import Lag

DEAD_LETTER_CHECK: Final = "dead_letter_fraction"
QUARANTINE_CHECK: Final = "quarantine_fraction"
LAG_CHECK: Final = "lag"
SAMPLES: Final = "samples"
"""Among the figures of a check: some rows, as people are shown them."""


def check_dead_letters(*, rows: int, dead_letters: int, fraction_max: float, count_max: int) -> CheckResult:
    """Check that the share of dead letters is at most ``quality.dead_letter_fraction_max``.

    They are records that could not be decoded, or have no event time. Up to ``count_max`` dead letters
    (``quality.dead_letter_count_max``) are allowed, however large their share.
    """
    total = rows + dead_letters
    fraction = dead_letters / total if total else 0.0
    allowed = f"{fraction_max:.4g}" + (f", or {count_max} of them" if count_max else "")
    return CheckResult(
        name=DEAD_LETTER_CHECK,
        passed=fraction <= fraction_max or dead_letters <= count_max,
        blocking=True,
        description=f"{dead_letters} of {total} records are dead letters ({fraction:.4g}); allowed: {allowed}",
        figures={"dead_letters": dead_letters, "fraction": fraction, "fraction_max": fraction_max},
    )


def check_quarantine(
    *, rows_written: int, rows_set_aside: int, fraction_max: float, samples: Sequence[str] = ()
) -> CheckResult:
    """Check that the share of rows that were set aside is at most ``quality.quarantine_fraction_max``."""
    total = rows_written + rows_set_aside
    fraction = rows_set_aside / total if total else 0.0
    return CheckResult(
        name=QUARANTINE_CHECK,
        passed=fraction <= fraction_max,
        blocking=True,
        description=f"{rows_set_aside} of {total} rows were set aside ({fraction:.4g}); allowed: {fraction_max:.4g}",
        figures={
            "rows_set_aside": rows_set_aside,
            "fraction": fraction,
            "fraction_max": fraction_max,
            **show_samples(samples),
        },
    )


def show_samples(samples: Sequence[str]) -> dict[str, object]:
    """The figure of a check; none without samples."""
    return {SAMPLES: list(samples)} if samples else {}


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
