"""The files of one write, for one attempt or several: directories say to which dataset and role each file belongs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import NewFile, NewFiles
from gobblin_assets.rows.renamed_files import RenamedFiles
from gobblin_assets.rows.role_paths import parse_role_path, parse_share_path, published_path
from gobblin_assets.rows.row_sampler import RowSampler
from gobblin_assets.rows.row_samples import SAMPLES_MAX
from gobblin_assets.rows.uploads import UploadedFiles
from gobblin_assets.run.job_kind import OutputNames
from gobblin_assets.spec.job_spec import WriterSpec

ALONE: Final = ""
"""The name of the only share, where an order is read alone."""


@dataclass(frozen=True, slots=True)
class AttemptPlace:
    """Where the rows of one attempt go. A value that can be pickled. ``sampler``: of rows that are set aside."""

    staging: str
    names: OutputNames
    writer: WriterSpec
    sampler: RowSampler | None = None


def open_role_files(fs: FileSystem, staging: str, names: OutputNames, role: Role = Role.DATA) -> NewFiles:
    """New files of one role of an attempt, in the way of the destination's file system."""
    if isinstance(fs, HoldsObjects):
        return UploadedFiles(fs.objects, staging, names, role)
    return RenamedFiles(fs, staging, names, role)


@dataclass(frozen=True, slots=True)
class AttemptFiles:
    """``TaskFiles`` of a write for several attempts, whose outermost directory is the share; or of one, without it.

    ``_shown``: how many rows of a share were shown.
    """

    fs: FileSystem
    places: Mapping[str, AttemptPlace]
    is_shared: bool
    _shown: Counter[str] = field(default_factory=Counter)

    def create(self, partition_path: str, name: str) -> NewFile:
        share, role, inner = self._parse(partition_path)
        place = self.places[share]
        files = open_role_files(self.fs, place.staging, place.names, role)
        return files.create(published_path(role, inner, place.writer), name)

    def sample(self, partition_path: str, first: pa.RecordBatch) -> Sequence[str]:
        """Rows that were set aside; of one share as many as people are shown."""
        share, role, _inner = self._parse(partition_path)
        sampler = self.places[share].sampler
        if sampler is None or role is not Role.QUARANTINE:
            return ()
        texts = sampler.show(first, SAMPLES_MAX - self._shown[share])
        self._shown[share] += len(texts)
        return texts

    def _parse(self, partition_path: str) -> tuple[str, Role, str]:
        share, rest = parse_share_path(partition_path) if self.is_shared else (ALONE, partition_path)
        return share, *parse_role_path(rest)


def open_attempt_files(
    uri: str, umask: int | None, places: Mapping[str, AttemptPlace], *, is_shared: bool
) -> AttemptFiles:
    """In the process that writes, by its own environment: no secret travels there. ``uri``: below the destination."""
    return AttemptFiles(open_file_system(uri, umask=umask)[0], places, is_shared)
