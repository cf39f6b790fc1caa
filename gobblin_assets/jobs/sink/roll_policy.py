"""Bounds at which the open files of a lane are due to be cut: a pure decision.

Small epochs gather in open, invisible files. A cut costs a transaction and makes at least one file, so that a policy
weighs the size of files against the time that rows wait for readers.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Final

from gobblin_assets.errors import RejectedError

EMPTY_CUT_AGE_S: Final = 60.0
"""Seconds after which positions that moved without rows are cut, so that the log can be truncated."""

FAR_CUT_AGE_S: Final = 5.0
"""The same, of positions that moved far."""


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """Bounds of what is gathered; None: no such bound. The first one that is reached makes a cut due.

    ``rows_max`` and ``bytes_max``: of all open files of the lane together. ``age_s``: seconds between barriers, by the
    log's own times; 0: each checkpoint barrier that has rows is a cut. ``span_max``: so far positions move without rows
    before a cut of them is urgent, because the log's server keeps what lies behind them.
    """

    rows_max: int | None = None
    bytes_max: int | None = None
    age_s: float | None = None
    span_max: int | None = None

    def is_full(self, *, row_count: int, size_bytes: int) -> bool:
        """Whether so much is gathered that the next checkpoint barrier is a cut."""
        return (self.rows_max is not None and row_count >= self.rows_max) or (
            self.bytes_max is not None and size_bytes >= self.bytes_max
        )

    def is_old(self, *, opened_at: dt.datetime, at: dt.datetime, has_rows: bool) -> bool:
        """Whether what began at the barrier of ``opened_at`` has waited long enough at the barrier of ``at``.

        Without rows, only positions wait, and a cut of them is less urgent.
        """
        waited_s = (at - opened_at).total_seconds()
        if has_rows:
            return self.age_s is not None and waited_s >= self.age_s
        return waited_s >= max(EMPTY_CUT_AGE_S, self.age_s or 0.0)

    def is_far(self, *, opened_at: dt.datetime, at: dt.datetime, span: int) -> bool:
        """Whether positions have moved so far without rows, since the barrier of ``opened_at``, that a cut is due."""
        waited_s = (at - opened_at).total_seconds()
        return self.span_max is not None and span >= self.span_max and waited_s >= FAR_CUT_AGE_S


def check_roll_policy(policy: RollPolicy, *, field: str) -> None:
    """RejectedError for a policy that never closes a file, or that has a bound that is no bound.

    ``field``: the options' place in the job file.
    """
    if policy.rows_max is None and policy.bytes_max is None and policy.age_s is None:
        raise RejectedError(
            "files would never be closed: rows_max, bytes_max and age_s are all null",
            field=field,
            hint="Set at least one of them; age_s is the longest time that rows wait for readers, in seconds.",
        )
    for name, bound in (("rows_max", policy.rows_max), ("bytes_max", policy.bytes_max)):
        if bound is not None and bound < 1:
            raise RejectedError(f"expected at least 1, found {bound}", field=f"{field}.{name}", hint="Raise it.")
    if policy.age_s is not None and not 0 <= policy.age_s < float("inf"):
        raise RejectedError(
            f"expected seconds from 0 on, found {policy.age_s}",
            field=f"{field}.age_s",
            hint="0 closes files at each checkpoint barrier; null sets no bound of time.",
        )
