"""The commit log as programs open it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from gobblin_assets.db.engine import connect
from gobblin_assets.db.notices import Channel, Hear, NoticeListener
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import read_settings
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.postgres.overview import PostgresOverview


@dataclass(frozen=True, slots=True)
class Log:
    """The commit log, for reading and for operations. ``make_listener`` makes one of its notices, which is to start."""

    stores: Stores
    overview: Overview
    make_listener: Callable[[Mapping[Channel, Hear]], NoticeListener]


@contextmanager
def open_log(say: Callable[[str], None] = unheard) -> Iterator[Log]:
    """The log of GOBBLIN_DATABASE_URL, else the embedded one, started if necessary. ``say`` gets lines about that.

    Raises:
        RetryableError: the server does not answer.
        RejectedError: the URL, the login or the schema's version is not right.

    """
    engine = connect(read_settings(), say)
    try:
        yield Log(open_stores(engine), PostgresOverview(engine), partial(NoticeListener, engine))
    finally:
        engine.dispose()
