"""Places of ``hdfs://<host>:<port>/<path>``, as the environment says how to reach them."""

import os
import re
from functools import lru_cache
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.hdfs.file_system import HdfsFileSystem
from gobblin_assets.fs.hdfs.hdfs_settings import HdfsSettings, read_hdfs_settings

RPC_PORT: Final = 8020
"""A NameNode's own default."""

CLUSTERS_KEPT_MAX: Final = 8

_URI: Final = re.compile(
    r"hdfs://(?P<host>[A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:(?P<port>[0-9]{1,5}))?(?P<path>/.*)?", re.IGNORECASE
)


def open_hdfs(uri: str, umask: int | None) -> tuple[HdfsFileSystem, str]:
    """The ``FileSystemFactory`` of the scheme ``hdfs``. Nothing is connected to."""
    found = _URI.fullmatch(uri)
    if found is None:
        raise _refuse("expected hdfs://<host>:<port>/<path>", "Correct it; the user is named by GOBBLIN_HDFS_USER.")
    parts = [part for part in (found["path"] or "").split("/") if part not in {"", "."}]
    if ".." in parts:
        raise _refuse("expected a path without '..'", "Write the path that was meant.")
    if not parts:
        raise _refuse("expected a folder", "Name a folder of its own: the root of the file system is not one.")
    address = f"{found['host'].lower()}:{found['port'] or RPC_PORT}"
    return _open(address, read_hdfs_settings(os.environ), umask), "/" + "/".join(parts)


@lru_cache(CLUSTERS_KEPT_MAX)
def _open(address: str, settings: HdfsSettings, umask: int | None) -> HdfsFileSystem:
    """One for each way to reach a cluster: clients keep connections."""
    return HdfsFileSystem(address, settings, umask)


def _refuse(message: str, hint: str) -> RejectedError:
    return RejectedError(message, field="destination", hint=hint)
