"""A flow from its request to its end, with a death before and after each commit on the way, or with lost answers.

Every write of the service, of the sender and of the executor is one transaction, so that a death has two places at
each: before the commit and behind it. A death here is an exception that nothing catches, after which all that was in
memory is given up: for one transaction it is what SIGKILL is. ``test_flow_kills`` has real ones.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, event, text

from gobblin_assets import failpoints
from gobblin_assets.failpoints import AcknowledgementLost, Failpoint
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus, FlowStatus
from tests.crash.points import OF_A_FIRE, OF_A_FLOW, OF_AN_OWN_RUN
from tests.support.flow_world import KEY, ROWS, FlowWorld, delete_while_it_runs, fire_to_the_end, run_to_the_end
from tests.support.own_runs import list_adopted, run_assets_to_the_end
from tests.support.shares import Share

pytestmark = pytest.mark.service_schema

LIVES_MAX = 40
HISTORIES = 36
CHANCE_OF_DEATH = 0.12

Story = Callable[[FlowWorld, str], FlowStatus]

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

_SLOTS = "SELECT s.state, s.execution_id FROM gobblin_service.flow_slot s JOIN gobblin_service.flow USING (flow_id)"


class DeathError(BaseException):
    """The end of a process: nobody catches it."""


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


def live_until_done(engine: Engine, name: str, live: Story = run_to_the_end) -> tuple[FlowStatus, int]:
    """Lives follow each other until one of them sees the end; returns how many deaths there were."""
    for deaths in range(LIVES_MAX):
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp() - interval '1 s'"))
        try:
            return live(FlowWorld(engine), name), deaths
        except DeathError:
            continue
    raise AssertionError(f"it did not end in {LIVES_MAX} lives")


def die_at(engine: Engine, place: int, name: str, live: Story = run_to_the_end) -> FlowStatus:
    """The end of a flow whose process died once, at the place of this number."""
    heard = 0

    def die(_place: str) -> None:
        nonlocal heard
        heard += 1
        if heard == place:
            raise DeathError

    with commits_heard(engine, die):
        status, deaths = live_until_done(engine, name, live)
    assert deaths == 1, name
    return status


def check_once(engine: Engine, name: str, status: FlowStatus) -> None:
    with engine.connect() as connection:
        found = {what: connection.execute(text(query), {"name": name}).scalar() for what, query in _STORED.items()}
    assert found == {"flows": 1, "versions": 1, "executions": 1, "tickets": 2}
    assert status.status is ExecutionStatus.COMPLETE
    assert [(job.status, job.processed_count, job.high_watermark) for job in status.jobs] == [
        (ExecutionStatus.COMPLETE, ROWS, "7")
    ] * 2


def count_places(engine: Engine, live: Story) -> int:
    heard: list[str] = []
    with commits_heard(engine, heard.append):
        live(FlowWorld(engine), live.__name__)
    expected = {
        run_to_the_end: set(OF_A_FLOW) - {Failpoint.CANCEL_MARKED},
        fire_to_the_end: {*OF_A_FLOW, *OF_A_FIRE} - {Failpoint.CANCEL_MARKED},
        delete_while_it_runs: {Failpoint.CANCEL_MARKED},
    }
    assert set(heard) >= expected[live]
    return len(heard)


def test_a_death_at_each_place_leaves_one_flow_and_one_run(engine: Engine, share: Share) -> None:
    places = count_places(engine, run_to_the_end)
    assert places > 40
    for place in (number + 1 for number in share.numbers(places, "deaths of a flow")):
        name = f"dies_at_{place}"
        status = die_at(engine, place, name)
        check_once(engine, name, status)


def test_a_death_at_each_place_of_a_fire_leaves_one_slot_and_one_run(engine: Engine, share: Share) -> None:
    places = count_places(engine, fire_to_the_end)
    assert places > 45
    # Behind the launch, all is as of any other flow.
    for place in (number + 1 for number in share.numbers(12, "deaths of a fire")):
        name = f"dies_fired_at_{place}"
        status = die_at(engine, place, name, fire_to_the_end)
        check_once(engine, name, status)
        with engine.connect() as connection:
            query = f"{_SLOTS} WHERE flow_name = :name"
            assert connection.execute(text(query), {"name": name}).all() == [("RUN", status.execution_id)]


def test_a_death_at_each_place_of_a_deletion_leaves_nothing_that_runs(engine: Engine, share: Share) -> None:
    places = count_places(engine, delete_while_it_runs)
    assert places > 25
    for place in (number + 1 for number in share.numbers(places, "deaths of a deletion")):
        name = f"is_deleted_at_{place}"
        status = die_at(engine, place, name, delete_while_it_runs)
        assert status.status is ExecutionStatus.CANCELLED
        assert {job.status for job in status.jobs} == {ExecutionStatus.CANCELLED}
        assert FlowWorld(engine).store.find(FlowKey(KEY.group, name)) is None


def test_a_death_at_each_place_of_a_run_that_dagster_begins_leaves_one_execution(engine: Engine, share: Share) -> None:
    """Also before the commits of the run's ticket, of its execution and of the note of it."""
    heard: list[str] = []
    with commits_heard(engine, heard.append):
        run_assets_to_the_end(FlowWorld(engine), "counted")
    begun = heard.index(Failpoint.TICKET_CLAIMED, heard.index(Failpoint.TICKET_CLAIMED) + 1) - 1
    assert set(heard[begun:]) >= {*OF_AN_OWN_RUN, Failpoint.TICKET_REPORTED, Failpoint.TICKET_ENDED}
    places = range(begun + 1, len(heard) + 1)
    for place in (places[number] for number in share.numbers(len(places), "deaths of an own run")):
        name = f"dies_own_at_{place}"
        check_own_once(engine, name, die_at(engine, place, name, run_assets_to_the_end))


def test_each_lost_acknowledgement_of_a_run_that_dagster_begins_is_asked_for_again(engine: Engine) -> None:
    for point in (*OF_AN_OWN_RUN[1:], Failpoint.TICKET_CLAIMED):
        lost: list[Failpoint] = []

        def lose(reached: Failpoint, at: Failpoint = point, lost: list[Failpoint] = lost) -> None:
            # The first claim is that of the run which the service began.
            if reached is at and len(lost) < 2:
                lost.append(reached)
                raise AcknowledgementLost

        name = f"loses_own_{point}"
        with failpoints.install(lose):
            status = run_assets_to_the_end(FlowWorld(engine), name)
        assert lost == [point] * 2
        check_own_once(engine, name, status)


def check_own_once(engine: Engine, name: str, status: FlowStatus) -> None:
    (adopted,) = list_adopted(FlowWorld(engine), FlowKey(KEY.group, name))
    assert adopted.execution_id == status.execution_id
    assert (adopted.status, len(adopted.jobs)) == (ExecutionStatus.COMPLETE, 1)
    (job,) = adopted.jobs
    assert (job.status, job.processed_count, job.high_watermark) == (ExecutionStatus.COMPLETE, ROWS, str(ROWS))


def test_many_deaths_one_after_the_other(engine: Engine, share: Share) -> None:
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
        with commits_heard(engine, die):
            status, found = live_until_done(engine, name)
        check_once(engine, name, status)
        deaths, histories = deaths + found, histories + 1
    assert deaths > 2 * histories


def test_each_lost_acknowledgement_is_asked_for_again(engine: Engine, share: Share) -> None:
    points: list[Failpoint] = []
    with failpoints.install(points.append):
        run_to_the_end(FlowWorld(engine), "counted")
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
            status = run_to_the_end(FlowWorld(engine), name)
        assert heard > place
        check_once(engine, name, status)
