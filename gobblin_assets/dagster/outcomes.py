"""Families of errors become Dagster's outcomes here, and nowhere else.

    RetryableError, OutcomeUnknownError    RetryRequested: the next try reads the log first, which turns an
                                           unknown outcome into a known one; nothing is cleaned up here
    all others                             Failure without retries: a person, or another owner, is needed

A run ends in one outcome for all of its datasets. It asks for a retry only if a retry could help all failed ones.
"""

from collections.abc import Sequence
from typing import Final

import dagster as dg

from gobblin_assets.errors import ErrorFamily, GobblinError, OutcomeUnknownError, RetryableError, family_of
from gobblin_assets.run.run_values import DatasetReport

RETRY_TRIES_MAX: Final = 2
RETRY_WAIT_S: Final = 10.0

_RETRIED_FAMILIES: Final = frozenset({ErrorFamily.RETRYABLE, ErrorFamily.OUTCOME_UNKNOWN})
_NAMED_MAX: Final = 20


def decide_error(error: GobblinError, *, retry_number: int) -> dg.RetryRequested | dg.Failure:
    """The exception for an error that stopped the whole run."""
    if isinstance(error, RetryableError | OutcomeUnknownError) and retry_number < RETRY_TRIES_MAX:
        return dg.RetryRequested(max_retries=RETRY_TRIES_MAX, seconds_to_wait=RETRY_WAIT_S)
    return dg.Failure(
        description=str(error),
        metadata={"gobblin/error_family": family_of(error).value},
        allow_retries=False,
    )


def decide_failed(
    failed: Sequence[DatasetReport], *, good_count: int, retry_number: int
) -> dg.RetryRequested | dg.Failure | None:
    """The exception to raise after successful reports were logged; None if all are successful."""
    if not failed:
        return None
    mendable = all(report.error_family in _RETRIED_FAMILIES for report in failed)
    if mendable and retry_number < RETRY_TRIES_MAX:
        return dg.RetryRequested(max_retries=RETRY_TRIES_MAX, seconds_to_wait=RETRY_WAIT_S)
    lines = [_describe(report) for report in failed[:_NAMED_MAX]]
    if len(failed) > _NAMED_MAX:
        lines.append(f"… and {len(failed) - _NAMED_MAX} more")
    return dg.Failure(
        description=f"{len(failed)} of {len(failed) + good_count} dataset partitions failed:\n" + "\n".join(lines),
        metadata={
            "gobblin/failed": dg.MetadataValue.json([report.label for report in failed]),
            "gobblin/good_count": good_count,
        },
        allow_retries=False,
    )


def _describe(report: DatasetReport) -> str:
    return f"- {report.label}: {report.outcome.value}: {report.error or 'no reason was given'}"
