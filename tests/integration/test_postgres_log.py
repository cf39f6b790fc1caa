"""Tables of a real Postgres by their change logs, from the job file to the published rows."""

import errno
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.dataset_sink import HeldLane
from gobblin_assets.jobs.sink.lane_writer import Cut
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.rows.current_reader import find_current
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.sources.log_port import Barrier
from gobblin_assets.sources.postgres_log import slot_reader
from gobblin_assets.sources.postgres_log.server_state import LogSession
from tests.support.changed_tables import JOB, ChangedTables, ShopWriting, set_log_variables
from tests.support.postgres import Database
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)


@pytest.fixture
def tables(tmp_path: Path, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> ChangedTables:
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    made.do(
        "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12, 2), at timestamptz)",
        "CREATE TABLE notes (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE notes ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
        "INSERT INTO orders SELECT n, 'c' || n, n / 7.0, now() FROM generate_series(1, 1000) n",
        "INSERT INTO notes SELECT n, repeat('x', 5000), n FROM generate_series(1, 20) n",
    )
    set_log_variables(made, monkeypatch)
    return made


def ops_of(tables: ChangedTables, table: str) -> "Counter[str]":
    return Counter(tables.log_of(table)["_op"].to_pylist())


@pytest.mark.core
def test_a_copy_and_the_changes_behind_it_rebuild_the_tables(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
        assert ops_of(tables, "orders") == {"r": 1000}
        tables.do(
            "UPDATE orders SET amount = amount + 1 WHERE id <= 10",
            "DELETE FROM orders WHERE id > 990",
            "INSERT INTO orders VALUES (5000, NULL, NULL, NULL)",
            "UPDATE notes SET n = n + 1",
        )
        tables.do("UPDATE orders SET id = 6000 WHERE id = 1", "UPDATE notes SET id = 100 WHERE id = 1")
        tables.await_published()
    assert ops_of(tables, "orders") == {"r": 1000, "u": 11, "d": 10, "c": 1, "b": 1}
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")


def test_columns_come_go_and_widen_and_truncates_empty_the_table(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
        tables.do(
            "INSERT INTO notes VALUES (1000, 'before', 1)",
            "ALTER TABLE notes ADD COLUMN tag text",
            "INSERT INTO notes VALUES (1001, 'behind', 2, 'new')",
        )
        tables.do("ALTER TABLE notes ALTER COLUMN n TYPE bigint", "UPDATE notes SET n = 3000000000 WHERE id = 1001")
        tables.do("ALTER TABLE notes DROP COLUMN tag", "INSERT INTO notes VALUES (1002, 'last', 3)")
        tables.await_published("notes")
        tables.do("TRUNCATE orders", "INSERT INTO orders VALUES (1, 'again', 1, NULL)")
        tables.await_published("orders")
    assert ops_of(tables, "orders") == {"r": 1000, "t": 1, "c": 1}
    tables.require_same("orders", "id")
    rows = {row["id"]: row for row in tables.log_of("notes").to_pylist()}
    assert (rows[1000]["tag"], rows[1001]["tag"], rows[1001]["n"], rows[1002]["tag"]) == (None, "new", 3000000000, None)


def test_a_table_without_a_key_has_whole_rows_before_each_change(tables: ChangedTables) -> None:
    tables.do("CREATE TABLE plain (a int, b text)", "ALTER TABLE plain REPLICA IDENTITY FULL")
    tables.do("ALTER PUBLICATION lake ADD TABLE plain", "INSERT INTO plain VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    tables.tables = [*tables.tables, "plain"]
    with tables.working():
        tables.await_published()
        tables.do("UPDATE plain SET b = 'y' WHERE ctid = (SELECT min(ctid) FROM plain)", "INSERT INTO plain VALUES (2)")
        tables.do("DELETE FROM plain WHERE a IS NULL")
        tables.await_published("plain")
    assert ops_of(tables, "plain") == {"r": 3, "b": 1, "u": 1, "c": 1, "d": 1}
    tables.require_same("plain", None)


def test_a_table_that_joins_later_is_copied_while_the_others_go_on(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
    tables.do("CREATE TABLE late (id int PRIMARY KEY, b text)", "ALTER PUBLICATION lake ADD TABLE late")
    tables.do("INSERT INTO late SELECT n, 'l' FROM generate_series(1, 50) n", "UPDATE orders SET customer = 'z'")
    tables.tables = [*tables.tables, "late"]
    with tables.working():
        tables.await_published("late", "orders")
        tables.do("UPDATE late SET b = 'm' WHERE id < 3", "DELETE FROM orders WHERE id = 7")
        tables.await_published("late", "orders")
    assert ops_of(tables, "late") == {"r": 50, "u": 2}
    assert ops_of(tables, "orders") == {"r": 1000, "u": 1000, "d": 1}
    tables.require_same("late", "id")
    tables.require_same("orders", "id")


@pytest.mark.core
def test_tables_that_are_written_to_all_the_while_are_rebuilt_exactly(tables: ChangedTables) -> None:
    """Many transactions end while the copies are made: some before a snapshot, some behind it, some never."""
    with ShopWriting(tables.database, seed=1):
        with tables.working():
            tables.await_copied("orders")
            tables.await_copied("notes")
        with tables.working():
            tables.await_published("orders", "notes")
    with tables.working():
        tables.await_published("orders", "notes")
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")


def test_a_copy_waits_for_the_newest_transaction_as_well(tables: ChangedTables) -> None:
    """Its commit may be in the log already, and not yet seen; nothing newer says that it is there."""
    with tables.working():
        tables.await_published()
    tables.do("CREATE TABLE late (id int PRIMARY KEY, b text)", "ALTER PUBLICATION lake ADD TABLE late")
    tables.tables = [*tables.tables, "late"]
    with tables.database.connect(autocommit=False) as newest:
        newest.execute("INSERT INTO late VALUES (1, 'running')")
        with tables.working():
            tables.await_said("the copy waits for transactions")
            newest.commit()
            tables.await_copied("late")
    tables.require_same("late", "id")


@pytest.mark.core
def test_the_slot_is_never_ahead_of_what_is_published(tables: ChangedTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while only what nobody reads is written, which nothing is published of for a minute."""
    monkeypatch.setattr(slot_reader, "CONFIRM_EVERY_S", 0.1)
    tables.do("CREATE TABLE unread (id int)")
    with tables.working():
        tables.await_published()
        for number in range(8):
            tables.do(f"INSERT INTO unread VALUES ({number})")
            time.sleep(0.15)
        confirmed = tables.ask(
            "SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = 'gobblin_shop'"
        )
        assert 0 < confirmed <= min(tables.published_to("orders"), tables.published_to("notes"))


def test_changes_that_a_stranger_has_read_stop_the_table(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
    tables.do("INSERT INTO notes VALUES (77, 'lost', 0)")
    with tables.database.connect() as stranger:
        stranger.execute(
            "SELECT count(*) FROM pg_logical_slot_get_binary_changes('gobblin_shop', NULL, NULL,"
            " 'proto_version', '1', 'publication_names', 'lake')"
        )
    with tables.working():
        tables.await_said("somebody else has read it")
    assert ops_of(tables, "notes") == {"r": 20}


def test_a_slot_that_is_gone_stops_the_tables(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published()
    tables.ask("SELECT pg_drop_replication_slot('gobblin_shop')::text")
    with tables.working():
        tables.await_said("the replication slot gobblin_shop is gone")
        tables.await_said("sink recopy")
    assert tables.ask("SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'gobblin_shop'") == 0


def test_a_slot_that_is_made_anew_behind_the_worker_s_look_stops_the_tables(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server begins where the new slot does, and says nothing of what came before."""
    of_slot = "FROM pg_replication_slots WHERE slot_name = 'gobblin_shop'"
    is_due = threading.Event()
    end_other_reader = slot_reader.end_other_reader

    def act_before_the_stream(session: LogSession, slot: str, job: str) -> None:
        end_other_reader(session, slot, job)
        if is_due.is_set():
            is_due.clear()
            tables.do("INSERT INTO notes VALUES (77, 'lost', 0)")
            tables.ask("SELECT pg_drop_replication_slot('gobblin_shop')::text")
            tables.ask("SELECT pg_create_logical_replication_slot('gobblin_shop', 'pgoutput')::text")

    monkeypatch.setattr(slot_reader, "end_other_reader", act_before_the_stream)
    with tables.working():
        tables.await_published()
        wait_until(lambda: tables.ask(f"SELECT count(active_pid) {of_slot}") == 1, "the slot is read")
        is_due.set()
        tables.ask(f"SELECT pg_terminate_backend(active_pid)::text {of_slot}")
        wait_until(lambda: not is_due.is_set(), "the stream begins anew")
        tables.do("INSERT INTO notes VALUES (78, 'behind it', 0)")
        tables.await_said("it was made anew")
        tables.await_said("sink recopy")
    assert ops_of(tables, "notes") == {"r": 20}


def test_a_table_that_fails_at_a_barrier_has_no_other_one_published_twice(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One table's lane fails before the other one has passed the barrier; more is written before the next barrier."""
    passing, failures = HeldLane.pass_barrier, [OSError(errno.ENOSPC, "No space left on device")]
    tables.options = {"sink": {"every_s": 2, "roll": {"age_s": 0}}}

    def fails_once(lane: HeldLane, barrier: Barrier) -> Cut | None:
        if lane.writer.has_rows and failures:
            raise failures.pop()
        return passing(lane, barrier)

    with tables.working():
        tables.await_published()
        monkeypatch.setattr(HeldLane, "pass_barrier", fails_once)
        tables.do("UPDATE orders SET amount = amount + 1 WHERE id <= 10", "UPDATE notes SET n = n + 1")
        tables.await_said("No space left on device")
        tables.do("DELETE FROM orders WHERE id = 1000", "DELETE FROM notes WHERE id = 20")
        tables.await_published()
    assert ops_of(tables, "orders") == {"r": 1000, "u": 10, "d": 1}
    assert ops_of(tables, "notes") == {"r": 20, "u": 20, "d": 1}


def test_messages_of_a_prefix_are_a_dataset(tables: ChangedTables) -> None:
    tables.options = {"datasets": [{"urn": "outbox", "message": "shop.outbox"}, {"urn": "public.notes"}]}
    with tables.working():
        tables.await_published("notes")
        wait_until(lambda: tables.log_of("outbox", schema=None).num_rows == 0, "the dataset is there")
        tables.do(
            "SELECT pg_logical_emit_message(true, 'shop.outbox', 'one')",
            "INSERT INTO notes VALUES (500, 'beside', 0)",
            "SELECT pg_logical_emit_message(true, 'other', 'not mine')",
            "SELECT pg_logical_emit_message(true, 'shop.outbox', 'two')",
        )
        with tables.database.connect(autocommit=False) as connection:
            connection.execute("SELECT pg_logical_emit_message(true, 'shop.outbox', 'rolled back')")
            connection.rollback()
        tables.do("SELECT pg_logical_emit_message(false, 'shop.outbox', 'at once')")
        wait_until(lambda: tables.log_of("outbox", schema=None).num_rows == 3, f"all messages; {tables.said}")
    with tables.working():
        tables.do("SELECT pg_logical_emit_message(true, 'shop.outbox', 'later')")
        wait_until(lambda: tables.log_of("outbox", schema=None).num_rows == 4, f"all messages; {tables.said}")
    rows = tables.log_of("outbox", schema=None).to_pylist()
    found = [(row["content"], row["_seq"]) for row in rows]
    assert found == [(b"one", 1), (b"two", 4), (b"at once", None), (b"later", 1)]
    with pytest.raises(RejectedError, match="has messages, and no rows of a table"):
        find_current(open_stores(tables.engine).published, JobName(JOB), DatasetUrn("outbox"))


def test_a_key_that_changes_stops_the_table_and_no_other(tables: ChangedTables) -> None:
    with tables.working():
        tables.await_published("orders", "notes")
        tables.do("ALTER TABLE notes DROP CONSTRAINT notes_pkey", "ALTER TABLE notes ADD PRIMARY KEY (id, n)")
        tables.do("INSERT INTO notes VALUES (600, 'x', 1)", "INSERT INTO orders VALUES (7000, 'x', 1, NULL)")
        tables.await_published("orders")
        tables.await_said("were told apart by id, and are by id, n now")
    assert ops_of(tables, "notes") == {"r": 20}
    tables.require_same("orders", "id")


def test_the_slot_of_an_idle_database_is_confirmed_no_further_than_what_is_published(
    tables: ChangedTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's log moves without rows, and the server says how far it is, long before an empty cut is due."""
    monkeypatch.setattr(slot_reader, "CONFIRM_EVERY_S", 0.05)
    confirmed = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = 'gobblin_shop'"
    tables.do("CREATE TABLE unpublished (n int)")
    with tables.working():
        tables.await_published()
    with tables.working():
        for number in range(20):
            tables.do(f"INSERT INTO unpublished VALUES ({number})")
            time.sleep(0.1)
            assert tables.ask(confirmed) <= min(tables.published_to("orders"), tables.published_to("notes"))
        tables.do("UPDATE orders SET amount = 1 WHERE id = 1")
        tables.await_published("orders")
    assert ops_of(tables, "orders") == {"r": 1000, "u": 1}


def test_without_a_first_copy_only_what_changes_from_then_on_is_published(tables: ChangedTables) -> None:
    tables.source = {"first_copy": False}
    with tables.working():
        tables.await_copied("orders")
        tables.await_copied("notes")
        tables.do("UPDATE orders SET customer = 'z' WHERE id < 4", "DELETE FROM notes WHERE id = 1")
        tables.await_published("orders", "notes")
    assert (ops_of(tables, "orders"), ops_of(tables, "notes")) == ({"u": 3}, {"d": 1})


@pytest.mark.parametrize(("first", "second"), [("shop", "other"), ("other", "shop")])
def test_a_slot_that_another_job_reads_is_left_to_it_and_the_job_is_named(
    tables: ChangedTables, first: str, second: str
) -> None:
    of_slot = "FROM pg_replication_slots WHERE slot_name = 'both'"
    source = {**tables.source, "slot": "both"}

    def make(job: str) -> ChangedTables:
        return replace(
            tables, folder=tables.folder / job, source=source, options={**tables.options, "job": job}, said=[]
        )

    reader, other = make(first), make(second)
    with reader.working():
        reader.await_published()
        wait_until(lambda: tables.ask(f"SELECT count(active_pid) {of_slot}") == 1, "the slot is read")
        process = tables.ask(f"SELECT active_pid {of_slot}")
        with other.working():
            other.await_said(f"is read by the job '{first}'")
            tables.do("INSERT INTO notes VALUES (77, 'it goes on', 0)")
            reader.await_published("notes")
        assert tables.ask(f"SELECT active_pid {of_slot}") == process, "its session was ended"
