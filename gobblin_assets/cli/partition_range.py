"""Ranges of partitions as people type them."""

from typing import Final

import click

_RANGE_MARK: Final = "..."


class PartitionRange(click.ParamType[tuple[str, str]]):
    """FIRST...LAST, both included."""

    name = "first...last"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        first, mark, last = str(value).partition(_RANGE_MARK)
        if not (first and mark and last):
            self.fail(f"expected FIRST...LAST, such as 2013-01-01...2013-03-01; found {value!r}", param, ctx)
        return first, last
