"""The check of a publication's dead letters: records that could not be decoded, or have no event time."""

from typing import Final

from gobblin_assets.run.job_kind import CheckResult

DEAD_LETTER_CHECK: Final = "dead_letter_fraction"


def check_dead_letters(*, rows: int, dead_letters: int, fraction_max: float, count_max: int) -> CheckResult:
    """Check that the share of dead letters is at most ``quality.dead_letter_fraction_max``.

    Up to ``count_max`` dead letters (``quality.dead_letter_count_max``) are allowed, however large their share.
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
