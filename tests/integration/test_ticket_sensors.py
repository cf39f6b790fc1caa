"""Looks of JobMonitor at an inbox: which runs it asks for, and what it ends without one. No daemon is at work here."""

import datetime as dt
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.test_utils import create_run_for_test
from sqlalchemy import Engine, text

from gobblin_assets.dagster import ticket_sensors
from gobblin_assets.dagster.sensor_ticks import TRY_WAIT_S_MAX
from gobblin_assets.dagster.ticket_runs import TERMINATED, TICKETS_JOB, describe_owner
from gobblin_assets.dagster.ticket_sensors import (
    AHEAD,
    FLOW_GROUP_TAG,
    PATIENCE_S,
    PRIORITY_TAG,
    TICKET_TAG,
    MonitorTick,
    build_job_monitor,
    find_slots,
    plan_packs,
    read_tickets,
)
from gobblin_assets.dagster.worker_runs import build_workers_job
from gobblin_assets.dagster.worker_sensor import build_workers_sensor
from gobblin_assets.errors import FencedError
from gobblin_assets.model.job_ticket import JobTicket, SentTicket, TicketId, TicketShape, TicketVerb
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.tickets import LONG_RUN_S, AttemptEnd, Claim, OpenTicket, TicketReportKind, WaitingTicket
from tests.support.dagster_instance import open_instance

pytestmark = pytest.mark.turns(of=6)

EXECUTOR = "lake"
Status = dg.DagsterRunStatus


@dataclass
class Inbox:
    engine: Engine
    stores: Stores
    instance: dg.DagsterInstance
    now: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    cursor: str | None = None

    def send(self, job: str = "orders", *, group: str = "sales", connection: str = "shop") -> TicketId:
        body = {"job": job, "source": {"connection": connection}, "destination": "/lake", "datasets": [{"urn": "t"}]}
        ticket = JobTicket(f"gobblin-job:/{group}/{job}/{job}", "1", "ingest.jdbc", body)
        sent = SentTicket(TicketId(uuid.uuid4()), TicketVerb.ADD, EXECUTOR, ticket)
        self.stores.tickets.send(sent)
        return sent.ticket_id

    def look(self, later_s: float = 0.0) -> list[dg.RunRequest]:
        """The runs that a tick asks for, so much later than the one before."""
        self.now += dt.timedelta(seconds=later_s)
        tick = MonitorTick(EXECUTOR, 3, self.instance, self.stores, self.now)
        tick.settle()
        requests, self.cursor = tick.plan(self.cursor)
        return requests

    def make_run(self, request: dg.RunRequest, status: Status) -> dg.DagsterRun:
        """What Dagster makes of a request, in this state."""
        made: dg.DagsterRun = create_run_for_test(
            self.instance, job_name=TICKETS_JOB, run_config=request.run_config, tags=request.tags, status=status
        )
        return made

    def end_pause(self) -> None:
        """The pause of the log after an attempt that died is over."""
        with self.engine.begin() as connection:
            connection.execute(text("UPDATE gobblin.ticket_claim SET ended_at = ended_at - interval '1 minute'"))

    def claim(self, ticket_id: TicketId, owner: str) -> Claim:
        claim = self.stores.tickets.claim(ticket_id, owner, ttl_s=30)
        assert claim is not None
        return claim


@pytest.fixture
def inbox(engine: Engine, tmp_path: Path) -> Iterator[Inbox]:
    with open_instance(tmp_path) as instance:
        yield Inbox(engine, open_stores(engine), instance)


def tickets_of(requests: Sequence[dg.RunRequest]) -> list[list[str]]:
    return [request.run_config["ops"]["run_tickets"]["config"]["tickets"] for request in requests]


def test_a_ticket_has_one_run_and_another_one_after_a_pause_if_it_failed_before_the_claim(inbox: Inbox) -> None:
    ticket_id = inbox.send()
    (first,) = inbox.look()
    assert (first.run_key, first.tags[TICKET_TAG]) == (f"{ticket_id}:none", str(ticket_id))
    run = inbox.make_run(first, Status.NOT_STARTED)
    assert inbox.look() == []
    inbox.instance.report_run_failed(run)
    assert inbox.look() == [], "an overloaded code server is not asked again at once"
    (second,) = inbox.look(later_s=40)
    assert second.run_key == f"{ticket_id}:{run.run_id}"
    assert inbox.stores.tickets.list_claimable(EXECUTOR, limit=9)[0].attempts == 0


def test_a_run_has_another_key_also_behind_more_failures_than_are_read(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ticket_sensors, "TRIES_READ_MAX", 2)
    inbox.send()
    keys = set()
    for _ in range(4):
        (request,) = inbox.look(later_s=TRY_WAIT_S_MAX)
        keys.add(request.run_key)
        inbox.instance.report_run_failed(inbox.make_run(request, Status.NOT_STARTED))
    assert len(keys) == 4


def test_a_run_that_works_on_something_else_for_long_keeps_its_tickets_no_more(inbox: Inbox) -> None:
    tickets = [inbox.send(f"job{number}") for number in range(3)]
    (request,) = inbox.look()
    assert tickets_of([request]) == [[str(each) for each in tickets]]
    run = inbox.make_run(request, Status.STARTED)
    inbox.claim(tickets[0], describe_owner(run.run_id))
    assert inbox.look() == []
    assert tickets_of(inbox.look(later_s=PATIENCE_S + 1)) == [[str(each) for each in tickets[1:]]]


def test_a_run_that_goes_from_ticket_to_ticket_keeps_those_to_come(inbox: Inbox) -> None:
    tickets = [inbox.send(f"job{number}") for number in range(3)]
    (request,) = inbox.look()
    run = inbox.make_run(request, Status.STARTED)
    for ticket_id in tickets:
        claim = inbox.claim(ticket_id, describe_owner(run.run_id))
        assert inbox.look() == []
        assert inbox.look(later_s=PATIENCE_S - 1) == []
        assert inbox.stores.tickets.end(claim, AttemptEnd.COMPLETE, {})
        assert inbox.look() == []


def test_while_a_run_of_the_group_is_queued_tickets_gather_for_a_full_one(inbox: Inbox) -> None:
    inbox.send("job0")
    (request,) = inbox.look()
    queued = inbox.make_run(request, Status.NOT_STARTED)
    gathered = [inbox.send(f"job{number}") for number in (1, 2)]
    assert inbox.look() == []
    other = inbox.send(group="other")
    assert tickets_of(inbox.look()) == [[str(other)]]
    gathered.append(inbox.send("job3"))
    full = [str(each) for each in gathered]
    assert tickets_of(inbox.look()) == [full, [str(other)]]
    inbox.stores.tickets.end_unclaimed(gathered.pop(), "of a service")
    assert tickets_of(inbox.look()) == [[str(other)]]
    begins = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, TICKETS_JOB)
    inbox.instance.report_dagster_event(begins, queued.run_id)
    assert tickets_of(inbox.look()) == [full[:-1], [str(other)]]


def test_an_attempt_of_a_run_that_has_ended_is_ended_with_its_claim(inbox: Inbox) -> None:
    ticket_id = inbox.send()
    (request,) = inbox.look()
    run = inbox.make_run(request, Status.STARTED)
    claim = inbox.claim(ticket_id, describe_owner(run.run_id))
    assert inbox.look() == []
    inbox.instance.report_run_failed(run)
    inbox.look()
    with pytest.raises(FencedError, match="has ended as DIED"):
        # Dagster may be wrong, and the process live on: nothing that it says counts any more.
        inbox.stores.tickets.report(claim, uuid.uuid4(), TicketReportKind.RUNNING, {})
    inbox.end_pause()
    (again,) = inbox.look()
    assert (again.run_key, again.tags[PRIORITY_TAG]) == (f"{ticket_id}:{run.run_id}", "1")


def test_a_claim_of_another_kind_of_executor_is_left_alone(inbox: Inbox) -> None:
    claim = inbox.claim(inbox.send(), "host:123")
    assert inbox.look() == []
    assert inbox.stores.tickets.renew([claim], ttl_s=30) == {claim}


def test_a_claim_of_a_run_of_another_instance_is_left_alone(inbox: Inbox) -> None:
    claim = inbox.claim(inbox.send(), describe_owner(str(uuid.uuid4())))
    assert inbox.look() == []
    assert inbox.stores.tickets.renew([claim], ttl_s=30) == {claim}


@pytest.mark.parametrize(("status", "state"), [(Status.CANCELED, "CANCELLED"), (Status.FAILURE, "DIED")])
def test_an_attempt_of_a_run_of_assets_ends_as_its_run(inbox: Inbox, status: Status, state: str) -> None:
    run = create_run_for_test(inbox.instance, job_name=IMPLICIT_ASSET_JOB_NAME, status=Status.STARTED)
    ticket_id = inbox.send()
    claim = inbox.claim(ticket_id, describe_owner(run.run_id))
    inbox.look()
    assert inbox.stores.tickets.renew([claim], ttl_s=30) == {claim}
    if status is Status.FAILURE:
        inbox.instance.report_run_failed(run)
    else:
        inbox.instance.report_run_canceled(run)
    inbox.look()
    *_before, last = inbox.stores.tickets.list_reports([ticket_id], {}, limit=9)
    assert (last.kind, last.details["state"]) == (TicketReportKind.ENDED, state)


def test_what_a_person_terminates_in_the_queue_is_cancelled(inbox: Inbox) -> None:
    tickets = [inbox.send(f"job{number}") for number in range(2)]
    (request,) = inbox.look()
    run = inbox.make_run(request, Status.CANCELED)
    assert read_tickets(run) == tickets
    assert inbox.look() == []
    ends = inbox.stores.tickets.find_ends(tickets)
    assert {(each.details["state"], each.details["message"]) for each in ends.values()} == {("CANCELLED", TERMINATED)}


def test_a_terminated_pack_is_not_begun_again_also_without_its_first_ticket(inbox: Inbox) -> None:
    first, *others = [inbox.send(f"job{number}") for number in range(3)]
    (request,) = inbox.look()
    assert inbox.stores.tickets.end_unclaimed(first, "of a service")
    inbox.make_run(request, Status.CANCELED)
    assert inbox.look() == []
    ends = inbox.stores.tickets.find_ends(others)
    assert [ends[each].details["message"] for each in others] == [TERMINATED, TERMINATED]


def test_the_sensors_of_tickets_take_each_look_of_the_daemon() -> None:
    for sensor in (
        build_job_monitor(EXECUTOR, pack_max=1),
        build_workers_sensor(EXECUTOR, build_workers_job(EXECUTOR)),
    ):
        assert (sensor.minimum_interval_seconds or 0) < 5, "Dagster would evaluate it at every other of its looks"


def test_no_more_runs_are_asked_for_than_can_begin_soon(inbox: Inbox) -> None:
    room = AHEAD * find_slots(inbox.instance)
    for number in range(room + 2):
        inbox.send(f"job{number}", group=f"group{number}")
    requests = inbox.look()
    assert len(requests) == room
    for request in requests[1:]:
        inbox.make_run(request, Status.NOT_STARTED)
    assert len(inbox.look()) == 1


def test_a_group_that_is_limited_leaves_room_for_others(inbox: Inbox, tmp_path: Path) -> None:
    limit = {"key": FLOW_GROUP_TAG, "value": {"applyLimitPerUniqueValue": True}, "limit": 1}
    runs = {"max_concurrent_runs": 2, "tag_concurrency_limits": [limit]}
    for number in range(15):
        inbox.send(f"job{number}", group="busy")
    inbox.send("other", group="other")
    with open_instance(tmp_path / "limited", {"concurrency": {"runs": runs}}) as inbox.instance:
        first, *others = inbox.look()
        assert [each.tags[FLOW_GROUP_TAG] for each in (first, *others)] == ["busy", "busy", "other"]
        inbox.make_run(first, Status.STARTED)
        assert [each.tags[FLOW_GROUP_TAG] for each in inbox.look()] == ["busy", "other"]


def test_a_ticket_that_is_cancelled_and_one_that_is_used_up_need_no_run(inbox: Inbox) -> None:
    cancelled, used_up = inbox.send("first"), inbox.send("second")
    inbox.stores.tickets.send(SentTicket(TicketId(uuid.uuid4()), TicketVerb.CANCEL, EXECUTOR, cancels=cancelled))
    for _ in range(5):
        claim = inbox.claim(used_up, "host:1")
        assert inbox.stores.tickets.end(claim, AttemptEnd.DIED, {})
        inbox.end_pause()
    assert inbox.look() == []
    ends = inbox.stores.tickets.find_ends([cancelled, used_up])
    assert (ends[cancelled].details["state"], ends[used_up].details["state"]) == ("CANCELLED", "FAILED")


def test_a_job_that_ran_for_long_shares_no_run(inbox: Inbox) -> None:
    with inbox.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO gobblin.run (run_id, job, owner, started_at, ended_at, state)"
                " VALUES (:run_id, 'slow', 'o', now() - make_interval(secs => :took), now(), 'COMMITTED')"
            ),
            {"run_id": uuid.uuid4(), "took": LONG_RUN_S + 1},
        )
    slow, quick, other = inbox.send("slow"), inbox.send("quick"), inbox.send("other")
    assert tickets_of(inbox.look()) == [[str(slow)], [str(quick), str(other)]]


class TestPacks:
    """Which tickets share a run. ``waits``: one whose only particularity is given."""

    @staticmethod
    def pack(*waiting: WaitingTicket, begun: int | None = None, pack_max: int = 10) -> list[list[int]]:
        """The places of the tickets in their runs. ``begun``: the place of one that had an attempt before."""
        ids = [TicketId(uuid.UUID(int=number)) for number in range(len(waiting))]
        tickets = [OpenTicket(each, TicketVerb.ADD, int(begun == place), 0) for place, each in enumerate(ids)]
        packs = plan_packs(tickets, dict(zip(ids, waiting, strict=True)), pack_max)
        return [[each.int for each in pack.tickets] for pack in packs]

    @staticmethod
    def waits(
        group: str = "g", needs: str = "n", *, is_long: bool = False, shape: TicketShape = TicketShape.RUN
    ) -> WaitingTicket:
        return WaitingTicket("lake", f"gobblin-job:/{group}/f/j", shape, needs, is_long)

    def test_those_of_a_group_with_the_same_needs_share_runs_up_to_the_limit(self) -> None:
        other, needy = self.waits("other"), self.waits(needs="kafka")
        same = [self.waits()] * 3
        assert self.pack(same[0], other, same[1], needy, same[2], pack_max=2) == [[0, 2], [1], [3], [4]]

    def test_what_is_long_or_was_begun_has_a_run_of_its_own(self) -> None:
        assert self.pack(self.waits(), self.waits(is_long=True), self.waits(), self.waits(), begun=2) == [
            [0, 3],
            [1],
            [2],
        ]

    def test_workers_are_left_to_others(self) -> None:
        assert self.pack(self.waits(shape=TicketShape.WORKER), self.waits()) == [[1]]
