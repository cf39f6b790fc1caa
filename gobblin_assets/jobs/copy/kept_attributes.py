"""Attributes that a copy keeps: which of them its destination can have, which this process may give, and which differ.

Listings show neither access lists nor extended attributes. Those of directories are read while a copy is planned.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.fs.network_files import RangedFiles, StagingFiles
from gobblin_assets.fs.posix_errors import translate_error
from gobblin_assets.fs.registry import is_object_store, open_file_system
from gobblin_assets.fs.tree import PlacedEntries, Tree, TreeEntry, make_placement
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry, NamedFile
from gobblin_assets.jobs.copy.transfer.attributes import ACCESS_LISTS, ExtendedAttributes, read_extended
from gobblin_assets.jobs.copy.transfer.file_copy import CopyOptions, source_error
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, PreserveLetter, parse_preserve

BLOCK_STEP_BYTES: Final = 512
"""HDFS has a checksum for each so many bytes, and its blocks are made of whole ones."""


def find_kept(spec: CopyDatasetSpec, source: Tree, files: object) -> Preserve:
    """The attributes that the destination can keep. ``files``: its file system; None: an object store."""
    preserve = parse_preserve(spec.preserve)
    if not isinstance(files, StagingFiles):
        return preserve
    chosen = make_placement(None, None, spec.replication, spec.block_bytes)
    return preserve.by_names(chosen, are_told=isinstance(source, PlacedEntries))


def describe_kept(spec: CopyDatasetSpec, source: Tree, files: object) -> Iterator[str]:
    """Sentences for the run's log on letters that have no effect."""
    kept = find_kept(spec, source, files)
    letters = parse_preserve(spec.preserve).letters - kept.letters
    if letters:
        yield f"preserve: {', '.join(sorted(letters))} have no effect, since the destination can't keep them"
    unread = kept.list_unread(
        is_local=not isinstance(source, RangedFiles),
        has_owners=not isinstance(source, RangedFiles) or source.has_owners,
        has_placements=isinstance(source, PlacedEntries),
    )
    if unread:
        yield f"preserve: {', '.join(unread)} have no effect, since the source has no such attributes"


def check_placement(spec: CopySpec) -> None:
    """RejectedError for a replication or a size of blocks where the destination has none, or not this one."""
    listed = (("datasets", spec.datasets), ("overrides", spec.overrides))
    written = [(f"{name}[{n}]", each) for name, all_ in listed for n, each in enumerate(all_)]
    for where, dataset in [("defaults", spec.defaults), *written]:
        for name in ("replication", "block_bytes"):
            if getattr(dataset, name) is not None and not _has_placements(spec.destination):
                raise RejectedError(
                    "only files of HDFS have one, and the destination is elsewhere",
                    field=f"{where}.{name}",
                    hint="Take it out, or copy to hdfs://…",
                )
        if dataset.block_bytes is not None and dataset.block_bytes % BLOCK_STEP_BYTES:
            raise RejectedError(
                f"expected a multiple of {BLOCK_STEP_BYTES}, found {dataset.block_bytes}",
                field=f"{where}.block_bytes",
                hint="Write such as 268435456.",
            )


def _has_placements(uri: str) -> bool:
    return not is_object_store(uri) and isinstance(open_file_system(uri)[0], StagingFiles)


_STATUS: Final = Path("/proc/self/status")
_CAPABILITIES: Final = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
_CAP_CHOWN: Final = 0
_CAP_DAC_OVERRIDE: Final = 1
_CAP_DAC_READ_SEARCH: Final = 2

_READS_FILE: Final = stat.S_IRUSR
_LISTS_DIRECTORY: Final = stat.S_IRUSR | stat.S_IXUSR


@dataclass(frozen=True, slots=True)
class Ownership:
    """The owners and groups that this process may give. ``user``: the only one that may be given; None: any.
    ``groups``: those that may be given then.

    ``reader``: the process's user, who opens what is written once more, by the rights of its mode; None: a user who may
    read everything.
    """

    user: int | None = None
    groups: frozenset[int] = frozenset()
    reader: int | None = None

    def may_give(self, desired: Attributes) -> bool:
        if self.user is None:
            return True
        return desired.owner in {None, self.user} and (desired.group is None or desired.group in self.groups)

    def may_read(self, desired: Attributes, *, is_directory: bool) -> bool:
        """Whether the process can open what it made with these attributes: an owner has the owner's rights alone."""
        if self.reader is None or desired.mode is None or desired.owner not in {None, self.reader}:
            return True
        needed = _LISTS_DIRECTORY if is_directory else _READS_FILE
        return desired.mode & needed == needed


ANY_OWNER: Final = Ownership()


def find_ownership(preserve: Preserve, named: Iterable[NamedFile], files: NamedFiles | None, root: str) -> Ownership:
    """The owners that this process may give to files of the tree at ``root``. ``named``: files of a manifest.
    ``files`` None: it is in an object store.

    A file system may allow less than the kernel, as a server of NFS does: then the copy itself is refused.
    """
    if files is None:
        return ANY_OWNER
    # Where owners have names, the server knows the user's rights.
    reads_all = preserve.takes_placements or _has_right(_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH)
    reader = None if reads_all else os.geteuid()
    asked = preserve.letters & {PreserveLetter.OWNER, PreserveLetter.GROUP}
    asked_by_name = any({each.attributes.owner, each.attributes.group} != {None} for each in named)
    if not (asked or asked_by_name) or _has_right(_CAP_CHOWN):
        return Ownership(reader=reader)
    groups = {os.getegid(), *os.getgroups()}
    work = files.find_entry(work_root_of(root))
    if work is not None and work.group is not None and work.mode is not None and work.mode & stat.S_ISGID:
        # What is made there has this group already.
        groups.add(work.group)
    return Ownership(os.geteuid(), frozenset(groups), reader)


def _has_right(*capabilities: int) -> bool:
    """One of them. Linux divides root's rights: a container's root may lack it. Elsewhere root may all."""
    try:
        found = _CAPABILITIES.search(_STATUS.read_text(encoding="utf-8"))
    except OSError:
        found = None
    if found is None:
        return os.geteuid() == 0
    return any(int(found[1], 16) >> each & 1 for each in capabilities)


ReadDirectory = Callable[[str], ExtendedAttributes]
"""Of a directory, by its path below the source's root, or by its full path."""


def read_nothing(_path: str) -> ExtendedAttributes:
    """No attributes: directories have none, or nobody wants them."""
    return ()


def directory_reader(source_root: str, preserve: Preserve, *, follows_links: bool) -> ReadDirectory:
    """Reads what is to be kept of directories of a local or mounted file system."""
    access_lists = PreserveLetter.ACCESS_LISTS in preserve.letters
    extended = PreserveLetter.EXTENDED in preserve.letters
    if not access_lists and not extended:
        return read_nothing
    options = CopyOptions(checksum=False, access_lists=access_lists, extended=extended, follows_links=follows_links)
    return partial(_read, source_root, options)


def _read(source_root: str, options: CopyOptions, path: str) -> ExtendedAttributes:
    """RetryableError if the directory is gone, or is something else now; RejectedError if a right is missing."""
    place = path if path.startswith("/") else f"{source_root}/{path}"
    try:
        # The way to a file set may be a link, as the root of its listing may be one.
        flags = options.read_flags & ~os.O_NOFOLLOW if path.startswith("/") else options.read_flags
        descriptor = os.open(place, flags | os.O_DIRECTORY)
        try:
            return read_extended(descriptor, access_lists=options.access_lists, extended=options.extended)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise source_error(error, place) from error


def find_extended_changes(
    source: Tree, source_root: str, target_root: str, preserve: Preserve
) -> Callable[[TreeEntry, TreeEntry], str] | None:
    """The comparison for ``Sameness``, of a destination on this machine.

    None if it keeps none, or the source is elsewhere.
    """
    access_lists = PreserveLetter.ACCESS_LISTS in preserve.letters
    extended = PreserveLetter.EXTENDED in preserve.letters
    if isinstance(source, RangedFiles) or not (access_lists or extended):
        return None
    return _Extended(source_root, target_root, access_lists, extended).describe_changes


@dataclass(frozen=True, slots=True)
class _Extended:
    """A comparison of files on this machine. Both roots are full paths. ``access_lists``, ``extended``: what is
    compared.
    """

    source_root: str
    target_root: str
    access_lists: bool
    extended: bool

    def describe_changes(self, source: TreeEntry, target: TreeEntry) -> str:
        """The names of those that differ; empty if none does.

        An access list that the copy alone has is not counted: it may have it by the default of its directory, and a
        further copy would get it again.
        """
        origin = source.origin if isinstance(source, ConvertedEntry) else source
        wanted = self._read(f"{self.source_root}/{origin.path}")
        found = self._read(f"{self.target_root}/{target.path}")
        differ = {name for name, _value in wanted.items() ^ found.items()}
        differ -= {name for name in ACCESS_LISTS if name not in wanted}
        return f"{', '.join(sorted(differ))} changed" if differ else ""

    def _read(self, path: str) -> dict[str, bytes]:
        try:
            return dict(read_extended(path, access_lists=self.access_lists, extended=self.extended))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise translate_error(error, action="read the attributes of", path=path, changes=False) from error
