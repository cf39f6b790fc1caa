"""One publication, two processes that append it to a table of Iceberg: whatever stops one of them, rows are there once.

One process is interrupted at a point of its load: it dies, it gets no answer, another one loads at that moment, another
lane appends, or a person gives the publication up at that moment. Then snapshots may expire, and a third one goes on,
as a recovery does. The suite notices each rule that is left out. The catalog is a real Postgres.
"""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.iceberg.catalog_address import CatalogAddress, read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.lane_marks import MarkPlace, decide_load
from gobblin_assets.destinations.table_loads import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install
from tests.contracts import append_mutants as mutants
from tests.support.iceberg_rows import CATALOG, iceberg_variables, list_data_files
from tests.support.postgres import Database
from tests.support.s3_servers import S3Server

TABLE = LoadedTable("shop", "orders")
ROW_COUNT = 3
IN_COMMIT = "in the commit"
"""pyiceberg has compared the snapshot, and has not told the catalog."""

POINTS = (Failpoint.LOAD_COPIED, Failpoint.LOAD_BEFORE_COMMIT, IN_COMMIT, Failpoint.LOAD_COMMITTED)
WAYS = ("dies", "dies, and snapshots expire", "is not answered", "is overtaken", "meets another lane", "is given up")
POSSIBLE = [
    (point, way)
    for point, way in itertools.product(POINTS, WAYS)
    if point == Failpoint.LOAD_COMMITTED or "expire" not in way
]
OTHER_LANES = 1000


class DiedError(BaseException):
    """The process is gone."""


@pytest.fixture
def address(fresh_database: Database, tmp_path: Path) -> CatalogAddress:
    return read_catalog_address(CATALOG, iceberg_variables(fresh_database, f"file://{tmp_path}"))


class Publication:
    """A publication of a lane of its own. ``kind``: how it is loaded."""

    def __init__(self, address: CatalogAddress, kind: type[IcebergTables], lane: int) -> None:
        self.address, self.kind, self.lane = address, kind, lane
        self.rows = pa.record_batch([pa.array([lane] * ROW_COUNT)], names=["lane"])
        place = MarkPlace(str(TABLE), "root", "job", "orders", lane)
        self.batch = TableBatch(TABLE, place, 1, str(uuid.uuid4()), ROW_COUNT)
        self.is_given_up = False

    def load(self) -> StepVerdict:
        """As the executor does it: look, do, look again. What it raises ends the process's try."""
        with contextlib.closing(self.kind(self.address)) as tables:
            try:
                if self._ask(tables) is StepVerdict.DO:
                    tables.prepare(self.batch, self.rows.schema)
                    tables.load(self.batch, [self.rows])
                return self._ask(tables)
            except (GobblinError, OSError):
                return self._ask(tables)

    def _ask(self, tables: IcebergTables) -> StepVerdict:
        return decide_load(tables.find_mark(self.batch.mark), self.batch.version, self.batch.sequence_id)

    def give_up(self) -> None:
        with contextlib.closing(self.kind(self.address)) as tables:
            self.is_given_up = tables.give_up(self.batch)

    def meet(self) -> None:
        """Somebody else's publication is loaded."""
        assert Publication(self.address, IcebergTables, OTHER_LANES + self.lane).load() is StepVerdict.DONE

    def expire(self) -> None:
        """Of all snapshots, only the newest one stays."""
        self.meet()
        with contextlib.closing(IcebergTables(self.address)) as tables:
            table = tables._open().load_table((TABLE.schema, TABLE.table))
            newest = table.current_snapshot()
            assert newest is not None
            old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest.snapshot_id]
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def count(self) -> int:
        with contextlib.closing(IcebergTables(self.address)) as tables:
            found = tables._find(TABLE)
            return 0 if found is None else found.scan(f"lane = {self.lane}").count()


def interrupt(publication: Publication, way: str) -> Callable[[], None]:
    """What happens once, at the first time that the point is reached."""
    left = [way]

    def act() -> None:
        if not left:
            return
        match left.pop():
            case "is not answered":
                raise AcknowledgementLost("no answer")
            case "is overtaken":
                publication.load()
            case "meets another lane":
                publication.meet()
            case "is given up":
                publication.give_up()
            case _:
                raise DiedError

    return act


@contextlib.contextmanager
def acting_at(point: str, act: Callable[[], None]) -> Iterator[None]:
    def look(reached: Failpoint) -> None:
        if reached == point:
            act()

    def look_at_statement(_connection: object, _cursor: object, statement: str, *_others: object) -> None:
        if point == IN_COMMIT and statement.startswith("UPDATE iceberg_tables"):
            act()

    event.listen(Engine, "before_cursor_execute", look_at_statement)
    try:
        with install(look):
            yield
    finally:
        event.remove(Engine, "before_cursor_execute", look_at_statement)


def find_fault(publication: Publication, point: str, way: str) -> str | None:
    with acting_at(point, interrupt(publication, way)), contextlib.suppress(DiedError):
        publication.load()
    if "expire" in way:
        publication.expire()
    if not publication.is_given_up:
        verdict = publication.load()
        if verdict is not StepVerdict.DONE:
            return f"{point}, {way}: the recovery ends with {verdict}"
    expected = 0 if publication.is_given_up else ROW_COUNT
    found = publication.count()
    return None if found == expected else f"{point}, {way}: {found} rows instead of {expected}"


def test_rows_are_there_once_whatever_stops_a_load(address: CatalogAddress) -> None:
    faults = [
        find_fault(Publication(address, IcebergTables, lane), point, way) for lane, (point, way) in enumerate(POSSIBLE)
    ]

    assert [each for each in faults if each is not None] == []


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("mutant", "point", "way"),
    [
        (mutants.RepeatedByPyiceberg, Failpoint.LOAD_BEFORE_COMMIT, "is overtaken"),
        (mutants.RepeatedByPyiceberg, Failpoint.LOAD_BEFORE_COMMIT, "is given up"),
        (mutants.MarkApart, Failpoint.LOAD_BEFORE_COMMIT, "dies"),
        (mutants.LooksOnce, IN_COMMIT, "is overtaken"),
        (mutants.MarkInSnapshot, Failpoint.LOAD_COMMITTED, "dies, and snapshots expire"),
        (mutants.NeverLooks, Failpoint.LOAD_COMMITTED, "dies"),
        (mutants.GivesUpByTheLogAlone, Failpoint.LOAD_COPIED, "is given up"),
        (mutants.GivesUpWithoutALook, Failpoint.LOAD_COMMITTED, "is given up"),
        (mutants.GivesUpByAPropertyAlone, Failpoint.LOAD_BEFORE_COMMIT, "is given up"),
    ],
)
def test_a_rule_that_is_left_out_is_missed(
    address: CatalogAddress, mutant: type[IcebergTables], point: str, way: str
) -> None:
    assert find_fault(Publication(address, mutant, 0), point, way) is not None


@pytest.mark.parametrize("way", ["is overtaken", "meets another lane", "is given up"])
def test_the_first_snapshot_of_a_table_conflicts_too(address: CatalogAddress, way: str) -> None:
    assert find_fault(Publication(address, IcebergTables, 0), Failpoint.LOAD_BEFORE_COMMIT, way) is None


@pytest.mark.parametrize("way", ["dies", "is overtaken", "meets another lane", "is given up"])
def test_a_warehouse_in_a_store_makes_no_difference(
    fresh_database: Database,
    moto: S3Server,
    way: str,
) -> None:
    variables = iceberg_variables(fresh_database, f"s3://{moto.make_bucket()}/tables")
    publication = Publication(read_catalog_address(CATALOG, {**variables, **moto.environment}), IcebergTables, 0)

    assert find_fault(publication, IN_COMMIT, way) is None


def test_what_was_surely_refused_leaves_no_data_files(address: CatalogAddress) -> None:
    publication = Publication(address, IcebergTables, 0)

    assert find_fault(publication, Failpoint.LOAD_BEFORE_COMMIT, "is overtaken") is None

    with contextlib.closing(IcebergTables(address)) as tables:
        named, standing = list_data_files(tables._find(TABLE))
    assert len(named) == 1
    assert standing == named


def test_what_is_given_up_before_there_is_a_table_stays_out(address: CatalogAddress) -> None:
    publication = Publication(address, IcebergTables, 0)

    publication.give_up()

    assert publication.is_given_up
    assert publication.load() is StepVerdict.CONFLICT
    later = Publication(address, IcebergTables, 0)
    assert later.load() is StepVerdict.DONE
    assert later.count() == ROW_COUNT
