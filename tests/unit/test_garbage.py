"""How often Python looks for garbage: seldom while copies run, and as before when the last of them has ended."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from gobblin_assets.run.own_process import THRESHOLDS, look_for_garbage_seldom


@pytest.fixture(autouse=True)
def before() -> Iterator[tuple[int, int, int]]:
    kept = gc.get_threshold()
    gc.set_threshold(500, 9, 8)
    yield (500, 9, 8)
    gc.set_threshold(*kept)


def test_copies_that_overlap_put_back_what_was(before: tuple[int, int, int]) -> None:
    first, second = look_for_garbage_seldom(), look_for_garbage_seldom()
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold() == THRESHOLDS
    first.__exit__(None, None, None)
    assert gc.get_threshold() == THRESHOLDS
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_copy_that_fails_puts_back_what_was(before: tuple[int, int, int]) -> None:
    with pytest.raises(OSError, match="injected"), look_for_garbage_seldom():
        raise OSError("injected")
    assert gc.get_threshold() == before


def test_garbage_is_still_found() -> None:
    class Knot:
        def __init__(self) -> None:
            self.itself = self

    with look_for_garbage_seldom():
        gone = weakref.ref(Knot())
        kept: list[list[int]] = []
        while gone() is not None and len(kept) < 3 * THRESHOLDS[0]:
            kept.append([])
    assert gone() is None


def test_a_process_that_looks_less_often_is_left_alone() -> None:
    gc.set_threshold(10 * THRESHOLDS[0], 1, 1)
    with look_for_garbage_seldom():
        assert gc.get_threshold()[0] == 10 * THRESHOLDS[0]
