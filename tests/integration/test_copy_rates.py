"""Copies below a rate that several drivers share: shares in the log, waits, lost shares, and killed drivers."""

import threading
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.rates import SharedCopyRate
from gobblin_assets.jobs.copy.transfer.transfer_port import Rate
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.state.postgres import PostgresRateShareStore
from gobblin_assets.state.rate_shares import SharedRate
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, look_at
from tests.support.copying import TAG, divide, file_items, fill, order_of
from tests.support.spark import wait_until

lake = copy_lake.lake
job = copy_lake.job

RATE = SharedRate("nightly", 10_000, 100, 2)
OF_A_SHARE = Rate(5_000, 50)
TTL_S = 60.0


@dataclass
class Driver:
    """One driver's part of the rate."""

    engine: Engine
    said: list[str] = field(default_factory=list)
    ttl_s: float = TTL_S

    def __post_init__(self) -> None:
        self.store = PostgresRateShareStore(self.engine)
        self.rate = SharedCopyRate(self.store, RATE, SystemClock(), self.said.append, ttl_s=self.ttl_s)


def unheard() -> None:
    raise AssertionError("the share was lost")


def test_a_copy_that_finds_no_share_waits_until_one_is_given_back(engine: Engine) -> None:
    first, second = Driver(engine), Driver(engine)
    entered, leave = threading.Event(), threading.Event()
    found: list[Rate] = []

    def copy() -> None:
        with second.rate.share("third", unheard) as rate:
            found.append(rate)
            entered.set()
            leave.wait()

    with first.rate.share("one", unheard) as rate, first.rate.share("two", unheard):
        assert rate == OF_A_SHARE
        waiting = threading.Thread(target=copy)
        waiting.start()
        wait_until(lambda: bool(second.said), "the third copy waits")
        assert not entered.is_set()
    assert entered.wait(60)
    leave.set()
    waiting.join()
    assert found == [OF_A_SHARE]
    assert second.said == ["waits for one of the 2 shares of the rate nightly"]
    assert shares_of(engine) == 0


def shares_of(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(text("SELECT count(*) FROM gobblin.rate_share")).scalar_one())


def test_a_killed_driver_s_share_comes_back_when_its_lease_ends(engine: Engine) -> None:
    driver = Driver(engine)
    for _ in range(RATE.shares):
        assert driver.store.take(RATE, uuid.uuid4(), ttl_s=0.5)
    with driver.rate.share("next", unheard) as rate:
        assert rate == OF_A_SHARE


def test_a_wait_is_cancelled_by_its_tag(engine: Engine) -> None:
    driver = Driver(engine)
    for _ in range(RATE.shares):
        assert driver.store.take(RATE, uuid.uuid4(), ttl_s=TTL_S)
    driver.rate.cancel("a copy")
    with pytest.raises(RetryableError, match="cancelled"), driver.rate.share("a copy", unheard):
        pass


def test_a_copy_that_lost_its_share_is_stopped(engine: Engine, tmp_path: Path) -> None:
    """Someone else's clock went on while this process slept: its row is another's by now."""
    root = tmp_path / "source"
    fill(root / "slow", bytes(3 << 20))
    driver = Driver(engine, ttl_s=0.4)
    order = order_of(root, tmp_path / "attempt", divide(file_items(root), 1))
    transfer = LocalTransfer()

    def copy() -> None:
        with driver.rate.share(TAG, lambda: transfer.cancel(TAG)) as rate:
            with engine.begin() as connection:
                connection.execute(text("UPDATE gobblin.rate_share SET holder = :other"), {"other": uuid.uuid4()})
            list(transfer.copy(replace(order, rate=rate)))

    with pytest.raises(RetryableError, match="the share of the rate nightly was lost"):
        copy()


def test_a_log_that_refuses_the_renewal_stops_the_copy_too(engine: Engine, tmp_path: Path) -> None:
    """And that the share can't be given back is said, not raised."""
    root = tmp_path / "source"
    fill(root / "slow", bytes(3 << 20))
    driver = Driver(engine, ttl_s=0.4)
    order = order_of(root, tmp_path / "attempt", divide(file_items(root), 1))
    transfer = LocalTransfer()

    def copy() -> None:
        with driver.rate.share(TAG, lambda: transfer.cancel(TAG)) as rate:
            with engine.begin() as connection:
                connection.execute(text("ALTER TABLE gobblin.rate_share RENAME TO rate_share_away"))
            list(transfer.copy(replace(order, rate=rate)))

    with pytest.raises(RetryableError, match="the share of the rate nightly was lost"):
        copy()
    assert "could not be given back" in driver.said[-1]


def test_a_share_that_is_renewed_meanwhile_is_not_taken(engine: Engine) -> None:
    store, rate, holder = PostgresRateShareStore(engine), replace(RATE, shares=1), uuid.uuid4()
    assert store.take(rate, holder, ttl_s=0.01)
    taken: list[bool] = []
    taking = threading.Thread(target=lambda: taken.append(store.take(rate, uuid.uuid4(), ttl_s=TTL_S)))
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with (
        engine.connect() as renewing,
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as looking,
        renewing.begin() as transaction,
    ):
        wait_until(
            lambda: renewing.execute(
                text("SELECT bool_and(expires_at < clock_timestamp()) FROM gobblin.rate_share")
            ).scalar_one(),
            "it has run out",
        )
        renewing.execute(text("UPDATE gobblin.rate_share SET expires_at = clock_timestamp() + interval '60 s'"))
        taking.start()
        wait_until(lambda: looking.execute(text(waiting)).scalar_one() == 1, "the other waits for its row")
        transaction.commit()
    taking.join()
    assert taken == [False]
    assert store.renew(rate, holder, ttl_s=TTL_S)


def test_a_job_with_a_rate_copies_all_and_leaves_no_share(lake: CopyLake, job: Open) -> None:
    world = job({"rate": {"name": "nightly", "bytes_per_s": 1e9, "files_per_s": 20}, "parallelism": 2})
    report = world.run()
    assert not report.failed
    assert look_at(lake.tree) == look_at(lake.source)
    assert shares_of(world.engine) == 0


@pytest.mark.parametrize(
    ("rate", "field_name"),
    [
        ({"name": "n"}, "rate"),
        ({"name": "", "bytes_per_s": 1}, "rate.name"),
        ({"name": "n", "bytes_per_s": 0}, "rate.bytes_per_s"),
        ({"name": "n", "bytes_per_s": 1, "shares": 0}, "rate.shares"),
        ({"bytes_per_s": 1}, "rate.name"),
    ],
)
def test_a_rate_that_can_not_be_kept_is_refused(rate: dict[str, Any], field_name: str) -> None:
    with pytest.raises(RejectedError) as error:
        read_copy({"job": "m", "kind": "distcp", "source": "/a", "destination": "/b", "rate": rate})
    assert error.value.field == field_name
