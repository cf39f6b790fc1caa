"""One publication, two processes that load it, at a real Postgres: whatever stops one of them, rows are there once.

One process is interrupted at a point of its load: it dies, it gets no answer, another one loads at that moment, or a
person gives the publication up at that moment. Then a third one goes on, as a recovery does. The suite notices each
rule that is left out.
"""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import MarkPlace, decide_load
from gobblin_assets.destinations.postgres.database_address import DatabaseAddress, read_address
from gobblin_assets.destinations.postgres.postgres_tables import PostgresTables
from gobblin_assets.destinations.table_loads import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install
from tests.contracts import load_mutants as mutants
from tests.support.postgres import Database
from tests.support.postgres_rows import CONNECTION, variables_for

TABLE = LoadedTable("shop", "orders")
ROWS = pa.record_batch([pa.array([1, 2, 3])], names=["n"])
POINTS = (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED)
WAYS = ("dies", "is not answered", "is overtaken", "is given up")
# Behind the mark, others wait for the transaction, which a process of the same thread can't end.
POSSIBLE = [
    (point, way)
    for point, way in itertools.product(POINTS, WAYS)
    if point is not Failpoint.LOAD_BEFORE_COMMIT or way in WAYS[:2]
]


class DiedError(BaseException):
    """The process is gone."""


@pytest.fixture
def address(fresh_database: Database) -> DatabaseAddress:
    return read_address(CONNECTION, variables_for(fresh_database))


class Publication:
    """A publication of a lane of its own. ``kind``: how it is loaded."""

    def __init__(self, address: DatabaseAddress, kind: type[PostgresTables], lane: int) -> None:
        self.address, self.kind = address, kind
        place = MarkPlace("marks", "root", "job", "orders", lane)
        self.batch = TableBatch(TABLE, place, 1, str(uuid.uuid4()), ROWS.num_rows)
        self.is_given_up = False

    def load(self) -> StepVerdict:
        """As the executor does it: look, do, look again. What it raises ends the process's try."""
        tables = self.kind(self.address)
        try:
            if self._ask(tables) is StepVerdict.DO:
                tables.prepare(self.batch, ROWS.schema)
                tables.load(self.batch, [ROWS])
            return self._ask(tables)
        except (GobblinError, OSError):
            return self._ask(tables)
        finally:
            tables.close()

    def _ask(self, tables: PostgresTables) -> StepVerdict:
        return decide_load(tables.find_mark(self.batch.mark), self.batch.version, self.batch.sequence_id)

    def give_up(self) -> None:
        tables = self.kind(self.address)
        self.is_given_up = tables.give_up(self.batch)
        tables.close()


def interrupt(publication: Publication, point: Failpoint, way: str) -> Callable[[Failpoint], None]:
    """A hook that acts the first time that the point is reached."""
    left = [way]

    def act(reached: Failpoint) -> None:
        if reached is not point or not left:
            return
        match left.pop():
            case "dies":
                raise DiedError
            case "is not answered":
                raise AcknowledgementLost("no answer")
            case "is overtaken":
                publication.load()
            case _:
                publication.give_up()

    return act


def find_fault(publication: Publication, point: Failpoint, way: str, count: Callable[[], int]) -> str | None:
    before = count()
    with install(interrupt(publication, point, way)), contextlib.suppress(DiedError):
        publication.load()
    if not publication.is_given_up:
        verdict = publication.load()
        if verdict is not StepVerdict.DONE:
            return f"{point}, {way}: the recovery ends with {verdict}"
    expected = 0 if publication.is_given_up else ROWS.num_rows
    found = count() - before
    return None if found == expected else f"{point}, {way}: {found} rows instead of {expected}"


def list_faults(database: Database, address: DatabaseAddress, kind: type[PostgresTables]) -> Iterator[str]:
    def count() -> int:
        with database.connect() as session:
            exists = session.execute("SELECT to_regclass('shop.orders') IS NOT NULL").fetchone() == (True,)
            return int(str(session.execute("SELECT count(*) FROM shop.orders").fetchone()[0])) if exists else 0  # type: ignore[index]  # a count

    for lane, (point, way) in enumerate(POSSIBLE):
        fault = find_fault(Publication(address, kind, lane), point, way, count)
        if fault is not None:
            yield fault


def test_rows_are_there_once_whatever_stops_a_load(fresh_database: Database, address: DatabaseAddress) -> None:
    assert list(list_faults(fresh_database, address, PostgresTables)) == []


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.MarkApart,
        mutants.LooksAndThenInserts,
        mutants.NeverLooks,
        mutants.ComparesVersionsOnly,
        mutants.GivesUpByTheLogAlone,
        mutants.LoadsAgainWithoutAnAnswer,
    ],
)
def test_a_rule_that_is_left_out_is_missed(
    fresh_database: Database, address: DatabaseAddress, mutant: type[PostgresTables]
) -> None:
    assert next(list_faults(fresh_database, address, mutant), None) is not None
