"""Codecs of segments for the steps of ``named_steps``; ``named_columns`` has the columns of steps with one row each.

A row with a target and without a size is no published file: a directory, or a file that is removed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from gobblin_assets.commit.named_clearing_steps import ClearDirectory, ClearFile
from gobblin_assets.commit.named_columns import (
    EXCHANGES,
    METADATA,
    PlaceColumns,
    columns_of_ensured,
    columns_of_modes,
    columns_of_placed,
    columns_of_removed,
    columns_of_replaced,
    flags_of_replacement,
)
from gobblin_assets.commit.named_directory_steps import EnsureDirectory, PlaceDirectory
from gobblin_assets.commit.named_mode_steps import CloseDirectory, ModeStep, OpenDirectory
from gobblin_assets.commit.named_steps import DIRECTORIES, SLOTS, NamedStep, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.commit.steps import CommitStep, StepKind, StepRow
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.files import DataFile, FileIdentity, IdentityColumns

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
    """Of directories of which nothing but the places is known. ``place``: the directory of theirs in the attempt."""

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
            [file.identity.size_bytes for _, _, file in files],
            [file.identity.inode for _, _, file in files],
            [file.identity.mtime_ns for _, _, file in files],
            [file.identity.tag for _, _, file in files],
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
    StepKind(PLACE_FILE, _PlaceFileCodec()),
    StepKind("place_directory", _PlaceDirectoryCodec()),
    StepKind(REPLACE_FILE, _ReplaceFileCodec()),
    StepKind(REMOVE_FILE, _RemoveFileCodec(RemoveFile)),
    StepKind("ensure_directory", _EmptyDirectoryCodec(EnsureDirectory, DIRECTORIES)),
    StepKind(CLEAR_FILE, _RemoveFileCodec(ClearFile)),
    StepKind("clear_directory", _EmptyDirectoryCodec(ClearDirectory, SLOTS)),
    StepKind("open_directory", _ModeCodec(OpenDirectory)),
    StepKind("close_directory", _ModeCodec(CloseDirectory)),
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
