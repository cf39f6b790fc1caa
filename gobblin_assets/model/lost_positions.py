"""A position that is no place any more of what its source has now: the error, which names the position."""

from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import Watermark

LOST: Final = "lost"
"""In a position's ``history``: why it is no place of the source any more, as it was found out first."""


class PositionLostError(RejectedError):
    """The history of the position ``at`` of ``key`` was lost, for this ``reason``. A person decides where to go on."""

    def __init__(
        self, message: str, *, key: str, at: Watermark, reason: str, field: str, hint: str, **fields: object
    ) -> None:
        super().__init__(message, field=field, hint=hint, **fields)
        self.key = key
        self.at = at
        self.reason = reason


def find_reason(at: Watermark) -> str | None:
    """Why the position's history is lost, if that was found out before."""
    found = (at.history or {}).get(LOST)
    return found if isinstance(found, str) else None
