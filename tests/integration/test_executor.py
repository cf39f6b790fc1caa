"""Executors of technology ``process``, over a real Postgres and a lake on disk."""

import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg import sql
from sqlalchemy import text

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import TicketId, TicketSelection
from gobblin_assets.state.tickets import TicketReport, TicketReportKind
from tests.support.postgres import maintenance
from tests.support.ticket_shop import WAIT_S_MAX, Executor, ForkedAttempt, TicketShop, only_first, ticket_shop

__all__ = ["ticket_shop"]

pytestmark = pytest.mark.turns(of=6)

FAILED = "FAILED"
SPARK_S_MAX = 150.0


def wait_until(is_so: Callable[[], object], shop: TicketShop, wait_s_max: float = WAIT_S_MAX) -> None:
    until = time.monotonic() + wait_s_max
    while not is_so():
        assert time.monotonic() < until, shop.say()
        time.sleep(0.05)


def ends_of(shop: TicketShop, ticket_id: TicketId) -> list[str]:
    return [each.details["state"] for each in shop.list_reports(ticket_id) if each.kind is TicketReportKind.ENDED]


def has_word(attempt: ForkedAttempt) -> bool:
    """Whether the executor has written into the pipe, and nobody has read it."""
    waiting = array.array("i", [0])
    fcntl.ioctl(attempt.stdin.fileno(), termios.FIONREAD, waiting)
    return waiting[0] > 0


def check_whole(shop: TicketShop, *ticket_ids: TicketId) -> None:
    """All rows are there once, and each publication is told once."""
    assert shop.lake_rows() == shop.source_rows()
    for ticket_id in ticket_ids:
        assert set(shop.list_told(ticket_id).values()) == {1}
    assert sum((shop.list_told(each) for each in ticket_ids), Counter()) == shop.list_sequences()


@pytest.mark.every_run
def test_a_ticket_becomes_rows_and_reports(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    serving = ticket_shop.serve()

    end = ticket_shop.await_end(ticket_id)

    assert end.details["state"] == "COMPLETE", ticket_shop.say()
    check_whole(ticket_shop, ticket_id)
    assert ticket_shop.kinds(ticket_id) == ["claimed", "running", *["published"] * 4, "ended"]
    published = {
        (each.details["urn"], each.details["partition"]): each.details
        for each in ticket_shop.list_reports(ticket_id)
        if each.kind is TicketReportKind.PUBLISHED
    }
    march = published["public.orders", "2024-03-01"]
    assert (march["rows"], march["files"]) == (60, 1)
    assert march["bytes"] > 0
    ((low, high),) = march["watermarks"].values()
    assert low is None
    assert high.startswith("2024-03-30T12:00:00")
    assert published["public.customers", None]["rows"] == 9
    assert (end.details["partitions"], end.details["failed"], end.details["family"]) == (4, 0, None)
    with ticket_shop.engine.connect() as connection:
        asked = connection.execute(text("SELECT asked FROM gobblin.run")).scalar_one()
    assert asked["by"] == "gobblin-assets executor"
    shown = json.loads(ticket_shop.ask("executor", "reports", str(ticket_id), "--json"))
    assert [each["kind"] for each in shown["reports"]] == ticket_shop.kinds(ticket_id)
    assert "COMPLETE" in ticket_shop.ask("executor", "reports", str(ticket_id))
    (heard,) = ticket_shop.stores.heartbeats.list_heartbeats()
    assert (heard.beat.phase, heard.beat.slots, heard.waiting, heard.working) == ("WORKING", 2, 0, 0)
    assert heard.beat.connections is not None
    assert "jdbc.shop" in heard.beat.connections
    assert "distcp" in heard.beat.capabilities
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(WAIT_S_MAX) == 0
    (heard,) = ticket_shop.stores.heartbeats.list_heartbeats()
    assert heard.beat.phase == "ENDED"


def test_a_second_ticket_reads_what_the_ledger_lacks(ticket_shop: TicketShop) -> None:
    job = ticket_shop.make_job()
    first = ticket_shop.send(job, TicketSelection(datasets=("public.orders",), missing_max=2))
    second = ticket_shop.send(job, TicketSelection(datasets=("public.orders",)))
    third = ticket_shop.send(job, TicketSelection(datasets=("public.orders",)))
    named = ticket_shop.send(job, TicketSelection(partitions=("2024-01-01",), ranges=(("2024-02-01", "2024-03-01"),)))
    with Executor(ticket_shop, slots=1):
        ends = [ticket_shop.await_end(each) for each in (first, second, third, named)]
    partitions = [
        sorted(each.details["partition"] for each in ticket_shop.list_reports(ticket_id) if each.kind == "published")
        for ticket_id in (first, second, third)
    ]
    assert partitions == [["2024-01-01", "2024-02-01"], ["2024-03-01"], []]
    assert ends[2].details["message"] == "nothing is missing"
    assert [each.details["state"] for each in ends] == ["COMPLETE"] * 4
    rows = Counter({row: count for row, count in ticket_shop.source_rows().items() if row[0] == "public.orders"})
    assert ticket_shop.lake_rows() == rows


def test_a_ticket_s_fault_is_its_own(ticket_shop: TicketShop) -> None:
    """Tickets and jobs that are refused, whose source is away, whose code raises; and a good one behind them."""
    refused = ticket_shop.send({**ticket_shop.make_job("refused"), "datasets": [{"urn": "x", "colour": "red"}]})
    absent = ticket_shop.send(ticket_shop.make_job("absent"), TicketSelection(datasets=("public.nothing",)))
    no_kind = ticket_shop.send({"job": "odd", "kind": "juggling", "destination": "/x"})
    missing = ticket_shop.send(
        {**ticket_shop.make_job("gone"), "datasets": [{"urn": "public.gone"}], "source": {"connection": "nobody"}}
    )
    rootless = ticket_shop.send({**ticket_shop.make_job("rootless"), "destination": "carrier://pigeon/x"})
    newer = ticket_shop.send(ticket_shop.make_job("newer"))
    with ticket_shop.engine.begin() as connection:
        # As a service of a later release would send it: with a field that this executor does not know.
        newer_body = "jsonb_set(body::jsonb, '{colour}', '\"red\"')"
        connection.execute(
            text(f"UPDATE gobblin.job_ticket SET body = {newer_body}::json WHERE ticket_id = :id"), {"id": newer}
        )
    good = ticket_shop.send()
    bad = (refused, absent, no_kind, missing, rootless, newer)
    with Executor(ticket_shop, slots=2) as executor:
        ends = {each: ticket_shop.await_end(each).details for each in (*bad, good)}
    assert [each["state"] for each in ends.values()] == [FAILED] * 6 + ["COMPLETE"]
    assert [each["family"] for each in ends.values()][:6] == ["RejectedError"] * 6
    assert ends[missing]["message"].startswith("GOBBLIN_JDBC_NOBODY_URL: ")
    assert ends[rootless]["message"].startswith("destination: ")
    assert (ends[newer]["message"], ends[newer]["hint"][:10]) == ("colour: is not known here", "Known are:")
    assert "running" not in ticket_shop.kinds(newer)
    with ticket_shop.engine.connect() as connection:
        begun = connection.execute(text("SELECT DISTINCT job FROM gobblin.run")).scalars().all()
    assert "rootless" not in begun
    assert "colour" in ends[refused]["message"]
    assert "public.nothing" in ends[absent]["message"]
    assert ends[absent]["hint"]
    assert len(executor.attempts) == 7, "what was refused is not tried again"
    check_whole(ticket_shop, good)


def test_reports_hold_no_secrets(ticket_shop: TicketShop) -> None:
    """The source refuses the password; what its driver said does not tell it."""
    secret = "s3cr3t-w0rd"
    ticket_shop.environment["GOBBLIN_JDBC_SHOP_PASSWORD"] = secret
    ticket_shop.environment["GOBBLIN_JDBC_SHOP_USER"] = "nobody"
    ticket_id = ticket_shop.send()
    with Executor(ticket_shop):
        end = ticket_shop.await_end(ticket_id)
    assert end.details["state"] == FAILED
    assert end.details["message"]
    assert secret not in json.dumps([dict(each.details) for each in ticket_shop.list_reports(ticket_id)])
    assert secret not in ticket_shop.say()


def test_code_of_a_job_that_raises_is_told_by_its_kind_alone(ticket_shop: TicketShop) -> None:
    """A library's text may hold anything: it stands in the executor's own log."""
    ticket_id = ticket_shop.send()
    with Executor(ticket_shop, only_first(f"{Failpoint.DESTINATION_MARKED}=error")):
        end = ticket_shop.await_end(ticket_id)
    assert (end.details["state"], end.attempt) == (FAILED, 1)
    assert end.details["message"] == "OSError: the executor's log has the rest"
    assert "injected at destination_marked" in ticket_shop.say()


@pytest.mark.every_run
def test_a_lost_acknowledgement_of_each_write_changes_nothing(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    points = ",".join(f"{Failpoint.TICKET_REPORTED}=lose@{number}" for number in (1, 3, 5, 7))
    with Executor(ticket_shop, only_first(f"{points},{Failpoint.TICKET_ENDED}=lose")) as executor:
        end = ticket_shop.await_end(ticket_id)
    assert len(executor.attempts[0].reached()) == 5
    assert (end.details["state"], end.attempt) == ("COMPLETE", 1)
    assert ticket_shop.kinds(ticket_id) == ["claimed", "running", *["published"] * 4, "ended"]
    check_whole(ticket_shop, ticket_id)


def test_a_running_ticket_is_cancelled(ticket_shop: TicketShop) -> None:
    """It is stopped in the middle, ends as cancelled, and is tried no more; the next ticket finds the job free."""
    ticket_id = ticket_shop.send()
    stop = {ticket_id: f"{Failpoint.STAGE_COMMITTED}=stop@2"}
    with Executor(ticket_shop, lambda claim: stop.get(claim.ticket_id, "")) as executor:
        wait_until(lambda: executor.attempts and executor.attempts[0].reached(), ticket_shop)
        cancelling = ticket_shop.cancel(ticket_id)
        wait_until(lambda: has_word(executor.attempts[0]), ticket_shop)
        os.kill(executor.attempts[0].pid, signal.SIGCONT)
        assert ticket_shop.await_end(ticket_id).details["state"] == "CANCELLED"
        assert ticket_shop.await_end(cancelling).details["state"] == "COMPLETE"
        again = ticket_shop.send()
        assert ticket_shop.await_end(again).details["state"] == "COMPLETE"
    assert ends_of(ticket_shop, ticket_id) == ["CANCELLED"]
    assert ticket_shop.lake_rows() == ticket_shop.source_rows()


def test_what_does_not_end_when_it_is_cancelled_is_killed(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    with Executor(ticket_shop, only_first(f"{Failpoint.STAGE_COMMITTED}=stop"), stop_grace_s=0.5) as executor:
        wait_until(lambda: executor.attempts and executor.attempts[0].reached(), ticket_shop)
        ticket_shop.cancel(ticket_id)
        end = ticket_shop.await_end(ticket_id)
    assert end.details["state"] == "CANCELLED"
    assert executor.attempts[0].poll() == -signal.SIGKILL
    assert len(executor.attempts) == 1


def test_an_executor_that_is_asked_to_end_leaves_its_tickets_to_the_next_one(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    with Executor(ticket_shop, only_first(f"{Failpoint.STAGE_COMMITTED}=stop@2")) as first:
        wait_until(lambda: first.attempts and first.attempts[0].reached(), ticket_shop)
        os.kill(first.attempts[0].pid, signal.SIGCONT)
    assert ends_of(ticket_shop, ticket_id)[:1] in (["DRAINED"], ["COMPLETE"])
    with Executor(ticket_shop):
        assert ticket_shop.await_end(ticket_id).details["state"] == "COMPLETE"
    check_whole(ticket_shop, ticket_id)


def test_two_executors_of_a_name_run_each_ticket_once(ticket_shop: TicketShop) -> None:
    ticket_ids = [ticket_shop.send(ticket_shop.make_job(f"shop{number}")) for number in range(4)]
    with Executor(ticket_shop, owner="a") as first, Executor(ticket_shop, owner="b") as second:
        for ticket_id in ticket_ids:
            assert ticket_shop.await_end(ticket_id).details["state"] == "COMPLETE"
    assert len(first.attempts) + len(second.attempts) == len(ticket_ids)
    for number, ticket_id in enumerate(ticket_ids):
        assert ticket_shop.kinds(ticket_id) == ["claimed", "running", *["published"] * 4, "ended"]
        assert ticket_shop.lake_rows(f"shop{number}") == ticket_shop.source_rows()


def test_when_an_executor_is_killed_its_processes_end_and_another_one_takes_over(ticket_shop: TicketShop) -> None:
    ticket_id = ticket_shop.send()
    reached = ticket_shop.folder / "reached"
    first = ticket_shop.serve(
        "--claim-ttl", "3", GOBBLIN_FAILPOINT=f"{Failpoint.STAGE_COMMITTED}=stop@2", GOBBLIN_FAILPOINT_LOG=str(reached)
    )
    wait_until(lambda: find_stopped(first), ticket_shop)
    (child,) = find_stopped(first)
    # With the one that waits for a claim.
    wait_until(lambda: len(find_children(first)) == 2, ticket_shop)
    children = find_children(first)
    first.kill()
    first.wait()
    os.kill(child, signal.SIGCONT)
    ticket_shop.serve("--claim-ttl", "3")
    end = ticket_shop.await_end(ticket_id)
    assert (end.details["state"], end.attempt) == ("COMPLETE", 2)
    check_whole(ticket_shop, ticket_id)
    wait_until(lambda: all(state_of(pid) in {None, "Z"} for pid in children), ticket_shop)


def find_stopped(process: "subprocess.Popen[bytes]") -> list[int]:
    """Its processes that a failpoint stopped."""
    return [pid for pid in find_children(process) if state_of(pid) == "T"]


def find_children(process: "subprocess.Popen[bytes]") -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()]


def state_of(pid: int) -> str | None:
    """None: it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def find_jvm(attempt: ForkedAttempt) -> int | None:
    children = [
        pid for task in Path(f"/proc/{attempt.pid}/task").glob("*/children") for pid in task.read_text().split()
    ]
    return next((int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text("ascii") == "java\n"), None)


def test_a_jvm_that_outlives_its_process_delays_nothing_and_publishes_nothing(ticket_shop: TicketShop) -> None:
    """It is paused while it reads, and goes on when another attempt has published. The lease would last for minutes."""
    with ticket_shop.source.connect() as connection:
        connection.execute("ALTER TABLE orders RENAME TO kept")
        connection.execute("CREATE VIEW orders AS SELECT kept.* FROM kept CROSS JOIN (SELECT pg_sleep(2)) AS waited")
    reading = {"connection": "shop", "reader": "jdbc"}
    job = ticket_shop.make_job(source=reading, lease={"ttl_s": 300}, datasets=[{"urn": "public.orders"}])

    def is_read() -> bool:
        asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        with ticket_shop.source.connect() as connection:
            return connection.execute(asked).fetchone() == (1,) and find_jvm(executor.attempts[0]) is not None

    with Executor(ticket_shop) as executor:
        ticket_id = ticket_shop.send(job)
        wait_until(is_read, ticket_shop, SPARK_S_MAX)
        jvm = find_jvm(executor.attempts[0])
        assert jvm is not None
        os.kill(jvm, signal.SIGSTOP)
        executor.attempts[0].kill()
        wait_until(lambda: ends_of(ticket_shop, ticket_id)[1:], ticket_shop, SPARK_S_MAX)
        end = ticket_shop.await_end(ticket_id)
        os.kill(jvm, signal.SIGCONT)
    assert (end.details["state"], end.attempt) == ("COMPLETE", 2)
    wait_until(lambda: not Path(f"/proc/{jvm}").exists(), ticket_shop)
    rows = Counter({row: count for row, count in ticket_shop.source_rows().items() if row[0] == "public.orders"})
    assert ticket_shop.lake_rows() == rows
    assert ticket_shop.list_told(ticket_id) == ticket_shop.list_sequences()
    with ticket_shop.engine.connect() as connection:
        ended = connection.execute(text("SELECT state, error FROM gobblin.run ORDER BY started_at")).all()
    assert [tuple(each) for each in ended] == [("FAILED", "its process died of signal 9"), ("COMMITTED", None)]


@pytest.mark.parametrize(
    "kills",
    [
        f"{Failpoint.TICKET_CLAIMED}=kill",
        f"{Failpoint.CLAIMS_RENEWED}=kill",
        # Of an attempt, and then of the executor that ends what it left.
        f"{Failpoint.SEAL_COMMITTED}=kill,{Failpoint.DEAD_RUN_ENDED}=kill",
    ],
)
def test_an_executor_that_is_killed_at_its_own_writes_is_followed(ticket_shop: TicketShop, kills: str) -> None:
    ticket_id = ticket_shop.send()
    first = ticket_shop.serve("--claim-ttl", "2", GOBBLIN_FAILPOINT=kills)
    assert first.wait(WAIT_S_MAX) == -signal.SIGKILL
    with Executor(ticket_shop):
        end = ticket_shop.await_end(ticket_id)
    assert (end.details["state"], end.attempt) == ("COMPLETE", 2)
    check_whole(ticket_shop, ticket_id)


def test_late_reports_of_an_executor_that_was_paused_past_its_claim_are_refused(ticket_shop: TicketShop) -> None:
    """Its process wakes up when another attempt has come; what it had staged is not published twice."""
    ticket_id = ticket_shop.send()
    reached = ticket_shop.folder / "reached"
    first = ticket_shop.serve(
        "--claim-ttl", "2", GOBBLIN_FAILPOINT=f"{Failpoint.FINISH_COMMITTED}=stop", GOBBLIN_FAILPOINT_LOG=str(reached)
    )
    wait_until(lambda: find_stopped(first), ticket_shop)
    (child,) = find_stopped(first)
    first.send_signal(signal.SIGSTOP)
    with Executor(ticket_shop, owner="second"):
        second = ticket_shop.await_report(ticket_id, lambda report: report.attempt == 2)
        os.kill(child, signal.SIGCONT)
        first.send_signal(signal.SIGCONT)
        end = ticket_shop.await_end(ticket_id)
    assert second.details["owner"] == "second"
    assert (end.details["state"], end.attempt) == ("COMPLETE", 2)
    check_whole(ticket_shop, ticket_id)
    late = [each for each in ticket_shop.list_reports(ticket_id) if each.attempt == 1 and each.at > second.at]
    assert late == []
    wait_until(lambda: not Path(f"/proc/{child}").exists(), ticket_shop)


def test_attempts_that_all_die_end_the_ticket(ticket_shop: TicketShop) -> None:
    job = ticket_shop.make_job()
    # Each attempt publishes one of its partitions, and leaves more than the next ones can.
    job["datasets"][0]["partitions"]["end"] = "2024-08-01"
    ticket_id = ticket_shop.send(job)
    with Executor(ticket_shop, lambda _claim: f"{Failpoint.FINISHED_BEFORE_EVENTS}=kill") as executor:
        expire_pauses(ticket_shop, ticket_id)
        end = ticket_shop.await_end(ticket_id)
    assert (end.details["state"], end.attempt) == ("FAILED", 5)
    assert "5 attempts died" in end.details["message"]
    assert len(executor.attempts) == 5
    assert ticket_shop.list_told(ticket_id) == ticket_shop.list_sequences(), "also what the last one published"


def expire_pauses(shop: TicketShop, ticket_id: TicketId) -> None:
    """Let neither leases nor pauses of dead attempts delay the next one, until the last has begun."""

    def is_last() -> bool:
        with shop.engine.begin() as connection:
            connection.execute(
                text("UPDATE gobblin.ticket_claim SET ended_at = ended_at - interval '1 h' WHERE ended_at IS NOT NULL")
            )
            if connection.execute(text("SELECT count(*) FROM gobblin.ticket_claim WHERE ended_at IS NULL")).scalar():
                return any(each.attempt == 5 for each in shop.list_reports(ticket_id))
        return any(each.attempt == 5 for each in shop.list_reports(ticket_id))

    wait_until(is_last, shop)


def test_behind_an_upgrade_of_the_log_an_executor_of_before_ends(ticket_shop: TicketShop) -> None:
    executor = ticket_shop.serve()
    wait_until(lambda: "slots" in ticket_shop.say(), ticket_shop)
    with ticket_shop.engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.alembic_version SET version_num = '9999'"))
    ticket_id = ticket_shop.send()
    assert executor.wait(WAIT_S_MAX) == 2, ticket_shop.say()
    assert "Upgrade the package gobblin-assets" in ticket_shop.say()
    assert ticket_shop.kinds(ticket_id) == []


def test_while_the_log_is_away_the_executor_stays_and_goes_on(ticket_shop: TicketShop, server: EmbeddedServer) -> None:
    """The database takes no connections for a while, and those that were open are gone."""
    name = str(ticket_shop.engine.url.database)
    with Executor(ticket_shop) as executor, maintenance(server) as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(sql.Identifier(name)))
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        wait_until(lambda: executor.lines, ticket_shop)
        connection.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(sql.Identifier(name)))
        ticket_id = ticket_shop.send()
        assert ticket_shop.await_end(ticket_id).details["state"] == "COMPLETE"
    check_whole(ticket_shop, ticket_id)


def test_a_cancel_of_nothing_fails(ticket_shop: TicketShop) -> None:
    cancelling = ticket_shop.cancel(TicketId(uuid.uuid4()))
    with Executor(ticket_shop):
        end: TicketReport = ticket_shop.await_end(cancelling)
    assert end.details["state"] == "FAILED"


@pytest.mark.parametrize(
    ("asked", "expected"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"}, "mimalloc")]
)
def test_a_worker_has_an_allocator_that_does_not_grow_with_each_publication(
    asked: dict[str, str], expected: str
) -> None:
    """``make soak`` shows how much a worker takes. An attempt that gets no claim has all imports done."""
    asks = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    runs = "from gobblin_assets.cli import main; main(['executor', 'run'], standalone_mode=False)"
    others = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    found = subprocess.run(
        [sys.executable, "-c", f"{runs}\n{asks}"],
        stdin=subprocess.DEVNULL,
        env=others | asked,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == [expected], found.stderr
