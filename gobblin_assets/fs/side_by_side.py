"""Calls to a file system that go side by side, where it says how many may: most of their time waits for a store."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gobblin_assets.fs.objects import HoldsObjects

T = TypeVar("T")
R = TypeVar("R")


def call_side_by_side(fs: object, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """The results, in the order of ``items``. The first error is raised, after those that were begun have ended."""
    threads = min(len(items), fs.calls_at_once if isinstance(fs, HoldsObjects) else 1)
    if threads <= 1:
        return [call(each) for each in items]
    with ThreadPoolExecutor(threads, thread_name_prefix="store") as pool:
        return list(pool.map(call, items))
