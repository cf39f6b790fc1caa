"""Patience with a store: how often a request is sent again, and after which waits."""

import random
from typing import Final

TRIES_MAX: Final = 5
BUSY_TRIES_MAX: Final = 12
"""Of a store that says that it is busy, and so will be there again."""

BACK_OFF_S: Final = 0.1
BACK_OFF_S_MAX: Final = 10.0


def back_off_s(number: int) -> float:
    """The wait behind a try: three times as long behind each, with chance; 4 s in all, or about 60 s."""
    longest_s = min(BACK_OFF_S * 3.0 ** (number - 1), BACK_OFF_S_MAX)
    return longest_s * random.uniform(0.5, 1.0)  # noqa: S311  only spreads the tries of many processes
