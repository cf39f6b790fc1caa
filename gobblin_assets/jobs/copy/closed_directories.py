"""Directories whose mode takes the right to write from their owner, and who may publish at names in them.

A directory is published by a move, for which its owner needs that right, and so does whoever publishes below it later.
A process that may write everywhere, as root's may, needs no mode for it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.copyable import Attributes, CopyItem

_OWNER_WRITES: Final = 0o200


def open_closed(plan: CopyPlan, can_change_closed: Callable[[], bool]) -> CopyPlan:
    """The plan with the owner's right to write in the mode of each directory, where this process needs it.

    ``can_change_closed`` is asked once, and only if a directory of the plan lacks the right.
    """
    is_closed = any(_is_closed(desired) for _number, _path, desired in plan.directories) or any(
        _has_closed(item) for item in plan.items
    )
    if not is_closed or can_change_closed():
        return plan
    return replace(
        plan,
        items=tuple(_open_item(item) if _has_closed(item) else item for item in plan.items),
        directories=tuple((number, path, _open(desired)) for number, path, desired in plan.directories),
    )


def _has_closed(item: CopyItem) -> bool:
    return item.is_directory and any(map(_is_closed, (item.desired, *(desired for _path, desired in item.directories))))


def _open_item(item: CopyItem) -> CopyItem:
    directories = tuple((path, _open(desired)) for path, desired in item.directories)
    return replace(item, desired=_open(item.desired), directories=directories)


def _is_closed(desired: Attributes) -> bool:
    return desired.mode is not None and not desired.mode & _OWNER_WRITES


def _open(desired: Attributes) -> Attributes:
    return desired if desired.mode is None else replace(desired, mode=desired.mode | _OWNER_WRITES)
