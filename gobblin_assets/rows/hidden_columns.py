"""The names of the columns that go with rows unseen; ``row_quality`` says what they mean."""

from typing import Final

DEAD_LETTER_COLUMN: Final = "gobblin_dead_letter"
SHARE_COLUMN: Final = "gobblin_share"

REASON_COLUMN: Final = "dead_letter_reason"
"""In published dead letters."""
_HIDDEN_PREFIX: Final = "gobblin_"


def published_name(hidden: str) -> str:
    """The name in published dead letters of one of the hidden columns of dead letters."""
    return REASON_COLUMN if hidden == DEAD_LETTER_COLUMN else hidden.removeprefix(_HIDDEN_PREFIX)
