"""What every kind of test may ask for: a Postgres, and a database of its own in it."""

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from sqlalchemy import Engine

from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.schema_history import LOG_HISTORY
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from tests.support import logical_postgres, postgres, processor_time, reaper, shares, work_groups
from tests.support.cloud_servers import azurite, cloud, fake_gcs, paged
from tests.support.database_pool import DatabasePool
from tests.support.forked_commands import commands
from tests.support.hdfs_server import hdfs_server
from tests.support.kafka import kafka_broker, module_topic, topic
from tests.support.postgres import Database, SessionHome
from tests.support.running_service import service, shared_service
from tests.support.s3_servers import moto, s3proxy, versitygw
from tests.support.sftp_servers import openssh, python_sftp, sftp_server
from tests.support.shares import Share

# Fixtures of servers. A name that another module repeats is another fixture, with a server of its own.
__all__ = [
    "azurite",
    "cloud",
    "commands",
    "fake_gcs",
    "hdfs_server",
    "kafka_broker",
    "module_topic",
    "moto",
    "openssh",
    "paged",
    "python_sftp",
    "s3proxy",
    "service",
    "sftp_server",
    "shared_service",
    "topic",
    "versitygw",
]

# An example's duration depends on the machine's other work.
hypothesis.settings.register_profile(
    "unhurried", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("unhurried")

# For every JVM that a test starts, Spark's and Kafka's. It ends before the second compiler's work has paid for itself,
# and its heap is small. Java's launcher reads this variable in every process.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

_SESSION_HOME = pytest.StashKey[SessionHome]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-budgets",
        action="store_true",
        help="write to tests/budgets.json what the directories cost that this run tries whole",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(processor_time.ProcessorTime(config))
    config.pluginmanager.register(work_groups.WorkGroups(config))
    # Of two hooks that want to be first, the one that is registered last is: groups ask which tests are left out.
    config.pluginmanager.register(shares.Shares(config))
    if not hasattr(config, "workerinput"):
        reaper.start_reaper()
        config.stash[_SESSION_HOME] = SessionHome()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a look for garbage, and never look at what was collected.

    Modules and tests are a million objects that stay. To look at them again and again takes a third of the time in
    which they are made, and then of each long test a part.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def variables_stay() -> Iterator[None]:
    """A test gives the product's variables back as it found them, or it fails instead of a later test."""
    before = _read_variables()
    yield
    if (left := _read_variables()) == before:
        return
    for name in left.keys() | before.keys():
        os.environ.pop(name, None)
    os.environ.update(before)
    changed = sorted(name for name in left.keys() | before.keys() if left.get(name) != before.get(name))
    pytest.fail(f"the test left variables changed: {', '.join(changed)}")


def _read_variables() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("GOBBLIN_")}


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SESSION_HOME in config.stash:
        config.stash[_SESSION_HOME].close()


@pytest.fixture(scope="session")
def share() -> Share:
    """The part of its histories that a test tries in this run."""
    return Share(shares.read_seed())


@pytest.fixture(scope="session")
def server() -> EmbeddedServer:
    """The session's Postgres. Tests that stop or kill a server take ``home`` and start their own."""
    return postgres.start_session_server()


@pytest.fixture(scope="session")
def database_pool() -> DatabasePool:
    """Databases that tests of this process gave back."""
    return DatabasePool()


@pytest.fixture(scope="session")
def service_pool() -> DatabasePool:
    """The same with the service's schema beside the log's."""
    return DatabasePool((LOG_HISTORY, SERVICE_HISTORY))


@pytest.fixture
def database_url(
    request: pytest.FixtureRequest, server: EmbeddedServer, database_pool: DatabasePool, service_pool: DatabasePool
) -> Iterator[str]:
    """A migrated database of the test's own, as a URL without a secret that other processes can be given too."""
    pool = database_pool if request.node.get_closest_marker("service_schema") is None else service_pool
    with postgres.migrated_database(server, pool) as name:
        yield server.url(name)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on the same database as ``database_url``."""
    opened = open_external(database_url)
    yield opened
    opened.dispose()


@pytest.fixture
def fresh_database(server: EmbeddedServer) -> Iterator[Database]:
    """An empty database, to play a source."""
    with postgres.temporary_database(server) as name:
        yield postgres.describe_database(server, name)


@pytest.fixture(scope="session")
def logical_server() -> EmbeddedServer:
    """The session's Postgres with ``wal_level = logical``. Tests that stop or kill one start their own."""
    return logical_postgres.start_logical_server()


@pytest.fixture
def source_database(logical_server: EmbeddedServer) -> Iterator[Database]:
    """An empty database whose changes can be decoded; its slots are dropped when the test is over."""
    with logical_postgres.logical_database(logical_server) as database:
        yield database


@pytest.fixture
def home() -> Iterator[Path]:
    """An empty home for a server of the test's own, which is stopped when the test is over."""
    made = postgres.make_reachable_directory("gobblin-home-")
    yield made
    embedded.stop(made)
    shutil.rmtree(made)
