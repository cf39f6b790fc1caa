"""A log that is restored to an earlier moment while the storage goes on: a copy of the database is the backup."""

import dataclasses
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from psycopg import sql
from sqlalchemy import make_url

from gobblin_assets import failpoints
from gobblin_assets.commit.examination import Examination, LogFinding
from gobblin_assets.commit.reconciliation import Reconciled, Reconciliation, Way
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.maintenance_run import MaintenanceRun, examination_of
from tests.support.forks import FORKS
from tests.support.lake import JOB, Lake, World
from tests.support.postgres import maintenance
from tests.support.workers import Worker

Backup = Callable[[World], World]
"""Gives the world as it will be after a restore: the same storage and source, under the log of this moment."""

_count = itertools.count()


@contextmanager
def backups(server: EmbeddedServer) -> Iterator[Backup]:
    with ExitStack() as stack:

        def take(world: World) -> World:
            # CREATE DATABASE … TEMPLATE refuses a source that anybody is connected to.
            world.engine.dispose()
            url = stack.enter_context(copied(server, world.lake.database_url))
            restored = dataclasses.replace(world.lake, database_url=url).open_world()
            stack.callback(restored.close)
            return restored

        yield take


@contextmanager
def copied(server: EmbeddedServer, database_url: str) -> Iterator[str]:
    """The URL of a copy of the database, to which nobody is connected."""
    source, name = make_url(database_url).database, f"test_{uuid.uuid4().hex}"
    assert source is not None
    with maintenance(server) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source))
        )
    try:
        yield server.url(name)
    finally:
        with maintenance(server) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def examine(world: World, urn: str) -> LogFinding:
    return _examination_of(world).look_at(DatasetUrn(urn), thoroughly=True)


def reconcile(world: World, urn: str, way: Way) -> Reconciled:
    """Reconcile like the command line; raises the error if something could not be done."""
    operations = world.operations()
    reconciliation = Reconciliation(operations, _examination_of(world), world.stores.lanes, world.lake.work_root)
    repair = MaintenanceRun(operations, world.stores, JobName(JOB))
    done, failures = repair.reconcile(reconciliation, [examine(world, urn)], way)
    for error in failures.values():
        raise error
    return done[0]


def start_reconciliation(lake: Lake, urn: str, way: Way, *, failpoint: str) -> Worker:
    """Reconcile in a process of its own, to be killed."""
    log = Path(lake.directory, f"reconciliation-{next(_count)}.log")
    process = FORKS.Process(target=_work, args=(lake, urn, way, failpoint, str(log)))
    process.start()
    return Worker(process, log)


def _work(lake: Lake, urn: str, way: Way, failpoint: str, log: str) -> None:
    world = lake.open_world()
    failpoints.arm(failpoint, log)
    reconcile(world, urn, way)


def _examination_of(world: World) -> Examination:
    fs, root = open_file_system(world.lake.work_root)
    return examination_of(world.stores, JobName(JOB), fs, root)
