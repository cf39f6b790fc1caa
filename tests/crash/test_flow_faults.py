"""A flow from its request to its end, with a death before and after each commit on the way, or with lost answers.

Every write of the service, of the sender and of the executor is one transaction, so that a death has two places at
each: before the commit and behind it. A death here is an exception that nothing catches, after which all that was in
memory is given up: for one transaction it is what SIGKILL is.
"""

import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, event, text

from gobblin_assets import failpoints
from gobblin_assets.db import schema
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ENDED, ExecutionStatus, FlowStatus
from tests.support.flow_world import KEY, FlowWorld, make_config
from tests.support.shares import Share

ROWS = 7
LIVES_MAX = 40
HISTORIES = 36
CHANCE_OF_DEATH = 0.12

_STORED = {
    "flows": "SELECT count(*) FROM gobblin_service.flow WHERE flow_name = :name",
    "versions": """
        SELECT count(*) FROM gobblin_service.flow_version JOIN gobblin_service.flow USING (flow_id)
         WHERE flow_name = :name
    """,
    "executions": """
        SELECT count(*) FROM gobblin_service.flow_execution JOIN gobblin_service.flow USING (flow_id)
         WHERE flow_name = :name
    """,
    "tickets": "SELECT count(*) FROM gobblin.job_ticket WHERE verb = 'ADD' AND job LIKE :name || '_to_%'",
}


class DeathError(BaseException):
    """The end of a process: nobody catches it."""


@pytest.fixture
def service_engine(engine: Engine) -> Engine:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    return engine


@contextmanager
def commits_heard(engine: Engine, hear: Callable[[str], None]) -> Iterator[None]:
    """``hear`` before each commit, and at each failpoint, most of which stand right behind one."""

    def before(connection: Connection) -> None:
        try:
            hear("commit")
        except DeathError:
            # The server rolls back what the dead process had begun.
            connection.invalidate()
            raise

    event.listen(engine, "commit", before)
    try:
        with failpoints.install(hear):
            yield
    finally:
        event.remove(engine, "commit", before)


def live(world: FlowWorld, name: str) -> FlowStatus:
    """One process' life: ask for the flow, as a client does that got no answer, and go on until it has ended."""
    world.flows.create(world.person, make_config("lake", "mirror", name=name), request_key=name)
    key = FlowKey(KEY.group, name)
    while (status := world.flows.get_status(key)).status not in ENDED:
        world.orchestrator.look()
        while (claimed := world.executor.claim()) is not None:
            claim, sent = claimed
            made = uuid.uuid5(uuid.NAMESPACE_URL, sent.get_job_ticket().job_name)
            world.executor.run(claim, rows=ROWS, sequence_id=made, watermarks={"id": ("0", "7")})
        world.monitor.look()
    return status


def live_until_done(engine: Engine, name: str) -> tuple[FlowStatus, int]:
    """Lives follow each other until one of them sees the end; returns how many deaths there were."""
    for deaths in range(LIVES_MAX):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp() - interval '1 s'"))
        try:
            return live(FlowWorld(engine), name), deaths
        except DeathError:
            continue
    raise AssertionError(f"it did not end in {LIVES_MAX} lives")


def check_once(engine: Engine, name: str, status: FlowStatus) -> None:
    with engine.connect() as connection:
        found = {what: connection.execute(text(query), {"name": name}).scalar() for what, query in _STORED.items()}
    assert found == {"flows": 1, "versions": 1, "executions": 1, "tickets": 2}
    assert status.status is ExecutionStatus.COMPLETE
    assert [(job.status, job.processed_count, job.high_watermark) for job in status.jobs] == [
        (ExecutionStatus.COMPLETE, ROWS, "7")
    ] * 2


def count_places(engine: Engine) -> int:
    heard: list[str] = []
    with commits_heard(engine, heard.append):
        live(FlowWorld(engine), "counted")
    assert set(Failpoint) & set(heard) >= {
        Failpoint.FLOW_STORED, Failpoint.SEND_BEGUN, Failpoint.TICKET_SENT, Failpoint.SEND_MARKED,
        Failpoint.REPORTS_READ, Failpoint.REPORTS_FOLDED,
    }  # fmt: skip
    return len(heard)


def test_a_death_at_each_place_leaves_one_flow_and_one_run(service_engine: Engine, share: Share) -> None:
    places = count_places(service_engine)
    assert places > 40
    for place in (number + 1 for number in share.numbers(places, "deaths of a flow")):
        heard = 0

        def die(_place: str, at: int = place) -> None:
            nonlocal heard
            heard += 1
            if heard == at:
                raise DeathError

        name = f"dies_at_{place}"
        with commits_heard(service_engine, die):
            status, deaths = live_until_done(service_engine, name)
        assert deaths == 1, name
        check_once(service_engine, name, status)


def test_many_deaths_one_after_the_other(service_engine: Engine, share: Share) -> None:
    deaths = histories = 0
    for history in share.numbers(HISTORIES, "many deaths of a flow"):
        chance = random.Random(history)
        left = chance.randint(2, 8)

        def die(_place: str, chance: random.Random = chance) -> None:
            nonlocal left
            if left and chance.random() < CHANCE_OF_DEATH:
                left -= 1
                raise DeathError

        name = f"dies_often_{history}"
        with commits_heard(service_engine, die):
            status, found = live_until_done(service_engine, name)
        check_once(service_engine, name, status)
        deaths, histories = deaths + found, histories + 1
    assert deaths > 2 * histories


def test_each_lost_acknowledgement_is_asked_for_again(service_engine: Engine, share: Share) -> None:
    points: list[Failpoint] = []
    with failpoints.install(points.append):
        live(FlowWorld(service_engine), "counted")
    lost_at = [number for number, point in enumerate(points, 1) if point is not Failpoint.REPORTS_READ]
    assert len(lost_at) > 15
    for place in (lost_at[number] for number in share.numbers(len(lost_at), "lost answers of a flow")):
        heard = 0

        def lose(_point: Failpoint, at: int = place) -> None:
            nonlocal heard
            heard += 1
            if heard == at:
                raise AcknowledgementLost

        name = f"loses_{place}"
        with failpoints.install(lose):
            status = live(FlowWorld(service_engine), name)
        assert heard > place
        check_once(service_engine, name, status)
