"""A Postgres of a demo's own with ``wal_level = logical``, so that the changes of its tables can be followed."""

from pathlib import Path
from typing import Final

from demo.stage import console
from gobblin_assets.db import embedded
from gobblin_assets.db.account import find_account
from gobblin_assets.db.cluster import prepare_cluster
from gobblin_assets.db.embedded import EmbeddedServer

# All that a server needs for its changes to be followed.
_SETTINGS: Final = "\nwal_level = logical\n"


def start_logical(home: Path) -> EmbeddedServer:
    """The server of this home; a new cluster where there is none."""
    files = embedded.files_of(home)
    with embedded.hold_start_lock(files, console.print) as start_lock:
        if prepare_cluster(files, find_account(files.data), start_lock):
            with (files.data / "postgresql.conf").open("a", encoding="utf-8") as settings:
                settings.write(_SETTINGS)
        return embedded.start_held(files, console.print, start_lock)
