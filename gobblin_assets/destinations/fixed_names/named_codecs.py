"""Codecs of segments for steps at given names of disks: the columns in which segments hold them, most of a row each.

The columns of paths hold the places, ``payload`` the rest. They are made from steps, or from the columns of what a copy
staged, when a million steps would take too much memory and time. A row with a target and without a size is no published
file: a directory, or a file that is removed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from gobblin_assets.commit.arrow_arrays import make_array
from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.commit.steps import CommitStep, StepKind, StepRow
from gobblin_assets.destinations.fixed_names.named_directory_steps import (
    ClearDirectory,
    ClearFile,
    CloseDirectory,
    EnsureDirectory,
    ModeStep,
    OpenDirectory,
    PlaceDirectory,
)
from gobblin_assets.destinations.fixed_names.named_steps import (
    DIRECTORIES,
    NamedStep,
    PlaceFile,
    RemoveFile,
    ReplaceFile,
)
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns

METADATA: Final = "m"
EXCHANGES: Final = "x"
_BY_TWO_RENAMES: Final = "r"


@dataclass(frozen=True, slots=True)
class PlaceColumns:
    """The places of the steps' files. ``directories``: of their places in the attempt, with it; ``numbers``: their
    names there. ``target_directories`` and ``target_names``: where they are published.
    """

    directories: Sequence[str]
    numbers: Sequence[str]
    target_directories: Sequence[str]
    target_names: Sequence[str]


def flags_of_replacement(*, exchanges: bool, is_metadata: bool) -> str:
    return f"{EXCHANGES if exchanges else _BY_TWO_RENAMES}{METADATA if is_metadata else ''}"


def columns_of_ensured(places: PlaceColumns) -> list[Sequence[object]]:
    """Of directories, of which nothing but the places is known."""
    return _join(places, None, [None] * len(places.numbers))


def columns_of_modes(places: PlaceColumns, modes: Sequence[str]) -> list[Sequence[object]]:
    """Of directories whose modes change; ``modes``: as the codec of their steps writes them."""
    return _join(places, None, modes)


def columns_of_placed(
    places: PlaceColumns, identities: IdentityColumns, *, flags: Sequence[str | None]
) -> list[Sequence[object]]:
    """``flags``: METADATA or nothing."""
    return _join(places, identities, flags)


def columns_of_replaced(
    places: PlaceColumns, identities: IdentityColumns, old: IdentityColumns, *, flags: Sequence[str]
) -> list[Sequence[object]]:
    """``flags``: how each is replaced, and METADATA where it is."""
    return _join(places, identities, pc.binary_join_element_wise(make_array(flags, pa.string()), _write(old), ":"))


def columns_of_removed(places: PlaceColumns, old: IdentityColumns) -> list[Sequence[object]]:
    return _join(places, None, _write(old))


def _join(
    places: PlaceColumns, identities: IdentityColumns | None, payload: Sequence[object]
) -> list[Sequence[object]]:
    count = len(places.numbers)
    nothing = [None] * count
    of_published: list[Sequence[object]] = [nothing] * 5
    if identities is not None:
        of_published = [*identities.columns, [0] * count]
    columns = (places.directories, places.numbers, places.target_directories, places.target_names)
    return [*columns, *of_published, payload]


def _write(identities: IdentityColumns) -> pa.Array:
    """Each as ``named_codecs.format_identity`` writes it."""
    fields = (
        make_array(identities.sizes_bytes, pa.int64()),
        make_array(identities.inodes, pa.uint64()),
        make_array(identities.mtimes_ns, pa.int64()),
        make_array(identities.tags, pa.string()),
    )
    return pc.binary_join_element_wise(*(pc.fill_null(each.cast(pa.string()), "") for each in fields), ",")


PLACE_FILE: Final = "place_file"
REPLACE_FILE: Final = "replace_file"
REMOVE_FILE: Final = "remove_file"
CLEAR_FILE: Final = "clear_file"


class _PlaceFileCodec:
    def to_columns(self, steps: Sequence[PlaceFile], first: int) -> Sequence[Sequence[object]]:
        places = _places_of(steps, [step.writer for step in steps])
        identities = IdentityColumns.of([step.identity for step in steps])
        flags = [METADATA if step.is_metadata else None for step in steps]
        return [range(first, first + len(steps)), *columns_of_placed(places, identities, flags=flags)]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, source_dir, number, target_dir, target, size, inode, mtime, tag, _rows, payload in rows:
            staging, writer = split_source(source_dir)
            identity = FileIdentity(size, inode, mtime, tag)
            is_metadata = payload == METADATA
            yield PlaceFile(staging, f"{target_dir}/{target}", number or "", writer, identity, is_metadata)


class _ReplaceFileCodec:
    def to_columns(self, steps: Sequence[ReplaceFile], first: int) -> Sequence[Sequence[object]]:
        places = _places_of(steps, [step.writer for step in steps])
        identities, old = (IdentityColumns.of(some) for some in ([s.identity for s in steps], [s.old for s in steps]))
        flags = [flags_of_replacement(exchanges=s.exchanges, is_metadata=s.is_metadata) for s in steps]
        return [range(first, first + len(steps)), *columns_of_replaced(places, identities, old, flags=flags)]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, source_dir, number, target_dir, target, size, inode, mtime, tag, _rows, payload in rows:
            staging, writer = split_source(source_dir)
            flags, _, old = payload.partition(":")
            yield ReplaceFile(
                *(staging, f"{target_dir}/{target}", number or "", writer, FileIdentity(size, inode, mtime, tag)),
                old=parse_identity(old),
                exchanges=EXCHANGES in flags,
                is_metadata=METADATA in flags,
            )


class _RemoveFileCodec:
    """``made``: the kind of the steps."""

    def __init__(self, made: type[RemoveFile]) -> None:
        self._made = made

    def to_columns(self, steps: Sequence[RemoveFile], first: int) -> Sequence[Sequence[object]]:
        places = _places_of(steps, [SLOTS] * len(steps))
        return [
            range(first, first + len(steps)),
            *columns_of_removed(places, IdentityColumns.of([s.old for s in steps])),
        ]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, source_dir, number, target_dir, target, _, _, _, _, _, payload in rows:
            staging, _slots = split_source(source_dir)
            yield self._made(staging, f"{target_dir}/{target}", number or "", parse_identity(payload))


class _EmptyDirectoryCodec:
    """Of directories with known places and nothing else. ``place``: the directory of theirs in the attempt."""

    def __init__(self, made: type[EnsureDirectory | ClearDirectory], place: str) -> None:
        self._made = made
        self._place = place

    def to_columns(self, steps: Sequence[NamedStep], first: int) -> Sequence[Sequence[object]]:
        places = _places_of(steps, [self._place] * len(steps))
        return [range(first, first + len(steps)), *columns_of_ensured(places)]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, source_dir, number, target_dir, target, *_others in rows:
            staging, _directories = split_source(source_dir)
            yield self._made(staging, f"{target_dir}/{target}", number or "")


class _ModeCodec:
    """The payload has the mode in octal, and behind it the inode, if it is known. ``made``: the kind of the steps."""

    def __init__(self, made: type[OpenDirectory | CloseDirectory]) -> None:
        self._made = made

    def to_columns(self, steps: Sequence[ModeStep], first: int) -> Sequence[Sequence[object]]:
        places = _places_of(steps, [SLOTS] * len(steps))
        modes = [f"{step.mode:o}," + ("" if step.inode is None else str(step.inode)) for step in steps]
        return [range(first, first + len(steps)), *columns_of_modes(places, modes)]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, source_dir, number, target_dir, target, _, _, _, _, _, payload in rows:
            staging, _slots = split_source(source_dir)
            mode, _, inode = payload.partition(",")
            yield self._made(
                staging, f"{target_dir}/{target}", number or "", int(mode, 8), int(inode) if inode else None
            )


class _PlaceDirectoryCodec:
    """One row for each file; the payload has the directory's inode, and METADATA behind it."""

    def to_columns(self, steps: Sequence[PlaceDirectory], first: int) -> Sequence[Sequence[object]]:
        files = [(number, step, file) for number, step in enumerate(steps, first) for file in step.files]
        return [
            [number for number, _, _ in files],
            [f"{step.staging}/{step.writer}" for _, step, _ in files],
            [step.number for _, step, _ in files],
            [step.target for _, step, _ in files],
            [file.name for _, _, file in files],
            *IdentityColumns.of([file.identity for _, _, file in files]).columns,
            [0] * len(files),
            [f"{step.inode}{METADATA if step.is_metadata else ''}" for _, step, _ in files],
        ]

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _number, group in groupby(rows, key=itemgetter(0)):
            files = list(group)
            _, _, source_dir, number, target, *_others, payload = files[0]
            staging, writer = split_source(source_dir)
            yield PlaceDirectory(
                *(staging, target, number or "", writer, int(payload.removesuffix(METADATA))),
                files=tuple(
                    DataFile(name, FileIdentity(size, inode, mtime, tag), 0)
                    for _, _, _, _, _, name, size, inode, mtime, tag, _, _ in files
                ),
                is_metadata=payload.endswith(METADATA),
            )


NAMED_KINDS: Final = (
    StepKind(PLACE_FILE, _PlaceFileCodec(), at_given_names=True),
    StepKind("place_directory", _PlaceDirectoryCodec(), at_given_names=True, folded_as=PLACE_FILE),
    StepKind(REPLACE_FILE, _ReplaceFileCodec(), at_given_names=True, folded_as=PLACE_FILE),
    StepKind(REMOVE_FILE, _RemoveFileCodec(RemoveFile), at_given_names=True, removes_files=True),
    StepKind("ensure_directory", _EmptyDirectoryCodec(EnsureDirectory, DIRECTORIES), at_given_names=True),
    StepKind(CLEAR_FILE, _RemoveFileCodec(ClearFile), at_given_names=True, removes_files=True),
    StepKind("clear_directory", _EmptyDirectoryCodec(ClearDirectory, SLOTS), at_given_names=True),
    StepKind("open_directory", _ModeCodec(OpenDirectory), at_given_names=True),
    StepKind("close_directory", _ModeCodec(CloseDirectory), at_given_names=True),
)


def _places_of(steps: Sequence[NamedStep], directories: Sequence[str]) -> PlaceColumns:
    """``directories``: those of the steps' places in the attempt."""
    targets = [step.target.rpartition("/") for step in steps]
    return PlaceColumns(
        [f"{step.staging}/{directory}" for step, directory in zip(steps, directories, strict=True)],
        [step.number for step in steps],
        [directory for directory, _, _ in targets],
        [name for _, _, name in targets],
    )


def split_source(source_dir: str | None) -> tuple[str, str]:
    """The attempt's directory and the directory below it; empty where a folded step no longer knows them."""
    staging, _, directory = (source_dir or "").rpartition("/")
    return staging, directory


def format_identity(identity: FileIdentity) -> str:
    known = (identity.size_bytes, identity.inode, identity.mtime_ns)
    return f"{','.join('' if each is None else str(each) for each in known)},{identity.tag or ''}"


def parse_identity(text: str) -> FileIdentity:
    size, inode, mtime, tag = (text.split(",", 3) + [""] * 4)[:4]
    if not size:
        raise CorruptionError(f"a stored identity has no size: {text!r}")
    return FileIdentity(int(size), int(inode) if inode else None, int(mtime) if mtime else None, tag or None)
