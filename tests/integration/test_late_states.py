"""A worker publishes and moves the slot between another process' two looks: no stranger has read it then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.sink.catching_up import CatchingUp, plan_catching_up
from gobblin_assets.jobs.sink.running import open_log_connection, read_sink_datasets
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.datasets import DatasetStore
from tests.support.changed_tables import JOB, ChangedTables, set_log_variables
from tests.support.postgres import Database
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=4)

URNS = [DatasetUrn("public.orders"), DatasetUrn("public.notes")]
_STRANGER = """
    SELECT count(*) FROM pg_logical_slot_get_binary_changes('gobblin_shop', NULL, NULL, 'proto_version', '1',
                                                            'publication_names', 'lake')"""


@dataclass
class LateStates:
    """``DatasetStore`` whose first answer was given before somebody published."""

    store: DatasetStore
    late: Mapping[DatasetUrn, DatasetState] | None

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        found, self.late = self.late, None
        return self.store.load(job, urns) if found is None else {urn: found[urn] for urn in urns}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


@pytest.fixture
def tables(tmp_path: Path, source_database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> ChangedTables:
    made = ChangedTables(tmp_path, source_database, engine, ["orders", "notes"])
    made.do(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE notes (id int PRIMARY KEY)",
        "CREATE PUBLICATION lake FOR TABLE orders, notes",
    )
    set_log_variables(made, monkeypatch)
    return made


@pytest.fixture
def late(tables: ChangedTables) -> dict[DatasetUrn, DatasetState]:
    """The states before a publication behind which the slot has moved."""
    with tables.working():
        tables.await_published()
        found = dict(open_stores(tables.engine).datasets.load(JobName(JOB), URNS))
        before = max(tables.published_to(table) for table in tables.tables)
        tables.do("INSERT INTO orders VALUES (1)", "INSERT INTO notes VALUES (1)")
        tables.await_published()
        wait_until(lambda: confirmed(tables) > before, "the slot has moved")
    return found


def confirmed(tables: ChangedTables) -> int:
    return int(tables.ask("SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots"))


def make_late(stores: Stores, late: Mapping[DatasetUrn, DatasetState]) -> Stores:
    return replace(stores, datasets=LateStates(stores.datasets, late))


def plan(tables: ChangedTables, late: Mapping[DatasetUrn, DatasetState]) -> CatchingUp:
    job = tables.job
    stores = make_late(open_stores(tables.engine), late)
    return plan_catching_up(
        job, read_sink_datasets(job), open_log_connection(job), stores, SystemClock(), lambda _seconds: True
    )


def test_a_run_begins_beside_a_worker_that_publishes(
    tables: ChangedTables, late: dict[DatasetUrn, DatasetState]
) -> None:
    assert plan(tables, late).end >= confirmed(tables)


def test_a_run_whose_work_is_done_stays_so(tables: ChangedTables, late: dict[DatasetUrn, DatasetState]) -> None:
    """The worker looks at the answer of each other call only."""
    catching = plan(tables, late)
    catching.stop, catching.end = lambda _seconds: False, confirmed(tables)
    assert [catching.wait(0.0) for _call in range(3)] == [True, True, True]


def test_a_worker_begins_beside_one_that_publishes(tables: ChangedTables, late: dict[DatasetUrn, DatasetState]) -> None:
    tables.said.clear()
    tables.wrap = lambda stores: make_late(stores, late)
    with tables.working():
        tables.do("INSERT INTO orders VALUES (2)", "INSERT INTO notes VALUES (2)")
        tables.await_published()
    assert not [line for line in tables.said if "rest" in line], tables.said
    tables.require_same("orders", "id")
    tables.require_same("notes", "id")


def test_a_stranger_is_seen_whatever_the_first_look_gave(
    tables: ChangedTables, late: dict[DatasetUrn, DatasetState]
) -> None:
    tables.do("INSERT INTO orders VALUES (3)", "INSERT INTO notes VALUES (3)")
    tables.ask(_STRANGER)
    with pytest.raises(RejectedError, match="somebody else has read it"):
        plan(tables, late)
    tables.wrap = lambda stores: make_late(stores, late)
    with tables.working():
        tables.await_said("public.orders: the slot gobblin_shop is confirmed up to")
        tables.await_said("public.notes: the slot gobblin_shop is confirmed up to")
