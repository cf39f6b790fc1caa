"""One transaction for many sequences, and still an error for the sequence that it belongs to.

A transaction succeeds for all of its sequences or for none. So a refused transaction is repeated in halves, until all
sequences that can succeed have done so, and the others have their errors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from gobblin_assets.errors import GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.model.defects import find_family

T = TypeVar("T")


TOGETHER_MAX: Final = 100
"""Sequences or datasets in one transaction, so that the number of locked rows is bounded."""


WEIGHT_MAX: Final = 20_000
"""Rows that one transaction writes: the client must never be slow while it holds locks."""


def in_bounds(items: Iterable[T], weigh: Callable[[T], int] | None = None) -> Iterator[list[T]]:
    """Groups of as many items as one transaction may take, at least one. ``weigh``: the rows of one item."""
    for some in in_weight(items, weigh or (lambda _item: 0), WEIGHT_MAX):
        for start in range(0, len(some), TOGETHER_MAX):
            yield some[start : start + TOGETHER_MAX]


def in_weight(items: Iterable[T], weigh: Callable[[T], int], weight_max: int) -> Iterator[list[T]]:
    """Groups, in order, of as many items as weigh no more than this, at least one."""
    found: list[T] = []
    weight = 0
    for item in items:
        more = weigh(item)
        if found and weight + more > weight_max:
            yield found
            found, weight = [], 0
        found.append(item)
        weight += more
    if found:
        yield found


def do_together(
    items: Sequence[T], act: Callable[[Sequence[T]], object], weigh: Callable[[T], int] | None = None
) -> list[GobblinError | None]:
    """For each item the error that keeps it from being done, or None. Repeating ``act`` must be harmless."""
    return [error for some in in_bounds(items, weigh) for error in _do(some, act)]


def _do(items: Sequence[T], act: Callable[[Sequence[T]], object]) -> list[GobblinError | None]:
    try:
        act(items)
    except (RetryableError, OutcomeUnknownError) as error:
        # The log is out of reach for each of them.
        return [error] * len(items)
    except Exception as error:  # noqa: BLE001  of a library: it belongs to the items that it keeps from being done
        if len(items) == 1:
            return [find_family("the log", error)]
        half = len(items) // 2
        return [*_do(items[:half], act), *_do(items[half:], act)]
    return [None] * len(items)
