"""Trees of ``sftp://[user@]host[:port]/path``, as the environment says how to reach their servers."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.process_user import find_own_name
from gobblin_assets.fs.sftp.client import SftpClient
from gobblin_assets.fs.sftp.login import SftpServer
from gobblin_assets.fs.sftp.sftp_settings import PREFIX, SftpSettings, read_sftp_settings
from gobblin_assets.fs.sftp.tree import SftpTree

SSH_PORT: Final = 22
PORT_MAX: Final = 65_535
CLIENTS_KEPT_MAX: Final = 8

_PASSWORD: Final = re.compile(r"[^@]*:.*@")
_AUTHORITY: Final = re.compile(
    r"((?P<user>[^/@:\s]{1,128})@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class SftpFiles:
    """``ListedFiles`` of one server. ``address``: as in URIs."""

    address: str
    client: SftpClient

    def open_tree(
        self, option: str, *, hidden: frozenset[str], follow_links: bool, order: Callable[[str], str] | None = None
    ) -> SftpTree:
        if order is not None:
            raise RejectedError(
                "files of SFTP are not converted on the way",
                field=option,
                hint="Copy them as they are, and convert them from there.",
            )
        return SftpTree(self.address, self.client, option, hidden=hidden, follow_links=follow_links)


def open_sftp(uri: str, option: str) -> tuple[SftpFiles, str]:
    """The ``SourceFactory`` of the scheme ``sftp``. Nothing is connected to. Errors never show the URI."""
    user, host, port, path = _split(uri, option)
    settings = read_sftp_settings(os.environ, Path(os.path.expanduser("~")))  # noqa: PTH111  a user without a home is no error
    server = SftpServer(host.strip("[]"), port, user or settings.user or find_own_name(f"{PREFIX}USER"))
    address = f"{f'{user}@' if user else ''}{host}:{port}"
    return SftpFiles(address, _open(server, settings, option)), path


def _split(uri: str, option: str) -> tuple[str | None, str, int, str]:
    """The user, if there is one, host, port and path. Names of the path stand for themselves."""
    authority, slash, rest = uri.partition("://")[2].partition("/")
    if _PASSWORD.match(authority):
        raise RejectedError(
            "the URI holds a password", field=option, hint=f"Take it out, change it, and give it as {PREFIX}PASSWORD."
        )
    found = _AUTHORITY.fullmatch(authority)
    if found is None or not slash or not 0 < int(found["port"] or SSH_PORT) <= PORT_MAX:
        raise RejectedError(
            "expected sftp://user@host:port/path, found something else",
            field=option,
            hint="Correct it; user and port may be left out, and the path begins at the server's root.",
        )
    parts = [part for part in rest.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise RejectedError("expected a path without '..'", field=option, hint="Write the path that was meant.")
    return found["user"], found["host"].lower(), int(found["port"] or SSH_PORT), "/" + "/".join(parts)


@lru_cache(CLIENTS_KEPT_MAX)
def _open(server: SftpServer, settings: SftpSettings, option: str) -> SftpClient:
    """One for each way to reach a server: clients keep connections."""
    return SftpClient(server, settings, option)
