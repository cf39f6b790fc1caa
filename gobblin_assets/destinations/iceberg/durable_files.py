"""Files of tables that survive a power cut: each is synced, with the directories above it, before it counts as written.

pyiceberg's own file systems don't sync. A catalog that survives would then name files that are empty or gone.
"""

import os
from io import BufferedWriter, FileIO
from typing import Final

from pyiceberg.catalog import WAREHOUSE_LOCATION
from pyiceberg.io import InputFile, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_sync import sync_directory
from gobblin_assets.model.path_names import list_upwards

_FILE: Final = "file"


class DurableFiles(PyArrowFileIO):
    """Files on a disk."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # pyiceberg promises its own class
        scheme, _netloc, path = self.parse_location(location, self.properties)
        if scheme != _FILE:
            raise RejectedError(
                f"a table has files at {scheme}:, and only files on a disk are written",
                field="sink.into",
                hint="Name a namespace in which the table stands in a directory, or does not exist yet.",
            )
        return _DurableFile(location, path, self)

    def list_directories(self, path: str) -> list[str]:
        """What was perhaps made for a file: the directories above it, up to that of all tables."""
        warehouse = self.parse_location(self.properties[WAREHOUSE_LOCATION], self.properties)[2]
        parent = os.path.dirname(path)  # noqa: PTH120  a text, as Iceberg has it
        return list_upwards([parent], warehouse if path.startswith(f"{warehouse}/") else parent)


class _DurableFile(OutputFile):
    def __init__(self, location: str, path: str, files: DurableFiles) -> None:
        super().__init__(location)
        self._path, self._files = path, files

    def __len__(self) -> int:
        return os.stat(self._path).st_size  # noqa: PTH116  a text, as Iceberg has it

    def exists(self) -> bool:
        return os.path.exists(self._path)  # noqa: PTH110  the same

    def to_input_file(self) -> InputFile:
        return self._files.new_input(self.location)

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002  pyiceberg's signature
        directories = self._files.list_directories(self._path)
        os.makedirs(directories[0], exist_ok=True)  # noqa: PTH103  the same
        return _DurableStream(FileIO(self._path, "wb" if overwrite else "xb"), directories)


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
