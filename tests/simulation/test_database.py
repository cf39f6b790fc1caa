"""The simulated database itself: copies, refused transactions, and the digest that tells worlds apart."""

import subprocess
import sys

import pytest

from gobblin_assets.errors import ConflictError
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName
from tests.simulation.database import SimDatabase
from tests.simulation.rows import DatasetRow
from tests.simulation.state_stores import SimDatasetStore
from tests.support.commit_log import TTL_S, LogWorld, move, open_simulated

JOB = JobName("shop")
# From where the first publication left the key to positions that the key already holds.
BACK = move(10, 8, low=5)

IN_ANOTHER_PROCESS = """
from tests.simulation.test_database import known_world
print(known_world().fingerprint())
"""


def known_world() -> SimDatabase:
    """The same rows in every process: none of them depends on chance."""
    db = SimDatabase(now_s=5.0)
    SimDatasetStore(db).register(JOB, [DatasetUrn(urn) for urn in ("orders", "items", "Größe")])
    return db


@pytest.fixture
def db() -> SimDatabase:
    return SimDatabase()


@pytest.fixture
def log(db: SimDatabase) -> LogWorld:
    return open_simulated(db)


def test_a_refused_transaction_leaves_every_table_as_it_was(db: SimDatabase, log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease)
    # Its last table refuses it: version, segments and watermark were written before.
    again = log.prepare(lease, moves=[BACK])
    before = db.fingerprint()

    with pytest.raises(ConflictError, match="ledger"):
        log.commits.finish(again.sequence_id, fence=lease.fence)

    assert db.fingerprint() == before


def test_an_exception_in_a_transaction_takes_back_new_and_changed_rows(db: SimDatabase, log: LogWorld) -> None:
    orders = log.register("orders")
    before = dict(db.datasets)

    def fail() -> None:
        with db.transaction():
            db.datasets.put(orders, DatasetRow(orders, JOB, DatasetUrn("changed")))
            db.datasets.put(orders, DatasetRow(orders, JOB, DatasetUrn("changed again")))
            db.datasets.put(DatasetId(99), DatasetRow(DatasetId(99), JOB, DatasetUrn("new")))
            raise KeyError("stop")

    with pytest.raises(KeyError):
        fail()
    assert db.datasets == before


def test_a_copy_goes_its_own_way(db: SimDatabase, log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease)
    twin = db.copy()
    assert (twin.fingerprint(), twin.now_s, twin.without) == (db.fingerprint(), db.now_s, db.without)
    before = twin.fingerprint()

    log.publish(lease)
    log.advance(10)

    assert twin.fingerprint() == before != db.fingerprint()
    other = open_simulated(twin)
    other.names.update(log.names)
    other.publish(lease)
    assert [state.version for state in (log.state_of(lease.dataset_id), other.state_of(lease.dataset_id))] == [2, 2]


def test_a_restored_backup_forgets_and_its_clock_goes_on(db: SimDatabase, log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    log.publish(lease)
    backup = db.copy()
    log.publish(lease)
    log.advance(TTL_S + 1)

    db.restore(backup)

    assert log.state_of(lease.dataset_id).version == 1
    assert not log.leases.get_status(lease.dataset_id).is_live
    # A transaction that is refused after the restore is undone in the restored tables, not in the earlier ones.
    with pytest.raises(ConflictError):
        log.prepare(lease, moves=[BACK, BACK])
    fresh = log.take(lease.dataset_id)
    log.publish(fresh)
    assert len(backup.sequences) == 1


def test_worlds_that_differ_only_in_when_they_happened_are_equal() -> None:
    early, late = SimDatabase(now_s=0.0), SimDatabase(now_s=1_000_000.0)
    for db in (early, late):
        stores = open_simulated(db)
        stores.register("orders")
        db.advance(3.5)
    assert early.fingerprint() == late.fingerprint()


def test_how_long_a_lease_lives_still_counts(db: SimDatabase, log: LogWorld) -> None:
    log.take(log.register("orders"))
    before = db.fingerprint()
    log.advance(1)
    assert db.fingerprint() != before


def test_the_digest_is_the_same_in_every_process() -> None:
    answer = subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == known_world().fingerprint()
