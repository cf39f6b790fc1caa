"""Files of tables that survive a power cut: each is synced, with the directories above it, before it counts as written.

pyiceberg's own file systems don't sync. A catalog that survives would then name files that are empty or gone.
"""

import os
import posixpath
from io import BufferedWriter, FileIO
from types import MappingProxyType
from typing import Final

from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_sync import sync_directory
from gobblin_assets.model.path_names import list_upwards

_FILE: Final = "file"
_ALIASES: Final = MappingProxyType({"s3a": "s3", "s3n": "s3"})


class DurableFiles(PyArrowFileIO):
    """Files on a disk, and objects of a store, which are durable once they are there."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # pyiceberg promises its own class
        scheme, path = self._parse(location)
        home_scheme, home = self._parse(self.properties[WAREHOUSE_LOCATION])
        if scheme != home_scheme or not path.startswith(f"{home}/"):
            raise RejectedError(
                f"the table has files at {scheme}:{path}, outside of the warehouse",
                field="into",
                hint="Name a namespace in which the table stands in the warehouse, or does not exist yet.",
            )
        if scheme != _FILE:
            return super().new_output(location)
        # Also the directories that were perhaps made for the file, up to that of all tables.
        return _DurableFile(location, self, path, list_upwards([posixpath.dirname(path)], home))

    def _parse(self, location: str) -> tuple[str, str]:
        scheme, _netloc, path = self.parse_location(location, self.properties)
        return _ALIASES.get(scheme, scheme), posixpath.normpath(path)


class _DurableFile(OutputFile):
    def __init__(self, location: str, files: DurableFiles, path: str, directories: list[str]) -> None:
        super().__init__(location)
        self._files, self._path, self._directories = files, path, directories

    def __len__(self) -> int:
        return os.stat(self._path).st_size  # noqa: PTH116  a text, as Iceberg has it

    def exists(self) -> bool:
        return os.path.exists(self._path)  # noqa: PTH110  the same

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  pyiceberg's signature
        os.makedirs(self._directories[0], exist_ok=True)  # noqa: PTH103  the same
        return _DurableStream(FileIO(self._path, "wb" if overwrite else "xb"), self._directories)


class _DurableStream(BufferedWriter):
    def __init__(self, raw: FileIO, directories: list[str]) -> None:
        super().__init__(raw)
        self._directories = directories

    def close(self) -> None:
        if self.closed:
            return
        try:
            self.flush()
            os.fsync(self.fileno())
        finally:
            super().close()
        for directory in self._directories:
            sync_directory(directory)
