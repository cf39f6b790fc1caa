"""Damage of text files, found by reading them completely.

gzip has a checksum of the content. Plain text has none: what is found there are other numbers of rows, lines that are
no JSON objects or no records of CSV, and bytes that are no UTF-8. A changed digit is not noticed.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Final

from gobblin_assets.errors import RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import GZIP_ENDING, FileFormat

_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')


def find_text_damage(fs: FileSystem, path: str, file_format: FileFormat, *, row_count: int) -> str | None:
    """Read a text file completely, line by line. Returns the fault, or None."""
    try:
        with ExitStack() as stack:
            stored = stack.enter_context(fs.open_input(path))
            is_packed = path.endswith(GZIP_ENDING)
            lines = stack.enter_context(gzip.open(stored, "rb")) if is_packed else stored
            rows = _count_objects(lines) if file_format is FileFormat.JSON else _count_records(lines)
    except RetryableError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None if rows == row_count else f"it holds {rows} rows, and {row_count} were published"


def _count_objects(lines: Iterable[bytes]) -> int:
    rows = 0
    for rows, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") or not isinstance(json.loads(line), dict):
            raise ValueError(f"line {rows} is no whole JSON object")
    return rows


def _count_records(lines: Iterable[bytes]) -> int:
    """Records behind the header. Quotes in a value are doubled, so that an odd number of them leaves one open."""
    rows, width = -1, 0
    for rows, record in enumerate(_records(lines)):
        bare = _QUOTED.sub("", record)
        width = width or bare.count(",") + 1
        if '"' in bare or bare.count(",") + 1 != width:
            raise ValueError(f"record {rows} has not the {width} fields of the header")
    if rows < 0:
        raise ValueError("there is no header")
    return rows


def _records(lines: Iterable[bytes]) -> Iterator[str]:
    held: list[bytes] = []
    quotes = 0
    for line in lines:
        held.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            record = b"".join(held).decode("utf-8")
            if not record.endswith("\n"):
                raise ValueError("the last line has no end")
            yield record[:-1]
            held, quotes = [], 0
    if held:
        raise ValueError("a quote is not closed")
