"""The commit log as programs open it: all stores over one Postgres, and the overview."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from gobblin_assets.commit.postgres import PostgresCommitStepStore, PostgresDestinationStore
from gobblin_assets.commit.postgres.lanes import PostgresLaneStore
from gobblin_assets.commit.published.postgres import PostgresPublishedFiles
from gobblin_assets.db.engine import connect
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.postgres import (
    PostgresDatasetStore,
    PostgresEventStore,
    PostgresLeaseStore,
    PostgresRateShareStore,
    PostgresRunStore,
    PostgresSinkWindowStore,
    PostgresSinkWorkerStore,
)
from gobblin_assets.state.postgres.overview import PostgresOverview
from gobblin_assets.state.postgres.reports import PostgresReportStore


@dataclass(frozen=True, slots=True)
class Log:
    """The commit log, for reading and for operations."""

    stores: Stores
    overview: Overview


@contextmanager
def open_log(say: Callable[[str], None] = unheard) -> Iterator[Log]:
    """The log of GOBBLIN_DATABASE_URL, else the embedded one, started if necessary. ``say`` gets lines about that.

    Raises:
        RetryableError: the server does not answer.
        RejectedError: the URL, the login or the schema's version is not right.

    """
    engine = connect(read_settings(), say)
    try:
        yield Log(open_stores(engine), PostgresOverview(engine))
    finally:
        engine.dispose()


def open_stores(engine: Engine) -> Stores:
    """The stores over one engine, which stays the caller's to dispose of."""
    return Stores(
        leases=PostgresLeaseStore(engine),
        datasets=PostgresDatasetStore(engine),
        runs=PostgresRunStore(engine),
        commits=PostgresCommitStepStore(engine),
        lanes=PostgresLaneStore(engine),
        published=PostgresPublishedFiles(engine),
        destinations=PostgresDestinationStore(engine),
        events=PostgresEventStore(engine),
        reports=PostgresReportStore(engine),
        sink_workers=PostgresSinkWorkerStore(engine),
        sink_windows=PostgresSinkWindowStore(engine),
        rate_shares=PostgresRateShareStore(engine),
    )
