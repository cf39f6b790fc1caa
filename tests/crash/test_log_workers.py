"""Workers that follow tables of a Postgres are killed, paused and not answered, while the tables are written to.

Tables, slot and processes are real. At the end each change is published once, and the change logs rebuild the tables.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gobblin_assets.failpoints import ArmedFailpoints, Failpoint, install
from tests.crash.points import OF_A_SINK, OF_A_SLOT
from tests.crash.test_sinks import COMMITS, OF_A_BINDING, OF_RECOVERY, SEALED
from tests.support.audited_log import AuditedLog
from tests.support.changed_tables import ShopWriting
from tests.support.log_lake import end_log_workers, open_log_lake
from tests.support.log_shop import LogShop
from tests.support.postgres import Database
from tests.support.shares import rare, rotating
from tests.support.sink_lake import count_reached
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=6)

ALWAYS_KILLED = (
    (Failpoint.SLOT_MADE, 1),
    (Failpoint.COPY_READ, 2),
    # Published, and the slot is not confirmed.
    (Failpoint.FINISH_COMMITTED, 5),
)
OFTEN_KILLED = (
    # The rows of the first copy come, and no more of them.
    (Failpoint.ATTEMPT_REGISTERED, 1),
    (Failpoint.SEAL_COMMITTED, 3),
    (Failpoint.SLOT_CONFIRMED, 2),
)
ALWAYS_PAUSED = ((Failpoint.COPY_READ, 1), (Failpoint.STAGED_BEFORE_SEAL, 5), (Failpoint.FINISH_COMMITTED, 5))
ONCE = (*OF_A_BINDING, Failpoint.SLOT_MADE, Failpoint.LEASE_TAKEN)
TWICE_AT_MOST = (Failpoint.COPY_READ,)


def points_at(count: int) -> "list[tuple[Failpoint, int]]":
    """Those that a worker reaches so often."""
    rare = {**dict.fromkeys(ONCE, 1), **dict.fromkeys(TWICE_AT_MOST, 2)}
    return [(point, count) for point in (*OF_A_SINK, *OF_A_SLOT) if count <= rare.get(point, count)]


KILLS = [
    *ALWAYS_KILLED,
    *(rotating(*each) for each in OFTEN_KILLED),
    *(rare(*each) for n in (1, 2, 6) for each in points_at(n) if each not in (*ALWAYS_KILLED, *OFTEN_KILLED)),
]
PAUSES = [*ALWAYS_PAUSED, *(rare(*each) for n in (1, 5) for each in points_at(n) if each not in ALWAYS_PAUSED)]
ALWAYS_RECOVERED = (
    (Failpoint.SEAL_COMMITTED, Failpoint.RECOVERY_STARTED),
    (Failpoint.STEP_AFTER, Failpoint.VERIFIED_BEFORE_FINISH),
)
RECOVERIES = [
    *ALWAYS_RECOVERED,
    *(rare(*each) for each in product(SEALED, OF_RECOVERY) if each not in ALWAYS_RECOVERED),
]
UNANSWERED = [Failpoint.FINISH_COMMITTED, *(rare(each) for each in COMMITS if each in OF_A_SINK)]


@pytest.fixture
def shop(
    tmp_path: Path, source_database: Database, engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LogShop]:
    with open_log_lake(tmp_path, source_database, engine, monkeypatch) as tables:
        audited = AuditedLog(source_database)
        with ShopWriting(source_database, seed=1, writers=1) as writing:
            yield LogShop(tables, database_url, audited, writing)


@pytest.fixture
def big_shop(shop: LogShop) -> LogShop:
    """Its orders are copied in ranges, and nobody writes yet: writers delete from the first range on."""
    shop.tables.source = {"copy_rows": 50}
    shop.writing.stop()
    shop.tables.do("DELETE FROM orders WHERE id > 1000", "DELETE FROM notes WHERE id > 1000", "ANALYZE orders")
    shop.writing = ShopWriting(shop.tables.database, seed=2, writers=1)
    return shop


@pytest.mark.every_run
def test_every_point_that_a_worker_of_a_slot_reaches_is_killed_here(shop: LogShop) -> None:
    seen: set[Failpoint] = set()
    expected = {*OF_A_SINK, *OF_A_SLOT}

    with install(seen.add):
        with shop.tables.working():
            wait_until(lambda: seen >= expected, "all points are reached")
        shop.check_exactly_once()

    assert seen == expected


@pytest.mark.every_run
@pytest.mark.parametrize(("point", "count"), KILLS, ids=str)
def test_a_worker_killed_anywhere_is_gone_on_with_by_another(shop: LogShop, point: Failpoint, count: int) -> None:
    shop.kill_at(point, count)

    shop.check_exactly_once()


@pytest.mark.parametrize(("point", "count"), PAUSES, ids=str)
def test_a_zombie_that_wakes_up_changes_nothing(shop: LogShop, point: Failpoint, count: int) -> None:
    """Its walsender is ended by whoever takes over: a slot has one reader."""
    zombie = shop.pause_at(point, count)
    shop.check_exactly_once()
    before = shop.positions(), shop.list_published()

    end_log_workers(shop.tables)
    zombie.wake_up()
    assert zombie.wait() == 0, "the zombie crashed instead of giving up"

    assert (shop.positions(), shop.list_published()) == before
    shop.check_exactly_once()


@pytest.mark.parametrize(("point", "count"), [(Failpoint.STAGED_BEFORE_SEAL, 5), *(rare(each, 5) for each in SEALED)])
def test_a_zombie_that_wakes_up_while_its_successor_reads_the_slot_changes_nothing(
    shop: LogShop, point: Failpoint, count: int
) -> None:
    zombie = shop.pause_at(point, count)
    with shop.tables.working():
        at = shop.positions()
        wait_until(lambda: all(now > at[table] for table, now in shop.positions().items()), "the successor goes on")
        zombie.wake_up()
        end_log_workers(shop.tables)
        assert zombie.wait() == 0, "the zombie crashed instead of giving up"

    shop.check_exactly_once()


@pytest.mark.parametrize("point", UNANSWERED, ids=str)
def test_a_worker_that_is_not_answered_goes_on_by_the_log(shop: LogShop, point: Failpoint) -> None:
    log = str(shop.tables.folder / "failpoints.log")
    with install(ArmedFailpoints(f"{point}=lose", log)), shop.tables.working():
        wait_until(lambda: count_reached(log) > 0, f"{point} is reached")

    shop.check_exactly_once()


@pytest.mark.parametrize(("first", "second"), RECOVERIES, ids=str)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    shop: LogShop, first: Failpoint, second: Failpoint
) -> None:
    shop.kill_at(first, 5)
    shop.kill_at(second)

    shop.check_exactly_once()


def test_a_killed_copy_goes_on_at_the_next_range(big_shop: LogShop) -> None:
    """Behind the kill, one range is copied again at most, and what is published of the others stays."""
    tables = big_shop.tables
    big_shop.kill_at(Failpoint.COPY_READ, 4)
    kept = set(tables.paths_of("orders"))
    # While nobody works, rows move between what is copied and what is not.
    tables.do("UPDATE orders SET id = -id WHERE id % 60 = 1", "DELETE FROM orders WHERE id % 60 = 2")
    assert tables.published_to("orders") == len(kept) == 3
    with big_shop.writing:
        big_shop.kill_at(Failpoint.COPY_READ, 2)
        assert tables.published_to("orders") == 4
        assert kept < set(tables.paths_of("orders"))
        big_shop.check_exactly_once()
    assert kept < set(tables.paths_of("orders"))
    assert "t" not in tables.log_of("orders")["_op"].to_pylist()
