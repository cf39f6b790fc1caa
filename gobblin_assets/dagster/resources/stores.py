"""The commit log and the state, in the embedded Postgres or a server that a URL names; and the file systems."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import dagster as dg
from pydantic import Field

from gobblin_assets.dagster.dead_runs import PROCESS_TAG, describe_this_process
from gobblin_assets.db.engine import connect
from gobblin_assets.db.supervision import supervise
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.progress import unheard
from gobblin_assets.run.stores import Stores
from gobblin_assets.settings import Settings, read_settings

_LOG: Final = logging.getLogger("gobblin_assets")


class CommitStoreResource(dg.ConfigurableResource[Stores]):
    """Vends ``Stores``. Without configuration: what GOBBLIN_DATABASE_URL and GOBBLIN_HOME say when a run starts."""

    database_url: str | None = Field(
        default=None,
        repr=False,
        description="A Postgres URL, as EnvVar since it may hold a password. Default: GOBBLIN_DATABASE_URL, "
        "else the embedded server.",
    )
    home: str | None = Field(
        default=None, description="Folder of the embedded server. Default: GOBBLIN_HOME, else .gobblin."
    )

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Stores]:
        if context.run is not None and context.instance is not None:
            # Before anything that may take long: from here on, a run that dies can be told from a slow one.
            context.instance.add_run_tags(context.run.run_id, {PROCESS_TAG: describe_this_process()})
        report = context.log.info if context.log is not None else unheard
        engine = connect(self.settings(), report)
        try:
            yield open_stores(engine)
        finally:
            engine.dispose()

    def settings(self) -> Settings:
        """The process's settings, replaced where this resource gives a value."""
        settings = read_settings()
        if self.database_url is not None:
            settings = replace(settings, database_url=self.database_url)
        if self.home is not None:
            home = self.home.get_value() if isinstance(self.home, dg.EnvVar) else self.home
            settings = replace(settings, home=Path(home or ".gobblin").expanduser().absolute())
        return settings


def supervise_embedded(stores: CommitStoreResource) -> None:
    """From now on this process restarts the embedded Postgres when it dies. Does nothing for another server."""
    if stores.database_url is None and (settings := stores.settings()).database_url is None:
        supervise(settings.home, _LOG.warning)


class FileSystemsResource(dg.ConfigurableResource["FileSystemsResource"]):
    """Opens a destination by its URI: local paths, and every scheme that was registered."""

    def open(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
        """The file system, and the root's path in it. RejectedError for a URI that none can take."""
        return open_file_system(uri, umask=umask)
