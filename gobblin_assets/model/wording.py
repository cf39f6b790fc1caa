"""Texts for people: numbers and lists in sentences, and lines of progress that the next line makes old."""

import datetime as dt
import re
from collections.abc import Sequence
from typing import Final

NAMES_MAX: Final = 5

CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters of C0 and C1, and halves of pairs, which stand for bytes that are no UTF-8."""


def count_of(count: int, one: str, many: str) -> str:
    """Such as "1 file" and "2 files"."""
    return f"{count:,} {one if count == 1 else many}"


def show_moment(moment: dt.datetime) -> str:
    """To the second, in UTC."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def join_some(names: Sequence[str]) -> str:
    """The first of them by name, and how many more there are."""
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more:,} more" if more > 0 else "")


class PassingLine(str):
    """A text like any other; a terminal may show the next one in its place. A text made from it is a plain text."""

    __slots__ = ()
