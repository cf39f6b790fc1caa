"""Trees of a server, and their files."""

from collections.abc import Iterator
from functools import partial

from gobblin_assets.fs.sftp.answers import S_NS, SftpFailure, explain_sftp_failure
from gobblin_assets.fs.sftp.client import SftpClient
from gobblin_assets.fs.sftp.files import RangedSftpFile
from gobblin_assets.fs.sftp.listing import SftpListing, find_sftp_entry
from gobblin_assets.fs.sftp.session import SftpSession
from gobblin_assets.fs.tree import Descend, EntryKind, TreeEntry
from gobblin_assets.model.files import FileIdentity


class SftpTree:
    """``RangedFiles``, ``FoundEntries`` and ``LinkedPlaces`` over one server. Safe to share between threads.

    ``address``: as in URIs. ``hidden``, ``follow_links``: as in ``ListedFiles``.
    """

    def __init__(
        self, address: str, client: SftpClient, option: str, *, hidden: frozenset[str], follow_links: bool
    ) -> None:
        self._address = address
        self._client = client
        self._option = option
        self._hidden = hidden
        self._follow_links = follow_links

    @property
    def mtime_precision_ns(self) -> int:
        return S_NS

    @property
    def has_owners(self) -> bool:
        return True

    def to_uri(self, path: str) -> str:
        return f"sftp://{self._address}{path}"

    def list_tree(self, root: str, descend: Descend | None = None) -> Iterator[TreeEntry]:
        """Some directories are read ahead; the entries of those and of the ones on the way are held and sorted."""
        listing = SftpListing(
            self._client, _clean(root), self._option, self._hidden, descend, follow_links=self._follow_links
        )
        return listing.list_entries()

    def find_entry(self, path: str) -> TreeEntry | None:
        place = _clean(path)
        found = self._client.run(partial(find_sftp_entry, place, self._follow_links), "look at", place)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=place, option=self._option)
        return found

    def find_link_target(self, path: str) -> str | None:
        place = _clean(path)
        found = self._client.run(partial(find_sftp_entry, place, False), "look at", place)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=place, option=self._option)
        return self.find_real_path(place) if found is not None and found.kind is EntryKind.LINK else None

    def find_real_path(self, path: str) -> str:
        place = _clean(path)

        async def find(session: SftpSession) -> bytes | SftpFailure:
            return await session.find_real_path(place)

        found = self._client.run(find, "look at", place)
        if isinstance(found, SftpFailure):
            raise explain_sftp_failure(found, action="look at", path=place, option=self._option)
        return _clean(found.decode(errors="surrogateescape"))

    def find_file(self, path: str) -> FileIdentity | None:
        found = self.find_entry(path)
        return None if found is None or found.kind is not EntryKind.FILE else found.identity

    def open_ranged(self, path: str, identity: FileIdentity) -> RangedSftpFile:
        file = RangedSftpFile(self._client, _clean(path), identity, self._option, follow_links=self._follow_links)
        if not identity.size_bytes:
            file.require_empty()
        return file


def _clean(path: str) -> str:
    """The root of the server is one slash, and what is below it begins with one."""
    return f"/{path.strip('/')}"
