"""One listing of a server's tree, in byte order. Directories that come next are read ahead: each takes round trips."""

import asyncio
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.sftp.client import SftpClient
from gobblin_assets.fs.sftp.session import (
    SftpFailure,
    SftpSession,
    entry_of_attributes,
    explain_sftp_failure,
    run_together,
)
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry, is_hidden, sort_key, walk_levels

READ_AHEAD: Final = 8
"""So many directories of each one that is being listed."""

LOOKS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class _Listed:
    """An entry of a directory, by its name. Of a link that is followed: what it leads to, and why it can't be followed.

    ``target``: the real path of what it leads to.
    """

    entry: TreeEntry
    target: str = ""
    trouble: str = ""


@dataclass(slots=True)
class _Level:
    """A directory whose entries are being given. ``prefix``: its path below the root, and a slash.

    ``real``: its path without links, where links are followed. ``position``: of the next entry. ``ahead``: listings of
    directories in it, from there up to the entry ``reached``; None for those that are not wanted.
    """

    place: str
    prefix: str
    real: str
    entries: list[_Listed]
    position: int = 0
    reached: int = 0
    ahead: "dict[str, Future[list[_Listed] | SftpFailure] | None]" = field(default_factory=dict)


class SftpListing:
    """A listing of a tree. ``hidden``, ``follow_links``: as in ``fs.tree.ListedFiles``. For one thread, once."""

    def __init__(
        self,
        client: SftpClient,
        root: str,
        option: str,
        hidden: frozenset[str],
        descend: Descend | None,
        *,
        follow_links: bool,
    ) -> None:
        self._client = client
        self._root = root
        self._option = option
        self._hidden = hidden
        self._descend = descend
        self._follow_links = follow_links
        self._levels: list[_Level] = []
        self._found_root: TreeEntry | None = None
        self._real_root = ""

    def list_entries(self) -> Iterator[TreeEntry]:
        try:
            self._levels.append(self._open_root())
            yield from walk_levels(self._levels, self._list_level)
        finally:
            for level in self._levels:
                for future in level.ahead.values():
                    if future is not None:
                        future.cancel()

    def _list_level(self, level: _Level) -> Generator[TreeEntry, None, _Level | None]:
        while level.position < len(level.entries):
            listed = level.entries[level.position]
            path = f"{level.prefix}{listed.entry.path}"
            entry = replace(listed.entry, path=path)
            if entry.kind is not EntryKind.DIRECTORY:
                level.position += 1
                self._check_link(level, listed)
                yield entry
                continue
            self._read_ahead(level)
            level.position += 1
            future = level.ahead.pop(listed.entry.path)
            self._check_link(level, listed)
            if future is None:
                yield entry
                continue
            if level.prefix and listed.entry.path in self._hidden:
                raise self._refuse(
                    f"another copy's destination lies inside: {path} is its working directory",
                    "Exclude the directory that holds it, or choose another root.",
                )
            below = self._open_below(level, listed, future)
            if below is not None:
                yield entry
                return below
        return None

    def _read_ahead(self, level: _Level) -> None:
        while len(level.ahead) < READ_AHEAD and level.reached < len(level.entries):
            listed, name = level.entries[level.reached], level.entries[level.reached].entry.path
            level.reached += 1
            if listed.entry.kind is EntryKind.DIRECTORY:
                is_wanted = self._descend is None or self._descend(f"{level.prefix}{name}")
                real = listed.target or f"{level.real}/{name}"
                level.ahead[name] = self._begin(_join(level.place, name), real) if is_wanted else None

    def _begin(self, place: str, real: str) -> "Future[list[_Listed] | SftpFailure]":
        return self._client.begin(partial(self._load, place, real), "list", place)

    def _open_root(self) -> _Level:
        self._found_root = self._look_at_root()
        if self._found_root is None:
            raise self._refuse(f"{self._root} is missing", "Correct the path, or make the directory.")
        if self._found_root.kind is not EntryKind.DIRECTORY:
            raise self._refuse(f"expected a directory, found another kind of file: {self._root}", "Correct the path.")
        if self._follow_links:
            self._real_root = self._require_real_root()
        found = self._begin(self._root, self._real_root).result()
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="list", path=self._root, option=self._option)
        shown = [each for each in found if not is_hidden(each.entry, self._hidden)]
        return _Level(self._root, "", self._real_root, shown)

    def _open_below(
        self, above: _Level, listed: _Listed, future: "Future[list[_Listed] | SftpFailure]"
    ) -> _Level | None:
        """None if it has disappeared."""
        name = listed.entry.path
        place, real = _join(above.place, name), listed.target or f"{above.real}/{name}"
        if listed.target and real in [each.real for each in self._levels]:
            raise self._refuse(f"the link {place} leads to a directory that holds it", "Remove it, or exclude it.")
        found = future.result()
        if not isinstance(found, SftpFailure):
            return _Level(place, f"{above.prefix}{name}/", real, found)
        entry = self._client.run(partial(find_sftp_entry, place, self._follow_links), "look at", place)
        if isinstance(entry, TreeEntry) and entry.kind is not EntryKind.DIRECTORY:
            raise RetryableError(f"{place} changed its kind while it was being listed", path=place)
        if entry is None and found.is_missing:
            self._require_root_unchanged()
            return None
        raise explain_sftp_failure(found, action="list", path=place, option=self._option)

    def _require_root_unchanged(self) -> None:
        """What was unmounted must not look as if somebody had removed it directory by directory."""
        found = self._look_at_root()
        if found is None or self._found_root is None or not _may_be(found, self._found_root):
            raise RetryableError(
                f"{self._root} changed while it was being listed, and directories in it are gone", path=self._root
            )

    def _look_at_root(self) -> TreeEntry | None:
        found = self._client.run(partial(find_sftp_entry, self._root, True), "look at", self._root)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=self._root, option=self._option)
        return found

    def _require_real_root(self) -> str:
        async def find(session: SftpSession) -> bytes | SftpFailure:
            return await session.find_real_path(self._root)

        found = self._client.run(find, "look at", self._root)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=self._root, option=self._option)
        return found.decode(errors="surrogateescape").rstrip("/")

    async def _load(self, place: str, real: str, session: SftpSession) -> list[_Listed] | SftpFailure:
        """The directory's entries in order; what is wrong with a link is said when its turn comes."""
        found = await session.list_directory(place)
        if isinstance(found, SftpFailure):
            return found
        names = [self._read_name(place, each.name) for each in found]
        found_entries = [entry_of_attributes(name, each.attributes) for name, each in zip(names, found, strict=True)]
        listed = [_Listed(entry) for entry in found_entries if entry is not None]
        unknown = [name for name, entry in zip(names, found_entries, strict=True) if entry is None]
        for begin in range(0, len(unknown), LOOKS_AT_ONCE):
            some = unknown[begin : begin + LOOKS_AT_ONCE]
            looked = await run_together(self._require_entry(session, place, name) for name in some)
            listed += [_Listed(entry) for entry in looked if entry is not None]
        if self._follow_links:
            links = [each for each in listed if each.entry.kind is EntryKind.LINK]
            listed = [each for each in listed if each.entry.kind is not EntryKind.LINK]
            for begin in range(0, len(links), LOOKS_AT_ONCE):
                batch = links[begin : begin + LOOKS_AT_ONCE]
                listed += await run_together(self._follow(session, place, real, each.entry) for each in batch)
        return sorted(listed, key=lambda each: sort_key(each.entry))

    def _read_name(self, place: str, name: bytes) -> str:
        """RejectedError for one that no directory of ours can hold: a server may say anything."""
        try:
            found = name.decode()
        except UnicodeDecodeError:
            found = ""
        if not found or "/" in found or "\0" in found:
            raise self._refuse(
                f"expected names of files in UTF-8, found {name!r} in {place}", "Rename it, or remove it."
            )
        return found

    async def _require_entry(self, session: SftpSession, place: str, name: str) -> TreeEntry | None:
        """None if it has disappeared."""
        path = _join(place, name)
        found = await session.look_at(path, follow=False)
        if isinstance(found, SftpFailure):
            if found.is_missing:
                return None
            raise explain_sftp_failure(found, action="look at", path=path, option=self._option)
        entry = entry_of_attributes(name, found)
        if entry is None:
            raise self._refuse(f"the server does not tell what {path} is", "Copy from a server that does.")
        return entry

    async def _follow(self, session: SftpSession, place: str, real: str, link: TreeEntry) -> _Listed:
        path = _join(place, link.path)
        attributes, target = await asyncio.gather(session.look_at(path, follow=True), session.find_real_path(path))
        if isinstance(attributes, SftpFailure):
            return _Listed(
                link, trouble="leads nowhere" if attributes.is_missing else f"can't be followed: {attributes}"
            )
        if isinstance(target, SftpFailure):
            return _Listed(link, trouble=f"can't be followed: {target}")
        leads_to = target.decode(errors="surrogateescape")
        entry = entry_of_attributes(link.path, attributes)
        if entry is None or leads_to == f"{real}/{link.path}":
            return _Listed(link, trouble="can't be followed, since the server does not tell where it leads")
        inside = leads_to.removeprefix(f"{self._real_root}/")
        if inside == leads_to or inside.partition("/")[0] in self._hidden:
            return _Listed(link, trouble=f"leads to {leads_to}, which is not below the root {self._real_root}")
        return _Listed(entry, leads_to)

    def _check_link(self, level: _Level, listed: _Listed) -> None:
        if listed.trouble:
            raise self._refuse(
                f"the link {_join(level.place, listed.entry.path)} {listed.trouble}",
                "Links are followed inside the root only: exclude it, or put a copy in its place.",
            )

    def _refuse(self, message: str, hint: str) -> RejectedError:
        return RejectedError(message, field=self._option, hint=hint, path=self._root)


async def find_sftp_entry(path: str, follow: bool, session: SftpSession) -> TreeEntry | SftpFailure | None:  # noqa: FBT001  bound by its callers
    """None if nothing is there."""
    found = await session.look_at(path, follow=follow)
    if isinstance(found, SftpFailure):
        return None if found.is_missing else found
    return entry_of_attributes(path, found)


def _may_be(found: TreeEntry, before: TreeEntry) -> bool:
    """Whether it is the directory of before. What changes in a directory moves its time on."""
    times = (found.identity.mtime_ns or 0, before.identity.mtime_ns or 0)
    one, other = ((each.kind, each.mode, each.owner, each.group) for each in (found, before))
    return one == other and times[0] >= times[1]


def _join(place: str, name: str) -> str:
    return f"{place.rstrip('/')}/{name}"
