"""Drains of a log in Postgres: nobody claims meanwhile, whatever its release, and nobody of another release behind."""

import threading
import uuid
from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.model.job_ticket import SentTicket, TicketId, TicketVerb
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.log_drains import PostgresLogDrainStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from gobblin_assets.state.tickets import Claim, StaleReleaseError
from gobblin_assets.tickets.heartbeats import describe_executor
from tests.support.ticket_shop import NAME, make_sent

TTL_S: Final = 60.0

# As releases before drains claim.
OLD_CLAIM: Final = text("""
    INSERT INTO gobblin.ticket_claim (ticket_id, attempt, claim_id, digest, log_id, owner, expires_at)
    SELECT :ticket_id, 1, :ticket_id, t.digest, i.log_id, 'old', clock_timestamp() + interval '1 minute'
      FROM gobblin.job_ticket t, gobblin.log_identity i WHERE t.ticket_id = :ticket_id
""")


@pytest.fixture
def tickets(emptied_engine: Engine) -> PostgresTicketStore:
    return PostgresTicketStore(emptied_engine)


@pytest.fixture
def drains(emptied_engine: Engine) -> PostgresLogDrainStore:
    return PostgresLogDrainStore(emptied_engine)


def send(tickets: PostgresTicketStore) -> TicketId:
    sent = make_sent(TicketId(uuid.uuid4()), {"job": "shop"})
    tickets.send(sent)
    return sent.ticket_id


def claim_as_old(connection: Connection, ticket_id: TicketId) -> None:
    connection.execute(OLD_CLAIM, {"ticket_id": ticket_id})


def find_refusal(engine: Engine, ticket_id: TicketId) -> str:
    with pytest.raises(DBAPIError) as refused, engine.begin() as connection:
        claim_as_old(connection, ticket_id)
    cause = refused.value.orig
    assert isinstance(cause, psycopg.Error)
    return str(cause.diag.message_primary)


def test_while_a_log_drains_nothing_is_claimed_and_what_works_goes_on_to_its_end(
    tickets: PostgresTicketStore, drains: PostgresLogDrainStore, emptied_engine: Engine
) -> None:
    heartbeats = PostgresHeartbeatStore(emptied_engine)
    heartbeats.beat(describe_executor(NAME, "a", tickets.find_log_id(), 2, {}))
    working, waiting = send(tickets), send(tickets)
    claim = tickets.claim(working, "a", ttl_s=TTL_S)
    assert claim is not None
    assert not drains.is_draining()
    assert (drains.read().since, drains.read().working) == (None, 1)

    drains.begin("ann")
    drains.begin("bob")
    cancelling = TicketId(uuid.uuid4())
    tickets.send(SentTicket(cancelling, TicketVerb.CANCEL, NAME, cancels=waiting))
    assert drains.is_draining()
    found = drains.read()
    assert (found.asked_by, found.working, found.last_ended_at) == ("ann", 1, None)
    assert [each.ticket_id for each in tickets.list_claimable(NAME, limit=9)] == [cancelling]
    assert tickets.claim(waiting, "a", ttl_s=TTL_S) is None
    unsent = make_sent(TicketId(uuid.uuid4()), {"job": "shop"})
    assert tickets.send_claimed(unsent, "a", ttl_s=TTL_S) is None
    assert find_refusal(emptied_engine, waiting) == "the log drains: nothing is claimed"
    assert [each.beat.phase for each in heartbeats.list_heartbeats()] == [ExecutorPhase.DRAINING]
    assert tickets.renew([claim], ttl_s=TTL_S) == {claim}

    drains.end()
    drains.end()
    found = drains.read()
    assert (found.since, found.asked_by) == (None, "")
    assert found.last_begun_at is not None
    assert found.last_ended_at is not None
    assert found.last_begun_at < found.last_ended_at
    assert [each.beat.phase for each in heartbeats.list_heartbeats()] == [ExecutorPhase.WORKING]
    assert tickets.claim(waiting, "a", ttl_s=TTL_S) == Claim(waiting, 1)


@pytest.fixture
def upgraded(emptied_engine: Engine) -> Iterator[None]:
    """The log is of a later release than this one."""
    move = "UPDATE gobblin.alembic_version SET version_num = {} RETURNING version_num"
    with emptied_engine.begin() as connection:
        before = connection.execute(text("SELECT version_num FROM gobblin.alembic_version")).scalar_one()
        connection.execute(text(move.format("'9999'")))
    yield
    with emptied_engine.begin() as connection:
        connection.execute(text(move.format(":before")), {"before": before})


@pytest.mark.usefixtures("upgraded")
def test_who_opened_the_log_before_an_upgrade_claims_no_more(tickets: PostgresTicketStore) -> None:
    ticket_id = send(tickets)
    with pytest.raises(StaleReleaseError, match="the log was upgraded") as refused:
        tickets.claim(ticket_id, "a", ttl_s=TTL_S)
    assert "Upgrade the package" in refused.value.hint


def test_a_release_before_drains_claims_nothing(tickets: PostgresTicketStore, emptied_engine: Engine) -> None:
    tickets.find_log_id()
    assert find_refusal(emptied_engine, send(tickets)).startswith("the log was upgraded")


def test_who_drains_waits_for_a_claim_that_is_under_way(
    tickets: PostgresTicketStore, drains: PostgresLogDrainStore, emptied_engine: Engine
) -> None:
    ticket_id = send(tickets)
    tickets.find_log_id()
    draining = threading.Thread(target=drains.begin, args=("ann",))
    with emptied_engine.begin() as connection:
        version = connection.execute(text("SELECT version_num FROM gobblin.alembic_version")).scalar_one()
        with_version = OLD_CLAIM.text.replace("owner,", "owner, schema_version,").replace("'old',", "'new', :version,")
        connection.execute(text(with_version), {"ticket_id": ticket_id, "version": version})
        draining.start()
        draining.join(0.3)
        assert draining.is_alive()
        assert not drains.is_draining()
    draining.join(TTL_S)
    assert (drains.is_draining(), drains.read().working) == (True, 1)
