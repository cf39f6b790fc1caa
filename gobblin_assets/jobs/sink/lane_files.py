"""The open files of a lane, one for each role and directory, within bounds of memory."""

import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.files import FileFormat, name_ending
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import FinishedRows, NewFiles
from gobblin_assets.rows.open_files import OpenFile
from gobblin_assets.rows.text_rows import require_text_columns

HELD_BYTES_MAX: Final = 64 << 20
"""Bytes of rows that a lane holds in memory before they are encoded, over all of its open files."""

FILES_OPEN_MAX: Final = 64
"""Open files of a lane. In a store, each takes the memory of some parts of an upload."""


@dataclass(frozen=True, slots=True)
class LaneFormat:
    """The format of a lane's files. ``columns``: those of each role's files.

    ``held_bytes_max`` and ``files_open_max`` bound memory: beyond the first, the file that holds most is encoded;
    beyond the second, the largest file is closed, and waits for the cut. So is a file whose encoder keeps most, if all
    encoders keep more than twice ``held_bytes_max``: they belong to directories that get rows one after the other. A
    file that has grown to ``file_bytes_max`` is closed as well.
    """

    columns: Mapping[Role, pa.Schema]
    file_format: FileFormat
    compression: str
    held_bytes_max: int = HELD_BYTES_MAX
    files_open_max: int = FILES_OPEN_MAX
    file_bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Rows of one role for one directory below the dataset; "" is the dataset's own."""

    role: Role
    partition_path: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class CutFile:
    """A closed file, which is not yet durable."""

    role: Role
    partition_path: str
    finished: FinishedRows


class LaneFiles:
    """The open files of a lane.

    ``open_files`` is asked at each new file, for the files of the attempt that the next cut seals. RejectedError names
    a column that the format can't hold.
    """

    def __init__(self, lane_format: LaneFormat, open_files: Callable[[Role], NewFiles]) -> None:
        if lane_format.file_format is not FileFormat.PARQUET:
            for columns in lane_format.columns.values():
                require_text_columns(lane_format.file_format, columns)
        self._format = lane_format
        self._columns = dict(lane_format.columns)
        self._ending = name_ending(lane_format.file_format, lane_format.compression)
        self._open_files = open_files
        self._open: dict[tuple[Role, str], OpenFile] = {}
        self._closed: list[CutFile] = []
        self.row_counts: Counter[Role] = Counter()

    @property
    def size_bytes(self) -> int:
        """The size of all files since the last cut: encoded bytes, and held ones as Arrow has them."""
        closed = sum(each.finished.file.identity.size_bytes for each in self._closed)
        return closed + sum(each.size_bytes for each in self._open.values())

    @property
    def held_bytes(self) -> int:
        return sum(each.held_bytes for each in self._open.values())

    def require_columns(self, role: Role, found: pa.Schema) -> None:
        """RejectedError names the first column that is not the role's."""
        expected = self._columns[role]
        wanted, given = ([(each.name, each.type) for each in schema] for schema in (expected, found))
        if wanted == given:
            return
        names = dict(wanted)
        for name, kind in given:
            if name not in names:
                raise _foreign(name, f"rows have a column {name!r}, and the lane's {role} files have none")
            if names[name] != kind:
                raise _foreign(name, f"rows have {name!r} as {kind}, and the lane's {role} files as {names[name]}")
        for name in names:
            if name not in dict(given):
                raise _foreign(name, f"rows have no column {name!r}, and the lane's {role} files have one")
        name = next(mine for mine, (theirs, _kind) in zip(found.names, wanted, strict=False) if mine != theirs)
        raise _foreign(name, f"rows have the column {name!r} at another place than the lane's {role} files")

    def change_columns(self, columns: pa.Schema) -> None:
        """Files of the data that were opened with others are closed, and wait for the cut.

        All files of a cut are published with the newest columns: readers find columns by name, NULL where a file has
        none, and widen narrower types.
        """
        if columns.equals(self._columns[Role.DATA]):
            return
        if self._format.file_format is not FileFormat.PARQUET:
            require_text_columns(self._format.file_format, columns)
        for key in [key for key in self._open if key[0] is Role.DATA]:
            self._close(key)
        self._columns[Role.DATA] = columns

    def add(self, placed: PlacedRows) -> None:
        """The rows have the columns of their role."""
        key = (placed.role, placed.partition_path)
        if key not in self._open:
            self._make_room()
            self._open[key] = self._begin(*key)
        # Equal but for what may be NULL, which files don't say.
        rows = pa.RecordBatch.from_arrays(placed.rows.columns, schema=self._columns[placed.role])
        self._open[key].add(rows)
        self.row_counts[placed.role] += placed.rows.num_rows
        while self.held_bytes > self._format.held_bytes_max:
            max(self._open.values(), key=lambda each: each.held_bytes).flush()
        while sum(each.kept_bytes for each in self._open.values()) > 2 * self._format.held_bytes_max:
            self._close(max(self._open, key=lambda key: self._open[key].kept_bytes))
        bytes_max = self._format.file_bytes_max
        if bytes_max is not None and key in self._open and self._open[key].size_bytes >= bytes_max:
            self._close(key)

    def encode_held(self) -> None:
        """Encode what is held of the file that holds most."""
        if self._open:
            max(self._open.values(), key=lambda each: each.held_bytes).flush()

    def close(self) -> tuple[CutFile, ...]:
        """Close all files, and begin anew."""
        for key in list(self._open):
            self._close(key)
        closed = tuple(self._closed)
        self._closed = []
        self.row_counts = Counter()
        return closed

    def discard(self) -> None:
        """Close everything, and leave what is there to whoever cleans up after the attempt."""
        for each in self._open.values():
            each.discard()
        self._open = {}
        self._closed = []
        self.row_counts = Counter()

    def _begin(self, role: Role, partition_path: str) -> OpenFile:
        file = self._open_files(role).create(partition_path, f"part-{uuid.uuid4()}{self._ending}")
        return OpenFile(file, self._columns[role], self._format.file_format, self._format.compression)

    def _make_room(self) -> None:
        if len(self._open) >= self._format.files_open_max:
            self._close(max(self._open, key=lambda key: self._open[key].size_bytes))

    def _close(self, key: tuple[Role, str]) -> None:
        finished = self._open[key].finish()
        del self._open[key]
        self._closed.append(CutFile(*key, finished))


def _foreign(name: str, message: str) -> RejectedError:
    return RejectedError(message, field=f"columns.{name}", hint="A dataset's columns change between cuts only.")


class RecordCounts:
    """``Gathering`` of records that are only counted, since Spark reads them again at the cut.

    ``size_bytes``: as Arrow has the records, without a memory of them.
    """

    held_bytes = 0

    def __init__(self) -> None:
        self.size_bytes = 0
        self.row_counts: Counter[Role] = Counter()

    def require_columns(self, role: Role, found: pa.Schema) -> None:
        """Records have the log's columns."""

    def change_columns(self, columns: pa.Schema) -> None:
        """Records are counted, whatever their columns."""

    def add(self, placed: PlacedRows) -> None:
        self.size_bytes += placed.rows.nbytes
        self.row_counts[placed.role] += placed.rows.num_rows

    def encode_held(self) -> None:
        """Nothing is held."""

    def close(self) -> tuple[CutFile, ...]:
        self.discard()
        return ()

    def discard(self) -> None:
        self.size_bytes = 0
        self.row_counts = Counter()
