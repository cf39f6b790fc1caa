"""Files of rows that a step publishes by a rename, one by one."""

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import BinaryIO

from gobblin_assets.commit.rename_steps import RenameFile
from gobblin_assets.errors import GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.files import format_of
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import FinishedRows, NewFile, finish_file
from gobblin_assets.run.job_kind import OutputNames


@dataclass(frozen=True, slots=True)
class RenamedFiles:
    """``NewFiles`` in ``staging``, which exists, to the places that ``names`` has for them."""

    fs: FileSystem
    staging: str
    names: OutputNames
    role: Role = Role.DATA

    def create(self, partition_path: str, name: str) -> NewFile:
        source = f"{self.staging}/{uuid.uuid4().hex}.{format_of(name)}"
        target = f"{self.names.directory_of(self.role, partition_path)}/{name}"
        return _RenamedFile(self.fs, source, target, self.fs.create_file(source))


@dataclass(frozen=True, slots=True)
class _RenamedFile:
    fs: FileSystem
    path: str
    target: str
    stream: BinaryIO

    def finish(self, row_count: int, size_bytes: int) -> FinishedRows:
        found = finish_file(self.fs, self.path, self.stream, row_count, size_bytes)
        file = replace(found, name=self.target.rpartition("/")[2])
        return FinishedRows(file, RenameFile(self.path, self.target, file.identity, file.row_count))

    def discard(self) -> None:
        with suppress(GobblinError, OSError):
            self.stream.close()
