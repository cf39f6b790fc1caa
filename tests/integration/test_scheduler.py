"""Schedules on Postgres: what is due is fired once, and every slot is accounted, whatever was missed or is open."""

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Engine, text

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import ExecutorPhase
from gobblin_assets.service import slots
from gobblin_assets.service.executor_health import GIVEN_UNHEARD_MAX
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import FlowState, StoredFlow
from gobblin_assets.service.scheduler import Scheduler
from gobblin_assets.service.schedules import Schedule
from gobblin_assets.service.slots import plan_fire
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus
from gobblin_assets.state.tickets import AttemptEnd, Claim
from tests.support.flow_world import DAILY, EXECUTOR, KEY, FlowWorld, last_slot, make_config, make_topology, play_worker

pytestmark = pytest.mark.service_schema


@pytest.fixture
def world(engine: Engine) -> FlowWorld:
    return FlowWorld(engine)


def make_flow(world: FlowWorld, schedule: str = DAILY, **options: Any) -> StoredFlow:
    return world.flows.create(world.person, make_config("lake", schedule=schedule, **options))


def go_back(world: FlowWorld, days: int) -> None:
    """As if nobody had fired for so long: the next slot is so many days before the last one."""
    make_due(world, last_slot(dt.datetime.now(dt.UTC)) - dt.timedelta(days=days))


def make_due(world: FlowWorld, at: dt.datetime) -> None:
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow SET next_fire_at = :at, due_at = :at"), {"at": at})


def list_slots(world: FlowWorld) -> Sequence[tuple[str, int, bool]]:
    """State, count, and whether an execution is named, in the order of time."""
    query = "SELECT state, count, execution_id IS NOT NULL FROM gobblin_service.flow_slot ORDER BY slot_at"
    with world.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_flow_that_is_due_is_fired_compiled_and_run(world: FlowWorld) -> None:
    made = make_flow(world)
    assert made.next_fire_at is not None
    assert world.scheduler.look() == 0, "its time has not come"
    go_back(world, 0)
    assert world.scheduler.look() == 1
    assert list_slots(world) == [("RUN", 1, True)]
    assert world.flows.get_status(KEY).status is ExecutionStatus.PENDING
    assert world.launcher.look() == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPILED
    assert world.play(rows=1) == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPLETE
    assert world.scheduler.look() == 0


def end_open(world: FlowWorld) -> None:
    for status in world.flows.list_executions(KEY):
        if status.ended_at is None:
            world.flows.cancel(KEY, status.execution_id)


def list_reasons(world: FlowWorld) -> Sequence[str]:
    with world.engine.connect() as connection:
        query = "SELECT reason FROM gobblin_service.flow_slot ORDER BY slot_at"
        return list(connection.execute(text(query)).scalars())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [("COALESCED", 3, True), ("RUN", 1, True)]),
        ({"catch_up": "none"}, [("SKIPPED", 3, False), ("RUN", 1, True)]),
        (
            {"catch_up": "all"},
            [("RUN", 1, True), ("WAITING", 1, False), ("WAITING", 1, False), ("WAITING", 1, False)],
        ),
        ({"catch_up": "all", "catch_up_max": 2}, [("SKIPPED", 2, False), ("RUN", 1, True), ("WAITING", 1, False)]),
        ({"catch_up": "all", "catch_up_max": 3, "overlap": "allow"}, [("SKIPPED", 1, False), *[("RUN", 1, True)] * 3]),
    ],
    ids=str,
)
def test_slots_that_were_missed_are_accounted_as_catch_up_says(
    world: FlowWorld, options: dict[str, Any], expected: list[tuple[str, int, bool]]
) -> None:
    # Of Quartz, with seconds: the last slot is on time, and the next one a day away.
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    make_flow(world, f"{now.second} {now.minute} {now.hour} * * ?", **options)
    make_due(world, now - dt.timedelta(days=3))
    assert world.scheduler.look() == 1
    assert list_slots(world) == expected
    assert all("the service was away" in each for each in list_reasons(world)[:1] if each)


@pytest.mark.parametrize("change", ["fired", "changed", "paused", "deleted"])
def test_a_plan_that_is_overtaken_is_not_written(world: FlowWorld, change: str) -> None:
    flow = make_flow(world)
    go_back(world, 0)
    (due,) = world.schedules.list_due(limit=9)
    schedule = flow.spec.config.parse_schedule(flow.flow_id)
    assert schedule is not None
    plan = plan_fire(due, flow.spec.config, schedule)
    match change:
        case "fired":
            assert world.schedules.fire([plan]) == 1
        case "changed":
            world.flows.update(world.person, make_config(schedule=DAILY, description="another"))
        case "paused":
            world.flows.pause(KEY)
        case "deleted":
            world.flows.delete(KEY)
    before = list_slots(world)
    assert world.schedules.fire([plan]) == 0
    assert list_slots(world) == before


def test_one_flow_that_can_not_be_read_holds_up_no_other(world: FlowWorld) -> None:
    make_flow(world, name="broken")
    make_flow(world)
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_version SET config = config || CAST(:zone AS jsonb)"
        broken = "flow_id = (SELECT flow_id FROM gobblin_service.flow WHERE flow_name = 'broken')"
        connection.execute(text(f"{query} WHERE {broken}"), {"zone": '{"timezone": "Nowhere/City"}'})
    go_back(world, 0)
    world.scheduler.look()
    assert list_slots(world) == [("RUN", 1, True)]
    assert world.scheduler.look() == 0


def test_a_flow_that_one_node_can_not_read_is_fired_by_another_at_once(world: FlowWorld) -> None:
    make_flow(world)
    go_back(world, 0)

    def refuse(_config: FlowConfig, _flow_id: uuid.UUID) -> Schedule:
        raise RejectedError("there is no such zone here", field="timezone", hint="Install it.")

    node = Scheduler(world.schedules, refuse)
    assert (node.look(), node.look()) == (0, 0)
    assert world.scheduler.look() == 1


def test_slots_that_wait_run_one_after_the_other(world: FlowWorld) -> None:
    make_flow(world, catch_up="all")
    go_back(world, 2)
    for _ in range(3):
        world.scheduler.look()
        world.scheduler.look()
        assert world.launcher.look() == 1
        assert world.play(rows=1) == 1
    assert list_slots(world) == [("RUN", 1, True)] * 3
    with world.engine.connect() as connection:
        query = "SELECT count(DISTINCT execution_id) FROM gobblin_service.flow_slot"
        assert connection.execute(text(query)).scalar() == 3


@pytest.mark.parametrize(
    ("options", "second", "after"),
    [
        ({}, "SKIPPED", "SKIPPED"),
        ({"overlap": "queue"}, "WAITING", "RUN"),
        ({"overlap": "allow"}, "RUN", "RUN"),
        ({"catch_up": "all"}, "SKIPPED", "SKIPPED"),
    ],
    ids=str,
)
def test_a_slot_while_an_execution_is_open(world: FlowWorld, options: dict[str, Any], second: str, after: str) -> None:
    make_flow(world, **options)
    world.flows.run(world.person, KEY)
    go_back(world, 0)
    assert world.scheduler.look() == 1
    assert [state for state, *_rest in list_slots(world)] == [second]
    end_open(world)
    world.scheduler.look()
    assert [state for state, *_rest in list_slots(world)] == [after]


def test_a_newer_slot_takes_the_place_of_one_that_waits(world: FlowWorld) -> None:
    make_flow(world, overlap="queue")
    world.flows.run(world.person, KEY)
    go_back(world, 2)
    world.scheduler.look()
    assert list_slots(world) == [("COALESCED", 2, False), ("WAITING", 1, False)]
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_slot SET slot_at = slot_at - :past, until_at = until_at - :past"
        connection.execute(text(query), {"past": dt.timedelta(hours=1)})
    go_back(world, 0)
    world.scheduler.look()
    assert list_slots(world) == [("COALESCED", 2, False), ("COALESCED", 1, False), ("WAITING", 1, False)]


def test_a_pause_is_followed_by_what_was_missed_and_says_so(world: FlowWorld) -> None:
    make_flow(world)
    world.flows.pause(KEY)
    go_back(world, 5)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow SET paused_at = now() - interval '9 days'"))
    assert world.scheduler.look() == 0
    assert world.flows.resume(KEY).state is FlowState.ACTIVE
    assert world.scheduler.look() == 1
    assert list_slots(world) == [("COALESCED", 5, True), ("RUN", 1, True)]
    assert list_reasons(world)[0].startswith("the flow was paused")


def test_a_window_holds_up_what_is_due_until_its_end(world: FlowWorld) -> None:
    now = dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(hours=2)
    window = {"start": f"{now - dt.timedelta(minutes=30):%H:%M}", "end": f"{end:%H:%M}"}
    flow = make_flow(world, "* * * * *", windows=[window])
    assert flow.next_fire_at is not None
    make_due(world, now.replace(second=0, microsecond=0) - dt.timedelta(minutes=3))
    assert world.scheduler.look() == 1
    assert list_slots(world) == []
    with world.engine.connect() as connection:
        (due_at,) = connection.execute(text("SELECT due_at FROM gobblin_service.flow")).one()
    assert due_at == end.replace(second=0, microsecond=0)
    assert world.scheduler.look() == 0


def test_years_of_days_are_few_rows_and_each_slot_is_counted(world: FlowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOTS_AT_ONCE_MAX", 500)
    make_flow(world)
    go_back(world, 1_700)
    assert world.scheduler.look() == 4
    found = list_slots(world)
    assert found[-1] == ("RUN", 1, True)
    assert [count for _state, count, _named in found] == [500, 500, 500, 200, 1]


def test_all_slots_of_an_outage_are_bounded_by_catch_up_max(world: FlowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "SLOTS_AT_ONCE_MAX", 20)
    monkeypatch.setattr(slots, "ROWS_AT_ONCE_MAX", 4)
    make_flow(world, catch_up="all", catch_up_max=10)
    go_back(world, 99)
    world.scheduler.look()
    found = list_slots(world)
    assert sum(count for _state, count, _named in found) == 100
    assert [state for state, *_rest in found if state != "SKIPPED"] == ["RUN", *["WAITING"] * 9]


def test_old_slots_are_forgotten_and_what_waits_is_not(world: FlowWorld) -> None:
    make_flow(world, catch_up="all")
    go_back(world, 1)
    world.scheduler.look()
    assert world.schedules.forget_slots(kept_days=1) == 0
    assert world.schedules.forget_slots(kept_days=0) == 1
    assert list_slots(world) == [("WAITING", 1, False)]


def test_a_changed_schedule_accounts_what_was_due_and_a_changed_description_leaves_it(world: FlowWorld) -> None:
    make_flow(world)
    go_back(world, 3)
    changed = world.flows.update(world.person, make_config(schedule=DAILY, description="the same"))
    assert changed.next_fire_at is not None
    assert changed.next_fire_at < dt.datetime.now(dt.UTC) - dt.timedelta(days=3)
    assert list_slots(world) == []
    changed = world.flows.update(world.person, make_config(schedule="0 3 1 1 *"))
    assert list_slots(world) == [("SKIPPED", 4, False)]
    assert changed.next_fire_at is not None
    assert (changed.next_fire_at.month, changed.next_fire_at.hour) == (1, 3)
    assert world.scheduler.look() == 0
    assert world.flows.update(world.person, make_config()).next_fire_at is None


def test_a_deleted_flow_leaves_no_slot_and_no_execution_open(world: FlowWorld) -> None:
    make_flow(world, catch_up="all")
    go_back(world, 2)
    world.scheduler.look()
    go_back(world, 0)
    with world.engine.begin() as connection:
        connection.execute(text("DELETE FROM gobblin_service.flow_slot WHERE slot_at > now() - interval '1 day'"))
    assert world.flows.delete(KEY)
    assert [state for state, *_rest in list_slots(world)] == ["RUN", "SKIPPED", "SKIPPED"]
    assert world.scheduler.look() == 0
    assert world.launcher.look() == 0
    with world.engine.connect() as connection:
        statuses = connection.execute(text("SELECT status FROM gobblin_service.flow_execution")).scalars().all()
    assert statuses == [ExecutionStatus.CANCELLED]


def test_a_flow_that_no_executor_can_run_waits_for_the_topology_with_its_reasons(world: FlowWorld) -> None:
    make_flow(world)
    complete = world.compiler.topology
    world.compiler.topology = make_topology("shop")
    go_back(world, 0)
    world.scheduler.look()
    assert world.launcher.look() == 0
    status = world.flows.get_status(KEY)
    assert (status.status, status.message) == (ExecutionStatus.PENDING, "there is no node lake")
    assert world.flows.get(KEY).state is FlowState.PENDING
    world.compiler.topology = complete
    assert world.launcher.look() == 0, "it was tried"
    world.flows.compile_pending()
    world.launcher.wake()
    assert world.launcher.look() == 1
    assert world.flows.get(KEY).state is FlowState.ACTIVE
    assert world.play() == 1


def test_what_was_fired_before_a_pause_is_launched_behind_it(world: FlowWorld) -> None:
    make_flow(world)
    go_back(world, 0)
    world.scheduler.look()
    world.flows.pause(KEY)
    assert world.launcher.look() == 0
    status = world.flows.get_status(KEY)
    assert (status.status, status.message) == (ExecutionStatus.PENDING, "it begins when the flow is resumed")
    assert world.flows.resume(KEY).state is FlowState.ACTIVE
    assert world.launcher.look() == 1


def test_an_execution_that_is_not_launched_is_cancelled_at_once(world: FlowWorld) -> None:
    make_flow(world)
    go_back(world, 0)
    world.scheduler.look()
    cancelled = world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    assert cancelled.status is ExecutionStatus.CANCELLED
    assert world.launcher.look() == 0


def test_a_flow_that_is_refused_for_good_fails_with_what_to_do(world: FlowWorld) -> None:
    make_flow(world)
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow_version SET config = config - 'source'"))
    go_back(world, 0)
    world.scheduler.look()
    assert world.launcher.look() == 0
    status = world.flows.get_status(KEY)
    assert status.status is ExecutionStatus.FAILED
    assert "expected a source and a destination" in status.message


def test_an_executor_is_given_no_more_than_it_begins_soon_and_after_an_outage_the_oldest_first(
    world: FlowWorld,
) -> None:
    """Of one slot, two tickets wait at it, and two more here, where they are sent without a compilation."""
    world.beat(slots=1)
    for name in "abcdef":
        make_flow(world, name=name)
    go_back(world, 0)
    assert world.scheduler.look() == 6
    assert world.launcher.look() == 4
    told = sorted(world.flows.get_status(FlowKey(KEY.group, name)).message for name in "abcdef")
    assert told == ["", "", "", "", *["the executor here has 4 jobs that it has not begun"] * 2]
    assert world.launcher.look() == 0
    assert world.orchestrator.look() == 2
    # Behind an outage, what was begun ends first, and then what was due first begins first.
    began = []
    while len(began) < 6:
        claimed = world.executor.claim()
        assert claimed is not None
        world.executor.run(claimed[0])
        began.append(claimed[1].ticket_id)
        world.monitor.look()
        world.launcher.look()
        world.orchestrator.look()
    with world.engine.connect() as connection:
        by_age = text("SELECT ticket_id FROM gobblin_service.job_execution ORDER BY execution_id")
        assert began == list(connection.execute(by_age).scalars())
    # While it is not heard, nobody knows what it can begin: its jobs may go to another executor.
    world.beat(phase=ExecutorPhase.ENDED)
    assert world.healths.get(EXECUTOR).given_max == GIVEN_UNHEARD_MAX


def test_a_flow_that_always_runs_begins_again_after_a_failure_ever_later(world: FlowWorld) -> None:
    world.compiler.workers = frozenset({0})
    make_flow(world, "@continuous", run_immediately=False)

    def begin() -> int:
        return world.scheduler.look() and world.launcher.look()

    def pass_by(seconds: float) -> None:
        with world.engine.begin() as connection:
            query = "UPDATE gobblin_service.flow_execution SET ended_at = ended_at - make_interval(secs => :s)"
            connection.execute(text(f"{query} WHERE status = 'FAILED'"), {"s": seconds})

    assert begin() == 1
    for wait_s in (5, 10):
        assert begin() == 0, "it is open"
        claim = play_worker(world)
        world.executor.tickets.end(claim, AttemptEnd.FAILED, {"message": "it broke"})
        world.monitor.look()
        assert begin() == 0
        pass_by(wait_s - 1)
        assert begin() == 0
        pass_by(2)
        assert begin() == 1
    claim = play_worker(world)
    world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    world.step()
    world.executor.tickets.end(claim, AttemptEnd.CANCELLED, {"message": "drained"})
    world.monitor.look()
    assert world.flows.get_status(KEY).status is ExecutionStatus.CANCELLED
    assert begin() == 0, "somebody wanted its end"


def begin_worker(world: FlowWorld) -> Claim:
    """A flow that always runs, and its worker at work."""
    world.compiler.workers = frozenset({0})
    make_flow(world, "@continuous", run_immediately=False)
    assert world.scheduler.look() == 1
    assert world.launcher.look() == 1
    return play_worker(world)


def end_worker(world: FlowWorld, claim: Claim, end: AttemptEnd = AttemptEnd.CANCELLED) -> ExecutionStatus:
    """It ends as it was asked to, and nothing that it failed of is of the last minutes."""
    world.step()
    world.executor.tickets.end(claim, end, {"message": "drained" if end is AttemptEnd.CANCELLED else "it broke"})
    world.monitor.look()
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_execution SET ended_at = ended_at - interval '10 minutes'"
        connection.execute(text(f"{query} WHERE ended_at IS NOT NULL"))
    return world.flows.get_status(KEY).status


@pytest.mark.parametrize("change", ["a description", "a job", "nothing, and it fails"])
def test_a_cancelled_flow_that_always_runs_begins_with_the_next_version(world: FlowWorld, change: str) -> None:
    claim = begin_worker(world)
    options: dict[str, Any] = {"schedule": "@continuous", "run_immediately": False}
    if change == "a description":
        world.flows.update(world.person, make_config(description="another", **options))
    elif change == "a job":
        world.flows.update(world.person, make_config(parameters={"tables": ["orders"]}, **options))
    world.flows.cancel(KEY, world.flows.get_status(KEY).execution_id)
    end = AttemptEnd.FAILED if change.endswith("fails") else AttemptEnd.CANCELLED
    assert end_worker(world, claim, end) is ExecutionStatus[end.name]
    assert (world.flows.restart_drained(), world.scheduler.look()) == (0, 0), "somebody wanted its end"
    world.flows.update(world.person, make_config(description="a later one", **options))
    assert world.scheduler.look() == 1


def test_a_worker_that_fails_in_a_pause_begins_behind_it(world: FlowWorld) -> None:
    claim = begin_worker(world)
    world.flows.pause(KEY)
    assert end_worker(world, claim, AttemptEnd.FAILED) is ExecutionStatus.FAILED
    assert world.scheduler.look() == 0
    assert world.flows.resume(KEY).state is FlowState.ACTIVE
    assert world.scheduler.look() == 1


def test_a_flow_that_always_runs_and_could_not_at_its_resume_begins_when_it_can(world: FlowWorld) -> None:
    claim = begin_worker(world)
    world.flows.pause(KEY)
    assert end_worker(world, claim) is ExecutionStatus.CANCELLED
    complete = world.compiler.topology
    world.compiler.topology = make_topology("shop")
    world.flows.update(world.person, make_config(schedule="@continuous", run_immediately=False))
    assert world.flows.resume(KEY).state is FlowState.PENDING
    world.compiler.topology = complete
    assert world.flows.compile_pending() == 1
    assert world.scheduler.look() == 0, "who resumes it begins it"
    with world.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.flow SET resumed_at = resumed_at - interval '11 s'"))
    assert world.scheduler.look() == 1
    assert world.launcher.look() == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.COMPILED


@pytest.mark.parametrize("option", ["start_deadline", "finish_deadline"])
def test_a_deadline_counts_from_the_slot_on_for_what_no_executor_can_run(world: FlowWorld, option: str) -> None:
    make_flow(world, **{option: "1h"})
    complete = world.compiler.topology
    world.compiler.topology = make_topology("shop")
    go_back(world, 0)
    world.scheduler.look()
    assert world.launcher.look() == 0
    let_pass(world, "59 minutes")
    assert world.executions.end_late(limit=9) == 0
    let_pass(world, "2 minutes")
    assert world.executions.end_late(limit=9) == 1
    status = world.flows.get_status(KEY)
    assert status.status is ExecutionStatus.CANCELLED
    assert option in status.message
    world.compiler.topology = complete
    world.flows.compile_pending()
    world.launcher.wake()
    assert world.launcher.look() == 0


def let_pass(world: FlowWorld, time: str) -> None:
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_execution SET started_at = started_at - CAST(:time AS interval),"
        query += " start_by = start_by - CAST(:time AS interval), finish_by = finish_by - CAST(:time AS interval)"
        connection.execute(text(query), {"time": time})


def test_a_launch_leaves_when_a_deadline_began_as_it_was(world: FlowWorld) -> None:
    make_flow(world, start_deadline="1h")
    go_back(world, 0)
    world.scheduler.look()
    let_pass(world, "59 minutes")
    world.flows.update(world.person, make_config(schedule=DAILY, start_deadline="30m"))
    assert world.launcher.look() == 1
    assert world.executions.end_late(limit=9) == 1, "the version that it is launched for has half an hour"


def test_a_deadline_begins_anew_with_a_resume(world: FlowWorld) -> None:
    make_flow(world, start_deadline="1h")
    execution_id = world.flows.run(world.person, KEY).execution_id
    world.orchestrator.look()
    claimed = world.executor.claim()
    assert claimed is not None
    world.executor.run(claimed[0], end=AttemptEnd.FAILED)
    world.monitor.look()
    let_pass(world, "2 hours")
    world.flows.resume_execution(world.person, KEY, execution_id)
    assert world.executions.end_late(limit=9) == 0
    let_pass(world, "61 minutes")
    assert world.executions.end_late(limit=9) == 1, "no job runs since"
    assert "start_deadline" in world.flows.get_status(KEY).message


def test_no_more_executions_are_open_than_may_overlap(world: FlowWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobblin_assets.service.postgres.schedules.OVERLAPS_MAX", 2)
    make_flow(world, catch_up="all", overlap="allow")
    go_back(world, 4)
    assert world.scheduler.look() == 1
    assert [state for state, *_rest in list_slots(world)] == ["RUN", "RUN", "WAITING", "WAITING", "WAITING"]
    assert world.scheduler.look() == 0
    for runs in (2, 1, 1, 1):
        assert world.launcher.look() == runs
        assert world.play(rows=1) == runs
        world.scheduler.look()
    assert [state for state, *_rest in list_slots(world)] == ["RUN"] * 5


def test_a_slot_that_waits_begins_in_no_window_and_flows_in_windows_hide_no_other(world: FlowWorld) -> None:
    now = dt.datetime.now(dt.UTC)
    window = {"start": f"{now - dt.timedelta(hours=1):%H:%M}", "end": f"{now + dt.timedelta(hours=2):%H:%M}"}
    for name in "abcd":
        make_flow(world, "@yearly", name=name, overlap="queue", windows=[window])
    make_flow(world, "@yearly", overlap="queue")
    with world.engine.begin() as connection:
        insert = "INSERT INTO gobblin_service.flow_slot (flow_id, slot_at, until_at, count, state)"
        connection.execute(
            text(f"{insert} SELECT flow_id, :at, :at, 1, 'WAITING' FROM gobblin_service.flow"), {"at": now}
        )
    assert world.schedules.begin_waiting(limit=1) == 1
    assert world.flows.get_status(KEY).status is ExecutionStatus.PENDING
    assert world.schedules.begin_waiting(limit=1) == 0
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_version SET config = config - 'windows'"
        connection.execute(text(query))
    assert world.schedules.begin_waiting(limit=9) == 4


def test_a_flow_that_may_no_longer_overlap_starts_beside_nothing_of_before(world: FlowWorld) -> None:
    make_flow(world, overlap="allow")
    go_back(world, 0)
    assert world.scheduler.look() == 1
    world.flows.update(world.person, make_config(schedule=DAILY))
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_slot SET slot_at = slot_at - :past, until_at = until_at - :past"
        connection.execute(text(query), {"past": dt.timedelta(hours=1)})
        query = "UPDATE gobblin_service.flow_execution SET fire_at = fire_at - :past"
        connection.execute(text(query), {"past": dt.timedelta(hours=1)})
    go_back(world, 0)
    assert world.scheduler.look() == 1
    assert [state for state, *_rest in list_slots(world)] == ["RUN", "SKIPPED"]
    assert list_reasons(world)[-1] == slots.WAS_OPEN


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_flow_whose_zone_this_machine_lacks_can_be_deleted_and_mended(world: FlowWorld, is_deleted: bool) -> None:
    make_flow(world)
    go_back(world, 3)
    with world.engine.begin() as connection:
        query = "UPDATE gobblin_service.flow_version SET config = config || CAST(:zone AS jsonb)"
        connection.execute(text(query), {"zone": '{"timezone": "Nowhere/City"}'})
    if is_deleted:
        assert world.flows.delete(KEY)
    else:
        world.flows.update(world.person, make_config(schedule=DAILY))
    assert list_slots(world) == [("SKIPPED", 1, False)]
    go_back(world, 0)
    assert world.scheduler.look() == (0 if is_deleted else 1)


def test_failures_of_a_flow_that_always_runs_are_counted_among_its_last_executions(world: FlowWorld) -> None:
    claim = begin_worker(world)
    end_worker(world, claim)
    add = """
        INSERT INTO gobblin_service.flow_execution
               (request_id, flow_id, flow_version, status, asked_by, selection, ended_at)
        SELECT gen_random_uuid(), flow_id, version, :status, owner, '{}', now() - interval '6 s'
          FROM gobblin_service.flow, generate_series(1, :count)
    """
    with world.engine.begin() as connection:
        for status, count in (("FAILED", 9), ("COMPLETE", 19), ("FAILED", 1)):
            connection.execute(text(add), {"status": status, "count": count})
    assert world.scheduler.look() == 1, "it rests as after one failure"
