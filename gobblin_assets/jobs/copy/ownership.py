"""Which owners, groups and modes this process may give to files: known before anything is copied."""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gobblin_assets.destinations.claims import work_root_of
from gobblin_assets.fs.named_files import NamedFiles
from gobblin_assets.jobs.copy.copyable import Attributes
from gobblin_assets.jobs.copy.datasets import NamedFile
from gobblin_assets.jobs.copy.transfer.preserve import Preserve, PreserveLetter

_STATUS: Final = Path("/proc/self/status")
_CAPABILITIES: Final = re.compile(r"^CapEff:\s*([0-9a-f]+)$", re.MULTILINE)
_CAP_CHOWN: Final = 0
_CAP_DAC_OVERRIDE: Final = 1
_CAP_DAC_READ_SEARCH: Final = 2

_READS_FILE: Final = stat.S_IRUSR
_LISTS_DIRECTORY: Final = stat.S_IRUSR | stat.S_IXUSR


@dataclass(frozen=True, slots=True)
class Ownership:
    """``user``: the only one that may be given; None: any. ``groups``: those that may be given then.

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
    """What this process may give to files of the tree at ``root``. ``named``: files of a manifest.
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
