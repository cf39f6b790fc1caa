"""The file systems that destinations lie on."""

import dagster as dg

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system


class FileSystemsResource(dg.ConfigurableResource["FileSystemsResource"]):
    """Opens a destination by its URI: local paths, and every scheme that was registered."""

    def open(self, uri: str, *, umask: int | None = None) -> tuple[FileSystem, str]:
        """The file system, and the root's path in it. RejectedError for a URI that none can take."""
        return open_file_system(uri, umask=umask)
