"""Mounts at and below a directory of this machine, and whether they are those of before.

Numbers of devices are given anew when a machine starts, and those of network mounts each time that they are mounted. So
a file system is known by its own number where it has one, else by the server and path that it comes from. A directory
that is mounted at a second place has the number of the first: the directory tells them apart.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class _Mount:
    """``device``: its numbers. ``directory``: of its file system, which is mounted at ``point``."""

    point: str
    device: str
    directory: str
    kind: str
    origin: str


def find_mounts(root: str) -> dict[str, str]:
    """By path below ``root``: what is mounted there, as a text that the same file system has again. "": root's own.

    Where the system has no list of mounts, only the root's own is known.
    """
    place = os.path.realpath(root)
    mounts = _list_around(place)
    waiting = [each.point for each in mounts.values() if each.kind == "autofs"]
    for point in waiting:
        # It mounts what belongs there once somebody looks inside.
        with suppress(OSError):
            os.stat(f"{point}/.")  # noqa: PTH116  a Path would drop the dot
    found = _list_around(place) if waiting else mounts
    if not found:
        return {"": str(os.stat(place).st_dev)}  # noqa: PTH116  as the others of this package
    return {path: _name(each) for path, each in found.items()}


def _list_around(place: str) -> dict[str, _Mount]:
    """By path below ``place``; a later mount at a point hides those before it."""
    found: dict[str, _Mount] = {}
    below = "/" if place == "/" else f"{place}/"
    for each in _read():
        if each.point.startswith(below) and each.point != "/":
            found[each.point.removeprefix(below)] = each
        elif place == each.point or place.startswith(f"{each.point.rstrip('/')}/"):
            own = found.get("")
            if own is None or len(each.point) >= len(own.point):
                found[""] = each
    return found


def _read() -> Iterator[_Mount]:
    try:
        lines = MOUNTS.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        fields, _, rest = line.partition(" - ")
        _number, _parent, device, directory, point, *_options = fields.split(" ")
        kind, origin, *_others = rest.split(" ")
        yield _Mount(*(_unescape(each) for each in (point, device, directory, kind, origin)))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _name(mount: _Mount) -> str:
    number = 0
    with suppress(OSError):
        number = os.statvfs(mount.point).f_fsid
    is_remote = ":" in mount.origin or mount.origin.startswith("//")
    known = f"{number:x}" if number else mount.origin if is_remote else mount.device
    return f"{mount.kind} {known} {mount.directory}"
