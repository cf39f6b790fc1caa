"""The check of the rows of a publication that row policies set aside."""

from collections.abc import Sequence
from typing import Final

from gobblin_assets.run.job_kind import CheckResult

QUARANTINE_CHECK: Final = "quarantine_fraction"
SAMPLES: Final = "samples"
"""Among the figures of a check: some rows, as people are shown them."""


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
