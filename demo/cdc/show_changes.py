"""Print the last changes of one of the shop's tables, in the order of the server's log. No server is needed."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from demo.cdc.places import JOB, LAKE
from demo.cdc.shop_database import TABLES
from demo.stage import console, list_visible

CHANGES: Final = 20

_LENGTH_MAX: Final = 20


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
    for row in log.to_pylist():
        lsn = f"{row['_lsn'] >> 32:X}/{row['_lsn'] & 0xFFFFFFFF:X}"
        values = [f"{name}={_shorten(value)}" for name, value in row.items() if name[0] != "_" and value is not None]
        unsent = f"  unchanged: {', '.join(row['_unchanged'])}" if row["_unchanged"] else ""
        transaction = "" if row["_xid"] is None else f"transaction {row['_xid']}"
        console.print(
            f"{lsn:>10} {row['_seq']:3}  {row['_commit_at']:%H:%M:%S.%f}  {transaction}  "
            f"[bold]{row['_op']}[/bold]  {' '.join(values)}{unsent}"
        )


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LENGTH_MAX else f"{text[: _LENGTH_MAX - 1]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
