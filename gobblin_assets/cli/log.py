"""The commit log as commands open it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gobblin_assets.cli.output import say
from gobblin_assets.db.engine import connect
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.state.overview.port import Overview
from gobblin_assets.state.overview.postgres import PostgresOverview


@dataclass(frozen=True, slots=True)
class Log:
    """The commit log, to work with and to look at."""

    stores: Stores
    overview: Overview


@contextmanager
def open_log() -> Iterator[Log]:
    """The log that GOBBLIN_DATABASE_URL names, else the embedded one, started if need be."""
    engine = connect(read_settings(), say)
    try:
        yield Log(open_stores(engine), PostgresOverview(engine))
    finally:
        engine.dispose()
