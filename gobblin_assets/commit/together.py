"""One transaction for many sequences, and still an error for the one that it belongs to.

What takes several does it for all of them or for none. So what is refused is done again in halves, until those that
can be done are, and the others are found.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RetryableError

T = TypeVar("T")


TOGETHER_MAX: Final = 100
"""Sequences or datasets in one transaction: what is locked at once stays bounded."""


def in_bounds(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many together as one transaction may take."""
    for start in range(0, len(items), TOGETHER_MAX):
        yield items[start : start + TOGETHER_MAX]


def do_together(items: Sequence[T], act: Callable[[Sequence[T]], object]) -> list[GobblinError | None]:
    """For each item the error that keeps it from being done, or None. Repeating ``act`` must be harmless."""
    return [error for some in in_bounds(items) for error in _do(some, act)]


def _do(items: Sequence[T], act: Callable[[Sequence[T]], object]) -> list[GobblinError | None]:
    try:
        act(items)
    except (RetryableError, OutcomeUnknownError) as error:
        # The log is out of reach, for each of them.
        return [error] * len(items)
    except GobblinError as error:
        if len(items) == 1:
            return [error]
        half = len(items) // 2
        return [*_do(items[:half], act), *_do(items[half:], act)]
    return [None] * len(items)
