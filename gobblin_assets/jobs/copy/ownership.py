"""Which owners and groups this process may give to files: known before anything is copied."""

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


@dataclass(frozen=True, slots=True)
class Ownership:
    """``user``: the only one that may be given; None: any. ``groups``: those that may be given then."""

    user: int | None = None
    groups: frozenset[int] = frozenset()

    def may_give(self, desired: Attributes) -> bool:
        if self.user is None:
            return True
        return desired.owner in {None, self.user} and (desired.group is None or desired.group in self.groups)


ANY_OWNER: Final = Ownership()


def find_ownership(preserve: Preserve, named: Iterable[NamedFile], files: NamedFiles | None, root: str) -> Ownership:
    """What this process may give to files of the tree at ``root``. ``named``: files of a manifest.
    ``files`` None: it is in an object store.

    A file system may allow less than the kernel, as a server of NFS does: then the copy itself is refused.
    """
    asked = preserve.letters & {PreserveLetter.OWNER, PreserveLetter.GROUP}
    asked_by_name = any({each.attributes.owner, each.attributes.group} != {None} for each in named)
    if files is None or not (asked or asked_by_name) or _may_change_owners():
        return ANY_OWNER
    groups = {os.getegid(), *os.getgroups()}
    work = files.find_entry(work_root_of(root))
    if work is not None and work.group is not None and work.mode is not None and work.mode & stat.S_ISGID:
        # What is made there has this group already.
        groups.add(work.group)
    return Ownership(os.geteuid(), frozenset(groups))


def _may_change_owners() -> bool:
    """Linux divides root's rights: a container's root may lack this one. Elsewhere root may all."""
    try:
        found = _CAPABILITIES.search(_STATUS.read_text(encoding="utf-8"))
    except OSError:
        found = None
    return os.geteuid() == 0 if found is None else bool(int(found[1], 16) >> _CAP_CHOWN & 1)
