"""Print the last changes of one of the shop's tables, in the order of the server's log. No server is needed."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from demo.cdc.places import JOB, LAKE
from demo.cdc.shop_database import TABLES
from demo.stage import console, list_visible

CHANGES: Final = 20

_WIDTH_MAX: Final = 20
# In front: where the change stands, and what it is.
_FIRST: Final = ("_lsn", "_seq", "_xid", "_commit_at", "_op")
_LAST: Final = ("_unchanged", "_copy")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.cdc.show_changes", description=__doc__)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--count", type=int, default=CHANGES, help="so many (default: %(default)s)")
    given = parser.parse_args(arguments)
    paths = sorted(list_visible(LAKE / JOB / "data" / f"public.{given.table}"))
    if not paths:
        parser.error("nothing is published: run make demo-cdc first")
    # Columns come and go with the table's: each file has those of its time.
    log = pa.concat_tables([pq.ParquetFile(path).read() for path in paths], promote_options="permissive")
    ordered = log.sort_by([("_copy", "ascending"), ("_lsn", "ascending"), ("_seq", "ascending")])
    show(ordered.slice(max(0, len(ordered) - given.count)))
    return 0


def show(log: pa.Table) -> None:
    names = [*_FIRST, *(name for name in log.column_names if not name.startswith("_")), *_LAST]
    table = Table(*names)
    for row in log.to_pylist():
        table.add_row(*(_write(name, row[name]) for name in names))
    console.print(table)


def _write(name: str, value: object) -> str:
    if isinstance(value, int) and name == "_lsn":
        return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"
    text = "" if value is None else str(value)
    return text if len(text) <= _WIDTH_MAX or name == "_commit_at" else f"{text[: _WIDTH_MAX - 1]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
