"""A source's listing as it is after conversion: names, archives' members, and times that tell what changed.

A converted file has the time of its origin. Each file and directory of an unpacked archive has the archive's time. As
long as all of them have it, the archive has not changed, and is not opened. A packed archive has the time of its newest
file, and in its nanoseconds a digest of all that is packed.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, Final

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import families, translate_error
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key
from gobblin_assets.jobs.copy.converters.chain import Chain, Route
from gobblin_assets.jobs.copy.copyable import Conversion, ConvertedEntry, PackedOrigin
from gobblin_assets.jobs.copy.globs import Filters
from gobblin_assets.jobs.copy.refusals import Refusals
from gobblin_assets.jobs.copy.sameness import Sameness
from gobblin_assets.model.files import FileIdentity

DIGEST_PRECISION_NS_MAX: Final = 1
"""A packed archive's time says more than the time, down to the last digit."""

_S_NS: Final = 1_000_000_000
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MODE_OF_MEMBER: Final = 0o644
_MODE_OF_DIRECTORY: Final = 0o755

FindUnpacked = Callable[[str], Sequence[TreeEntry] | None]
"""Find the unpacked directory at this path below the file set, with all that is below it. None: read the archive."""


@dataclass(frozen=True, slots=True)
class ConvertedListing:
    """The listing of what the files of ``root`` become, in the order that a listing has.

    The listing comes in the order of ``Chain.sort_key_of``. ``filters`` choose among names after conversion.
    ``follows_links``: files of the listing may be links. ``sameness``: how times of both sides are compared.
    """

    chain: Chain
    root: str
    filters: Filters
    find_unpacked: FindUnpacked
    sameness: Sameness
    follows_links: bool = False

    def list_entries(self, listed: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        """RejectedError: two entries become one name, a name that is ours, or an archive that breaks a rule."""
        last = ""
        for entry in self._convert(listed) if self.chain.packer is None else self._pack(listed):
            key = sort_key(entry)
            if key <= last:
                origin = entry.origin.path if isinstance(entry, ConvertedEntry) else entry.path
                raise RejectedError(
                    f"{origin!a} becomes {key!a}, and something else of the source is or becomes that too",
                    field="converters",
                    hint="Rename or exclude one of them, or let a converter leave one out (its own exclude).",
                    path=entry.path,
                )
            last = key
            yield entry

    def _convert(self, listed: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        for entry in listed:
            route = self.chain.find_route(entry.path) if entry.kind is EntryKind.FILE else Route(entry.path)
            if not route.steps:
                yield entry
                continue
            if route.path.rpartition("/")[2] == WORK_NAME:
                raise RejectedError(
                    f"{entry.path!a} becomes {route.path!a}, which is the name of copies' own directory",
                    field="converters",
                    hint="Rename it, or exclude it.",
                )
            if not route.is_archive:
                conversion = Conversion(entry.identity.size_bytes, route.steps)
                yield _converted(entry, route.path, entry.identity.size_bytes, conversion)
            elif self.filters.descends(route.path):
                yield from self._unpack(entry, route)

    def _unpack(self, archive: TreeEntry, route: Route) -> Iterator[TreeEntry]:
        unpacked = self.find_unpacked(route.path)
        if unpacked is not None and _all_have(archive.identity.mtime_ns, unpacked, self.sameness):
            yield from unpacked
            return
        yield _directory(archive, route.path, is_archive=True)
        found: dict[str, TreeEntry] = {}
        for path, size_bytes, mode, is_directory, member in self._read_members(archive, route):
            inside = Route(path) if is_directory else self.chain.find_route(path, route.steps[-1] + 1)
            for parent in _parents_below(inside.path, route.path):
                found.setdefault(f"{parent}/", _directory(archive, parent))
            if is_directory:
                found.setdefault(f"{path}/", _directory(archive, path))
                continue
            conversion = Conversion(size_bytes, route.steps, member, inside.steps)
            made = _converted(archive, inside.path, size_bytes, conversion, has_length=not inside.steps)
            if inside.path in found:
                raise RejectedError(
                    f"{archive.path!a}: two of its members become {inside.path!a}",
                    field="converters",
                    hint="Make the archive again, or exclude it.",
                )
            found[inside.path] = replace(made, mode=_MODE_OF_MEMBER if mode is None else mode & 0o755 | 0o600)
        for key in sorted(found):
            yield found[key]

    def _read_members(self, archive: TreeEntry, route: Route) -> Iterator[tuple[str, int, int | None, bool, str]]:
        """Path below the file set, size, mode, whether it is a directory, and path in the archive."""
        full = f"{self.root}/{archive.path}"
        with self._open(full, archive) as opened:
            for member, _content in self.chain.read_members(
                _Reading(opened), opened, full, archive.identity.size_bytes, route.steps
            ):
                place = f"{route.path}/{member.path}"
                yield place, member.size_bytes, member.mode, member.kind == "directory", member.path

    @contextmanager
    def _open(self, full: str, planned: TreeEntry) -> Iterator[BinaryIO]:
        """The archive as it was listed, also at the end."""
        try:
            descriptor = os.open(full, _READ if self.follows_links else _READ | os.O_NOFOLLOW)
        except OSError as error:
            raise translate_error(error, action="read", path=full, changes=False) from error
        with os.fdopen(descriptor, "rb") as opened:
            try:
                yield opened
            except GobblinError:
                _require_listed(descriptor, planned, full)
                raise
            except OSError as error:
                raise translate_error(error, action="read", path=full, changes=False) from error
            _require_listed(descriptor, planned, full)

    def _pack(self, listed: Iterator[TreeEntry]) -> Iterator[TreeEntry]:
        packer = self.chain.packer
        if packer is None:
            return
        entries = list(listed)
        parts = tuple(each for each in entries if each.kind in {EntryKind.FILE, EntryKind.DIRECTORY})
        files = [each for each in parts if each.kind is EntryKind.FILE]
        others = [each for each in entries if each.kind not in {EntryKind.FILE, EntryKind.DIRECTORY}]
        if files:
            _require_times(files)
            if self.sameness.mtime_precision_ns > DIGEST_PRECISION_NS_MAX:
                raise RejectedError(
                    f"packs files, and times are kept in steps of {self.sameness.mtime_precision_ns:,} ns only",
                    field="converters",
                    hint="The archive's time tells what changed: name a file system that keeps nanoseconds.",
                )
            route = self.chain.find_route(packer.name, 1)
            size_bytes = sum(each.identity.size_bytes for each in files)
            conversion = Conversion(size_bytes, route.steps, parts=tuple(map(PackedOrigin.of, parts)))
            made = _converted(_packed_origin(packer.name, files, parts), route.path, conversion.size_bytes, conversion)
            others.append(made)
        yield from sorted(others, key=sort_key)


class _Reading:
    """Bytes of an open file, where it stands."""

    def __init__(self, opened: BinaryIO) -> None:
        self._opened = opened

    def read(self, size: int, /) -> bytes:
        return self._opened.read(size)


def _converted(
    origin: TreeEntry, path: str, size_bytes: int, conversion: Conversion, *, has_length: bool = False
) -> ConvertedEntry:
    identity = FileIdentity(size_bytes, origin.identity.inode, origin.identity.mtime_ns)
    return ConvertedEntry(
        path,
        EntryKind.FILE,
        identity,
        origin.mode,
        origin.owner,
        origin.group,
        origin=origin,
        conversion=conversion,
        has_length=has_length,
    )


def _directory(archive: TreeEntry, path: str, *, is_archive: bool = False) -> ConvertedEntry:
    """A directory that comes out of an archive: the archive's owner and time, and a mode of ours."""
    return ConvertedEntry(
        path,
        EntryKind.DIRECTORY,
        archive.identity,
        _MODE_OF_DIRECTORY,
        archive.owner,
        archive.group,
        origin=archive,
        is_archive=is_archive,
    )


def _require_times(files: Sequence[TreeEntry]) -> None:
    """RejectedError for files whose times no plan takes: the archive's own time would not show them."""
    refused = Refusals()
    for each in files:
        refused.check_time("source", each.path, each.identity)
    refused.require_none()


def _packed_origin(name: str, files: Sequence[TreeEntry], parts: Sequence[TreeEntry]) -> TreeEntry:
    """The origin that stands for all files: their newest time, with a digest of all parts in its nanoseconds."""
    digest = hashlib.blake2b(digest_size=8)
    for each in parts:
        is_directory = each.kind is EntryKind.DIRECTORY
        time_ns = 0 if is_directory else each.identity.mtime_ns or 0
        size_bytes = 0 if is_directory else each.identity.size_bytes
        path = sort_key(each).encode()
        digest.update(struct.pack("<IqqI", len(path), size_bytes, time_ns, each.mode or 0) + path)
    newest_s = max(each.identity.mtime_ns or 0 for each in files) // _S_NS
    mtime_ns = newest_s * _S_NS + int.from_bytes(digest.digest(), "little") % _S_NS
    size_bytes = sum(each.identity.size_bytes for each in files)
    first = files[0]
    return TreeEntry(
        name, EntryKind.FILE, FileIdentity(size_bytes, None, mtime_ns), _MODE_OF_MEMBER, first.owner, first.group
    )


def _all_have(mtime_ns: int | None, unpacked: Sequence[TreeEntry], sameness: Sameness) -> bool:
    """Whether all entries have this time, which tells the version, and there is a file among them."""
    return (
        mtime_ns is not None
        and (sameness.now_ns is None or sameness.is_over(mtime_ns, sameness.now_ns))
        and any(each.kind is EntryKind.FILE for each in unpacked)
        and all(
            each.kind in {EntryKind.FILE, EntryKind.DIRECTORY}
            and each.identity.mtime_ns is not None
            and abs(each.identity.mtime_ns - mtime_ns) < sameness.mtime_precision_ns
            for each in unpacked
        )
    )


def _parents_below(path: str, top: str) -> Iterator[str]:
    while len(path := path.rpartition("/")[0]) > len(top):
        yield path


def _require_listed(descriptor: int, planned: TreeEntry, full: str) -> None:
    with families("read", full):
        found = os.fstat(descriptor)
    identity = FileIdentity(found.st_size, found.st_ino, found.st_mtime_ns)
    if not identity.matches(planned.identity) or found.st_ctime_ns != planned.changed_ns:
        raise RetryableError(
            f"{full} changed while it was read", hint="The next plan sees it as it is then.", path=full
        )
