"""A publication of a sink into a table of Postgres, beside a plain COPY of the same rows as ready text."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.sink_world import bound_at_least
from benchmarks.staged_orders import FILES, carry_out_load, stage_orders, time_load
from benchmarks.tables import Options, Samples, Table, in_turns
from benchmarks.world import World
from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.destinations.lane_marks import MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.postgres.copy_text import write_copy_text
from gobblin_assets.destinations.postgres.database_address import variable_of
from gobblin_assets.destinations.postgres.tables_place import LOAD_TABLE, LoadTable
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.model.files import DataFile

ROWS, ROWS_QUICK = 2_000_000, 300_000
SHARE_MIN: Final = 0.8

_NAME: Final = "bench"
_LOADED: Final = LoadedTable("public", "loaded")
_OURS, _PLAIN = "the sink's load of staged files", "a plain COPY of ready text"
_OURS_CPU, _PLAIN_CPU = "processor time of the load", "processor time of the COPY"


def measure(world: World, options: Options) -> list[Table]:
    rows = ROWS_QUICK if options.quick else ROWS
    samples = Samples()
    os.environ.update({
        variable_of(_NAME, "URL"): world.connection.url,
        variable_of(_NAME, "USER"): world.server.user,
        variable_of(_NAME, "PASSWORD"): world.server.password(),
    })  # fmt: skip
    files, batches = stage_orders(world.home, rows)
    texts = [write_copy_text(batch) for batch in batches]
    loads = _Loads(files, rows)
    # The first publication makes the table, of which the plain one is a copy.
    loads.load()
    with world.open_source() as session:
        session.execute("CREATE TABLE plain (LIKE loaded)")
    calls: dict[str, tuple[Callable[[], None], str]] = {
        _OURS: (loads.load, _OURS_CPU),
        _PLAIN: (lambda: _copy(world, texts), _PLAIN_CPU),
    }
    for name in in_turns(list(calls), options.runs):
        call, of_cpu = calls[name]
        with _emptied(world):
            time_load(samples, name, of_cpu, call)
    return [_describe(samples, rows)]


@contextmanager
def _emptied(world: World) -> Iterator[None]:
    with world.open_source() as session:
        session.execute("TRUNCATE loaded, plain")
        session.execute("CHECKPOINT")
    yield


class _Loads:
    """Publications of one lane, one after the other, each as the executor carries it out."""

    def __init__(self, files: tuple[DataFile, ...], rows: int) -> None:
        self._files, self._rows = files, rows
        self._version = 0
        get_kind(LOAD_TABLE)

    def load(self) -> None:
        self._version += 1
        batch = TableBatch(
            _LOADED,
            MarkPlace("public", _NAME, _NAME, "orders", 0),
            self._version,
            str(uuid.uuid4()),
            self._rows,
        )
        step = LoadTable(_NAME, batch, self._files)
        carry_out_load(step, Path(self._files[0].name).parent)


def _copy(world: World, texts: list[bytes]) -> None:
    with world.open_source() as session, session.cursor() as cursor, cursor.copy("COPY plain FROM STDIN") as copy:
        for text in texts:
            copy.write(text)


def _describe(samples: Samples, rows: int) -> Table:
    share = samples.median(_PLAIN) / samples.median(_OURS)
    figures = [
        samples.row(name, f"{rows / samples.median(name):,.0f}") for name in (_OURS, _PLAIN, _OURS_CPU, _PLAIN_CPU)
    ]
    return Table(
        "A sink's load into a table of Postgres",
        ("", "median", "min", "max", "rows/s"),
        tuple(figures),
        (
            f"{rows:,} rows of 7 columns in {FILES} staged Parquet files, into an empty table without indexes.",
            "The load verifies, reads the files, writes text, copies, moves the lane's mark, commits, and verifies.",
            "The plain COPY is given text that is ready, by psycopg. Processor time is that of the client.",
            bound_at_least("speed of the plain COPY", share, SHARE_MIN),
        ),
    )
