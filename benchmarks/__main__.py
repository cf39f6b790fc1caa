"""``python -m benchmarks [--quick] [--runs N] [--only NAME] [--write FILE]``: measure, and print the tables."""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.document import Conditions, write_document
from benchmarks.machine import load_average
from benchmarks.measures import LONG_MEASURES, MEASURES, measure_one
from benchmarks.tables import Options, Table

RUNS = 5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print the tables.")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not for figures")
    parser.add_argument("--runs", type=int, default=RUNS, help="how often everything is measured (default %(default)s)")
    parser.add_argument(
        "--only", action="append", choices=sorted(MEASURES | LONG_MEASURES), help="may be given several times"
    )
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put the tables there too, in place of those of the same titles"
    )
    given = parser.parse_args()
    if given.runs < 1:
        parser.error(f"--runs: expected 1 or more, found {given.runs}")
    before = load_average()
    options = Options(runs=given.runs, quick=given.quick)
    tables: list[Table] = []
    for name in given.only or MEASURES:
        sys.stderr.write(f"measuring {name} …\n")
        # In a process of its own: PySpark allows one kind of session in each.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            found = pool.submit(measure_one, name, options).result()
        # Each measure gives the machine's facts first; they are shown once.
        new = found[1:] if tables else found
        tables += new
        for table in new:
            print(table.write(), flush=True)
    if given.write is not None:
        conditions = Conditions(runs=given.runs, before=before, after=load_average())
        write_document(given.write, tables, conditions, whole=given.only is None)
        sys.stderr.write(
            f"{given.write}: a person compares the first table and the laboratory book with the new tables\n"
        )


if __name__ == "__main__":
    main()
