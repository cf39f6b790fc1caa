"""One publication, two processes that load it, at real servers: whatever stops one of them, rows are there once.

One process is interrupted at a point of its load: it dies, it gets no answer, another one loads at that moment, another
lane loads, or a person gives the publication up at that moment. Then snapshots may expire, and a third one goes on, as
a recovery does. The suite notices each rule that is left out. Each place of rows has its own points, ways and mutants.
"""

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from sqlalchemy import Engine, event

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.lane_marks import MarkPlace, decide_load
from gobblin_assets.destinations.load_rows import LoadRows
from gobblin_assets.destinations.rows_place import PlannedLoad
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint, install, reach
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import DatasetUrn
from tests.contracts import append_mutants, load_mutants, topic_load_mutants
from tests.support.iceberg_rows import SCHEMA, IcebergRows
from tests.support.rows_places import ICEBERG, KAFKA, POSTGRES, SQLITE, make_place
from tests.support.shares import often, rotating
from tests.support.tried_place import TriedPlace

ORDERS: Final = "orders"
URN: Final = DatasetUrn("orders")
ROW_COUNT: Final = 3
OTHER_LANES: Final = 1000

IN_COMMIT: Final = "in the commit"
"""pyiceberg has compared the snapshot, and has not told the catalog."""

DIES, EXPIRES, UNANSWERED = "dies", "dies, and snapshots expire", "is not answered"
OVERTAKEN, MEETS, GIVEN_UP = "is overtaken", "meets another lane", "is given up"
STEP_BEFORE, COPIED = Failpoint.STEP_BEFORE, Failpoint.LOAD_COPIED
BEFORE_COMMIT, COMMITTED = Failpoint.LOAD_BEFORE_COMMIT, Failpoint.LOAD_COMMITTED

Interruption = tuple[str, str]

INTERRUPTIONS: Final[dict[str, Sequence[Interruption]]] = {
    # In a transaction of SQLite, others wait for the file, which a process of the same thread can't give back.
    SQLITE: (
        *itertools.product((STEP_BEFORE, COMMITTED), (DIES, UNANSWERED, OVERTAKEN, GIVEN_UP)),
        *itertools.product((COPIED, BEFORE_COMMIT), (DIES, UNANSWERED)),
    ),
    # Behind the mark, others wait for the transaction in the same way.
    POSTGRES: (
        *itertools.product((COPIED, COMMITTED), (DIES, UNANSWERED, OVERTAKEN, GIVEN_UP)),
        *itertools.product((BEFORE_COMMIT,), (DIES, UNANSWERED)),
    ),
    ICEBERG: (
        *itertools.product(
            (COPIED, BEFORE_COMMIT, IN_COMMIT, COMMITTED), (DIES, UNANSWERED, OVERTAKEN, MEETS, GIVEN_UP)
        ),
        (COMMITTED, EXPIRES),
    ),
    # Each rule that is left out shows in one of these.
    KAFKA: (
        (STEP_BEFORE, OVERTAKEN),
        (COPIED, OVERTAKEN),
        (COPIED, GIVEN_UP),
        (BEFORE_COMMIT, DIES),
        (COMMITTED, GIVEN_UP),
    ),
}
MORE_OF_TOPICS: Final = (
    (STEP_BEFORE, GIVEN_UP),
    (COPIED, DIES),
    (COPIED, UNANSWERED),
    (BEFORE_COMMIT, UNANSWERED),
    (BEFORE_COMMIT, OVERTAKEN),
    (BEFORE_COMMIT, GIVEN_UP),
    (COMMITTED, DIES),
    (COMMITTED, UNANSWERED),
    (COMMITTED, OVERTAKEN),
)


class DiedError(BaseException):
    """The process is gone."""


class Publication:
    """A publication of a lane of its own. ``kind``: the class by which it is loaded; None: the product's."""

    def __init__(self, place: TriedPlace, kind: Any, lane: int) -> None:
        self.place, self.kind, self.lane = place, kind, lane
        self.rows = pa.record_batch([pa.array([lane] * ROW_COUNT)], names=["lane"])
        opened = place.open({URN: ORDERS}, "lane")
        files = (DataFile("staged", FileIdentity(100), ROW_COUNT),)
        mark = MarkPlace(opened.marks, "root", JOB, ORDERS, lane)
        step = opened.make_step(URN, PlannedLoad(mark, 1, str(uuid.uuid4()), files))
        assert isinstance(step, LoadRows)
        self.batch = step.batch
        self.is_given_up = False

    def load(self) -> StepVerdict:
        """As the executor does it: look, do, look again. What it raises ends the process's try."""
        with contextlib.closing(self.place.connect(self.kind)) as marked:
            try:
                if self._ask(marked) is StepVerdict.DO:
                    marked.prepare(self.batch, self.rows.schema)
                    reach(STEP_BEFORE)
                    marked.load(self.batch, [self.rows])
                return self._ask(marked)
            except (GobblinError, OSError):
                return self._ask(marked)

    def _ask(self, marked: Any) -> StepVerdict:
        return decide_load(marked.find_mark(self.batch.mark), self.batch.version, self.batch.sequence_id)

    def give_up(self) -> None:
        with contextlib.closing(self.place.connect(self.kind)) as marked:
            self.is_given_up = marked.give_up(self.batch)

    def meet(self) -> None:
        """Somebody else's publication is loaded."""
        assert Publication(self.place, None, OTHER_LANES + self.lane).load() is StepVerdict.DONE

    def expire(self) -> None:
        """Of all snapshots, only the newest one stays."""
        self.meet()
        assert isinstance(self.place, IcebergRows)
        with contextlib.closing(self.place.connect()) as tables:
            table = tables._open().load_table((SCHEMA, ORDERS))
            newest = table.current_snapshot()
            assert newest is not None
            old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest.snapshot_id]
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def count(self) -> int:
        return self.place.read(ORDERS, ("lane",)).count((self.lane,))


JOB: Final = f"job-{uuid.uuid4().hex[:8]}"
"""Of this process: brokers know lanes by it."""


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
    if way == EXPIRES:
        publication.expire()
    if not publication.is_given_up:
        verdict = publication.load()
        if verdict is not StepVerdict.DONE:
            return f"{point}, {way}: the recovery ends with {verdict}"
    expected = 0 if publication.is_given_up else ROW_COUNT
    found = publication.count()
    return None if found == expected else f"{point}, {way}: {found} rows instead of {expected}"


def list_faults(place: TriedPlace, kind: Any, interruptions: Iterable[Interruption]) -> Iterator[str]:
    for lane, (point, way) in enumerate(interruptions):
        fault = find_fault(Publication(place, kind, lane), point, way)
        if fault is not None:
            yield fault


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TriedPlace:
    return make_place(request, request.param, tmp_path)


@pytest.mark.parametrize(
    ("place", "interruptions"),
    [*((each, INTERRUPTIONS[each]) for each in (SQLITE, POSTGRES, ICEBERG)), often(KAFKA, INTERRUPTIONS[KAFKA])],
    ids=[SQLITE, POSTGRES, ICEBERG, KAFKA],
    indirect=["place"],
)
def test_rows_are_there_once_whatever_stops_a_load(place: TriedPlace, interruptions: Sequence[Interruption]) -> None:
    assert list(list_faults(place, None, interruptions)) == []


@pytest.mark.parametrize(
    ("place", "point", "way"), [rotating(KAFKA, *each) for each in MORE_OF_TOPICS], ids=str, indirect=["place"]
)
def test_rows_are_there_once_at_further_points(place: TriedPlace, point: str, way: str) -> None:
    assert find_fault(Publication(place, None, 0), point, way) is None


@pytest.mark.parametrize(
    ("place", "mutant", "interruptions"),
    [
        *(
            (POSTGRES, mutant, INTERRUPTIONS[POSTGRES])
            for mutant in (
                load_mutants.MarkApart,
                load_mutants.LooksAndThenInserts,
                load_mutants.NeverLooks,
                load_mutants.ComparesVersionsOnly,
                load_mutants.GivesUpByTheLogAlone,
                load_mutants.LoadsAgainWithoutAnAnswer,
            )
        ),
        *(
            rotating(ICEBERG, mutant, (interruption,))
            for mutant, *interruption in (
                (append_mutants.RepeatedByPyiceberg, BEFORE_COMMIT, OVERTAKEN),
                (append_mutants.RepeatedByPyiceberg, BEFORE_COMMIT, GIVEN_UP),
                (append_mutants.MarkApart, BEFORE_COMMIT, DIES),
                (append_mutants.LooksOnce, IN_COMMIT, OVERTAKEN),
                (append_mutants.MarkInSnapshot, COMMITTED, EXPIRES),
                (append_mutants.NeverLooks, COMMITTED, DIES),
                (append_mutants.GivesUpByTheLogAlone, COPIED, GIVEN_UP),
                (append_mutants.GivesUpWithoutALook, COMMITTED, GIVEN_UP),
                (append_mutants.GivesUpByAPropertyAlone, BEFORE_COMMIT, GIVEN_UP),
            )
        ),
        *(
            rotating(KAFKA, mutant, INTERRUPTIONS[KAFKA])
            for mutant in (
                topic_load_mutants.LooksBeforeInit,
                topic_load_mutants.MarkInAnotherTransaction,
                topic_load_mutants.ReadsUncommitted,
                topic_load_mutants.GivesUpWithoutALook,
                topic_load_mutants.GivesUpByTheLogAlone,
                topic_load_mutants.FencesNobodyOff,
            )
        ),
    ],
    indirect=["place"],
)
def test_a_rule_that_is_left_out_is_missed(
    place: TriedPlace, mutant: Any, interruptions: Sequence[Interruption]
) -> None:
    assert next(list_faults(place, mutant, interruptions), None) is not None
