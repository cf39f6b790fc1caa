"""Heartbeats in Postgres: the last one of each process, by the log's clock; and when a process beats."""

import datetime as dt
import uuid
from dataclasses import replace
from typing import Final

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import OutcomeUnknownError, RetryableError
from gobblin_assets.model.executor_heartbeat import HEARTBEAT_EVERY_S, ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.tickets.heartbeats import Heart, describe_executor

LOG: Final = LogId(uuid.UUID(int=1))
NOWHERE: Final = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def heartbeats(emptied_engine: Engine) -> PostgresHeartbeatStore:
    return PostgresHeartbeatStore(emptied_engine)


def make(owner: str, executor: str = "local") -> ExecutorHeartbeat:
    return describe_executor(executor, owner, LOG, 2, {"GOBBLIN_JDBC_SHOP_URL": "secret"})


def list_owners(heartbeats: PostgresHeartbeatStore) -> list[tuple[str, str]]:
    return [(each.beat.executor, each.beat.owner) for each in heartbeats.list_heartbeats()]


def age(engine: Engine, hours: int) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE gobblin.executor_heartbeat SET beaten_at = beaten_at - make_interval(hours => :hours)"),
            {"hours": hours},
        )


def test_of_each_process_the_last_heartbeat_is_kept(heartbeats: PostgresHeartbeatStore, emptied_engine: Engine) -> None:
    heartbeats.beat(make("a"))
    heartbeats.beat(make("b"))
    drained = replace(make("a"), phase=ExecutorPhase.DRAINING)
    heartbeats.beat(drained)
    assert list_owners(heartbeats) == [("local", "a"), ("local", "b")]
    assert [each.beat for each in heartbeats.list_heartbeats()] == [drained, make("b")]
    assert all(0 <= each.heard_ago_s < 60 for each in heartbeats.list_heartbeats())
    with emptied_engine.connect() as connection:
        stored = connection.execute(text("SELECT body::text FROM gobblin.executor_heartbeat")).scalars().all()
    assert not any("secret" in each for each in stored)
    assert all("jdbc.shop" in each for each in stored)


def test_after_a_day_a_process_is_forgotten_and_that_the_executor_was_there_is_not(
    heartbeats: PostgresHeartbeatStore, emptied_engine: Engine
) -> None:
    for owner, executor in (("a", "local"), ("b", "local"), ("c", "gone")):
        heartbeats.beat(make(owner, executor))
    age(emptied_engine, 25)
    heartbeats.beat(make("d"))
    assert list_owners(heartbeats) == [("gone", "c"), ("local", "d")]


def test_what_can_t_be_read_hides_no_other(
    heartbeats: PostgresHeartbeatStore, emptied_engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeats.beat(make("a"))
    with emptied_engine.begin() as connection:
        connection.execute(
            text("INSERT INTO gobblin.executor_heartbeat (executor, owner, body) VALUES ('x', 'y', '7')")
        )
    assert list_owners(heartbeats) == [("local", "a")]
    heartbeats.list_heartbeats()
    assert len([each for each in caplog.messages if "can't be read" in each]) == 1


class HandClock:
    """It is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def now(self) -> dt.datetime:
        return dt.datetime.fromtimestamp(self.now_s, dt.UTC)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def new_id(self) -> uuid.UUID:
        return uuid.uuid4()


def test_a_process_beats_when_it_is_time_when_its_phase_changes_and_when_the_log_is_there_again(
    heartbeats: PostgresHeartbeatStore, emptied_engine: Engine
) -> None:
    clock, away = HandClock(), PostgresHeartbeatStore(open_external(NOWHERE), tries=1)
    described: list[float] = []

    def describe() -> ExecutorHeartbeat:
        described.append(clock.now_s)
        return make("a")

    heart = Heart(heartbeats, describe, clock)
    for _ in range(3):
        heart.beat(ExecutorPhase.WORKING)
    clock.now_s = HEARTBEAT_EVERY_S
    heart.beat(ExecutorPhase.WORKING)
    heart.beat(ExecutorPhase.DRAINING)
    assert described == [0.0, HEARTBEAT_EVERY_S, HEARTBEAT_EVERY_S]
    clock.now_s = 2 * HEARTBEAT_EVERY_S
    heart.store = away
    age(emptied_engine, 1)
    with pytest.raises((RetryableError, OutcomeUnknownError)):
        heart.beat(ExecutorPhase.DRAINING)
    heart.store = heartbeats
    heart.beat(ExecutorPhase.DRAINING)
    assert len(described) == 5
    (heard,) = heartbeats.list_heartbeats()
    assert heard.heard_ago_s < 60
