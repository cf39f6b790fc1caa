"""Compares the files of a dataset with the ledger, and on demand reads them completely. Changes nothing.

Faults of a published file: it is missing; it has another length; it is another file of the same length; it can't be
read, or its checksums or its number of rows do not match. Files below the dataset's directories that no
publication has are faults too. Files of open sequences, and of replaced generations whose grace is not over, are no
faults. A possible fault is checked twice, since runs publish and clean meanwhile.

Of text files, gzip has a checksum of the content. Plain text has none: what is found there are other numbers of rows,
lines that are no JSON objects or no records of CSV, and bytes that are no UTF-8.

Not promised: damage to a page without a checksum is not noticed if its bytes still decode. Damage to a text file
without gzip is not noticed if its lines can still be read, such as a changed digit.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pyarrow import ArrowException
from pyarrow import parquet as pq

from gobblin_assets.commit.attempts import published_directories
from gobblin_assets.commit.published.current import list_current
from gobblin_assets.commit.published.published_port import PublishedFile, PublishedFiles
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.object_listings import look_at_files
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.files import GZIP_ENDING, FileFormat, FileIdentity, format_of
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.wording import PassingLine

_QUOTED: Final = re.compile(r'"(?:[^"]|"")*"')


def find_text_damage(fs: FileSystem, path: str, file_format: FileFormat, *, row_count: int) -> str | None:
    """Read a text file completely, line by line. Returns the fault, or None."""
    try:
        with ExitStack() as stack:
            stored = stack.enter_context(fs.open_input(path))
            is_packed = path.endswith(GZIP_ENDING)
            lines = stack.enter_context(gzip.open(stored, "rb")) if is_packed else stored
            rows = _count_objects(lines) if file_format is FileFormat.JSON else _count_records(lines)
    except RetryableError:
        raise
    except (OSError, EOFError, zlib.error, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return None if rows == row_count else f"it holds {rows} rows, and {row_count} were published"


def _count_objects(lines: Iterable[bytes]) -> int:
    rows = 0
    for rows, line in enumerate(lines, start=1):
        if not line.endswith(b"\n") or not isinstance(json.loads(line), dict):
            raise ValueError(f"line {rows} is no whole JSON object")
    return rows


def _count_records(lines: Iterable[bytes]) -> int:
    """Records behind the header. Quotes in a value are doubled, so that an odd number of them leaves one open."""
    rows, width = -1, 0
    for rows, record in enumerate(_records(lines)):
        bare = _QUOTED.sub("", record)
        width = width or bare.count(",") + 1
        if '"' in bare or bare.count(",") + 1 != width:
            raise ValueError(f"record {rows} has not the {width} fields of the header")
    if rows < 0:
        raise ValueError("there is no header")
    return rows


def _records(lines: Iterable[bytes]) -> Iterator[str]:
    held: list[bytes] = []
    quotes = 0
    for line in lines:
        held.append(line)
        quotes += line.count(b'"')
        if quotes % 2 == 0:
            record = b"".join(held).decode("utf-8")
            if not record.endswith("\n"):
                raise ValueError("the last line has no end")
            yield record[:-1]
            held, quotes = [], 0
    if held:
        raise ValueError("a quote is not closed")


FAULTS_NAMED_MAX: Final = 1_000
"""Faults of one dataset that are named; the others are only counted."""

RETIRED_SEGMENTS_MAX: Final = 20_000
BATCH_ROWS: Final = 65_536
PROGRESS_S: Final = 5.0
_MIB: Final = 1 << 20


class Damage(StrEnum):
    """Kinds of faults of a file."""

    MISSING = "missing"
    LENGTH = "other length"
    REPLACED = "replaced"
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Fault:
    """One file that differs from the ledger."""

    path: str
    damage: Damage
    detail: str
    sequence_id: SequenceId | None = None
    partition: str | None = None


@dataclass(slots=True)
class Verified:
    """One dataset: how much was checked, the first faults, and the number of each kind in ``counts``."""

    urn: DatasetUrn
    file_count: int = 0
    file_bytes: int = 0
    read_bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    counts: dict[Damage, int] = field(default_factory=dict)

    def add(self, fault: Fault) -> None:
        self.counts[fault.damage] = self.counts.get(fault.damage, 0) + 1
        if len(self.faults) < FAULTS_NAMED_MAX:
            self.faults.append(fault)


class VerificationProgress:
    """Reports progress, at most every ``PROGRESS_S`` seconds."""

    def __init__(self, clock: Clock, say: Callable[[str], None]) -> None:
        self._clock = clock
        self._say = say
        self._started_at = self._said_at = clock.monotonic()
        self._files = 0
        self._read_bytes = 0

    def add(self, *, read_bytes: int) -> None:
        self._files += 1
        self._read_bytes += read_bytes
        now = self._clock.monotonic()
        if now - self._said_at >= PROGRESS_S:
            self._said_at = now
            mib = self._read_bytes / _MIB
            rate = mib / (now - self._started_at)
            self._say(PassingLine(f"verified {self._files:,} files; read {mib:,.0f} MiB, {rate:,.0f} MiB/s"))


@dataclass(frozen=True, slots=True)
class _Ours:
    """A published file with its entry in the ledger."""

    file: PublishedFile
    sequence_id: SequenceId
    partition: str
    root_uri: str


@dataclass(frozen=True, slots=True)
class _Stored:
    identity: FileIdentity
    fs: FileSystem


@dataclass(frozen=True, slots=True)
class Verification:
    """The verification of a job's datasets.

    ``destination`` is the job's; files of an earlier destination are checked where they are.
    """

    store: CommitLogReader
    published: PublishedFiles
    open_file_system: OpenFileSystem
    destination: str
    job: JobName
    progress: VerificationProgress

    def verify(self, urn: DatasetUrn, dataset_id: DatasetId, *, checksums: bool) -> Verified:
        """Check every file of the dataset in all roles. Raises only if storage or log can't be reached."""
        verified = Verified(urn)
        ours = self._list_published(urn)
        stored = self._list_stored(urn, ours)
        doubtful = []
        for each in ours.values():
            found = stored.get(each.file.path)
            fault = _compare(each, None if found is None else found.identity)
            verified.file_count += 1
            verified.file_bytes += each.file.identity.size_bytes
            read_bytes = 0
            if fault is None and checksums:
                fault = self._read(each)
                read_bytes = each.file.identity.size_bytes
            verified.read_bytes += read_bytes
            self.progress.add(read_bytes=read_bytes)
            if fault is not None:
                doubtful.append(fault)
        strangers = {path: found.fs for path, found in stored.items() if path not in ours}
        for fault in self._look_again(urn, dataset_id, doubtful, strangers):
            verified.add(fault)
        return verified

    def _list_published(self, urn: DatasetUrn) -> dict[str, _Ours]:
        found = {}
        for role in Role:
            view = self.published.find(self.job, urn, role=role)
            for segment, file in list_current(() if view is None else view.segments):
                found[file.path] = _Ours(
                    file, file.publisher or segment.sequence_id, segment.partition, segment.root_uri
                )
        return found

    def _list_stored(self, urn: DatasetUrn, ours: Mapping[str, _Ours]) -> dict[str, _Stored]:
        stored = {}
        for root_uri in dict.fromkeys([self.destination, *(each.root_uri for each in ours.values())]):
            fs, root = self.open_file_system(root_uri)
            for role in Role:
                for file in fs.list_files(path_of(root, self.job, urn, role)):
                    stored[file.path] = _Stored(file.identity, fs)
            # At given names, files stand among those of others.
            others = [
                path for path, each in ours.items() if each.root_uri == root_uri and not path.startswith(f"{root}/")
            ]
            for path, identity in look_at_files(fs, others).items():
                if identity is not None:
                    stored[path] = _Stored(identity, fs)
        return stored

    def _read(self, each: _Ours) -> Fault | None:
        fs, root = self.open_file_system(each.root_uri)
        if not each.file.path.startswith(f"{root}/"):
            raise RejectedError(
                "files of rows are read that runs wrote, and these files were copied",
                field="--checksums",
                hint="Leave it out; `gobblin-assets plan` with `same: checksum` compares the bytes with the source.",
            )
        detail = find_damage(fs, each.file.path, row_count=each.file.row_count)
        return None if detail is None else _fault(each, Damage.UNREADABLE, detail)

    def _look_again(
        self,
        urn: DatasetUrn,
        dataset_id: DatasetId,
        doubtful: Sequence[Fault],
        strangers: Mapping[str, FileSystem],
    ) -> Iterator[Fault]:
        """The faults that are left after changes by runs in the meantime are taken into account."""
        if not doubtful and not strangers:
            return
        # In this order: a sequence that ends between two looks is seen by the later one.
        unfinished = {sequence.sequence_id for sequence in self.store.find_unfinished(dataset_id)}
        ours = self._list_published(urn)
        retired = self._list_retired(dataset_id)
        yield from (fault for fault in doubtful if fault.path in ours)
        named = {path: owner for owner, paths in published_directories(strangers).items() for path in paths}
        known = self.store.find_known(list(set(named.values())))
        for path, fs in strangers.items():
            owner = named.get(path.rpartition("/")[0])
            if path in ours or path in retired or owner in unfinished or fs.find_identity(path) is None:
                continue
            detail = "no publication has it"
            if owner is not None:
                state = f"is {known[owner].state}" if owner in known else "is not in the log"
                detail = f"its name is that of sequence {owner}, which {state}"
            yield Fault(path, Damage.UNKNOWN, detail, owner)

    def _list_retired(self, dataset_id: DatasetId) -> set[str]:
        segments = self.store.list_removable(dataset_id, grace_s=0.0, limit=RETIRED_SEGMENTS_MAX)
        return {path for segment in segments for path, _identity, _rows in segment.files()}


def find_damage(fs: FileSystem, path: str, *, row_count: int) -> str | None:
    """Read a file of rows completely, in batches, with all checksums that it has. Returns the fault, or None."""
    file_format = format_of(path)
    if file_format is not FileFormat.PARQUET:
        return find_text_damage(fs, path, file_format, row_count=row_count)
    rows = 0
    try:
        with (
            fs.open_input(path) as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as parquet,
        ):
            for batch in parquet.iter_batches(batch_size=BATCH_ROWS):
                rows += batch.num_rows
    except RetryableError:
        raise
    except (ArrowException, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None if rows == row_count else f"it holds {rows} rows, and {row_count} were published"


def _compare(each: _Ours, found: FileIdentity | None) -> Fault | None:
    expected = each.file.identity
    if found is None:
        return _fault(each, Damage.MISSING, f"{expected.size_bytes} bytes were published")
    if found.size_bytes != expected.size_bytes:
        return _fault(each, Damage.LENGTH, f"{found.size_bytes} bytes, and {expected.size_bytes} were published")
    if not found.matches(expected):
        return _fault(each, Damage.REPLACED, "another file of the same length, or the same one written to since")
    return None


def _fault(each: _Ours, damage: Damage, detail: str) -> Fault:
    return Fault(each.file.path, damage, detail, each.sequence_id, each.partition)
