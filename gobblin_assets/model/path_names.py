"""Paths and asset keys for datasets: derived from the job, the URN and the role.

Two datasets never meet in one directory, nor is one's directory inside the other's, also on a file system
that ignores case and for readers that skip names with a leading dot or underscore:

- ASCII letters, digits, ``.``, ``-`` and ``_`` stay. Every other byte of the UTF-8 text becomes ``%XX``, and so does a
  ``.`` or ``_`` at the start of a segment;
- if there are capitals, ``~`` and a hexadecimal number follow. Each bit says whether an ASCII letter is a capital; the
  last letter has the lowest bit;
- a name longer than ``SEGMENT_BYTES_MAX`` goes on in a nested segment, and every segment but the last ends in ``+``. So
  the last directory of a name is never the parent of another name's directory.

``Sales/Orders`` becomes ``Sales%2FOrders~420``.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.model.urn import DatasetUrn, JobName, Role

SEGMENT_BYTES_MAX: Final = 180
"""Of the 255 that file systems allow; the rest is for what tools put around a name (``.x.crc``, ``x._COPYING_``)."""

_EMPTY: Final = "%empty"  # no escape begins like that, so that no text can be mistaken for it
_CONTINUED: Final = "+"
_CAPITALS: Final = "~"
_LETTER: Final = re.compile(r"[A-Za-z]")
_SAFE: Final = re.compile(r"[A-Za-z0-9._-]")
_HIDES: Final = frozenset("._")
_KEY_UNSAFE: Final = re.compile(r'[/%"\\*\x00-\x1f\x7f-\x9f\u2028\u2029]|^ +| +\Z')


@lru_cache(maxsize=4096)
def encode_segment(text: str) -> tuple[str, ...]:
    """One name as one or more path segments. ``text`` is any valid Unicode; the empty text has a name too."""
    if not text:
        return (_EMPTY,)
    units = [character if _SAFE.match(character) else _escape(character) for character in text]
    capitals = "".join("1" if letter.isupper() else "0" for letter in _LETTER.findall(text))
    if "1" in capitals:
        units.extend(f"{_CAPITALS}{int(capitals, 2):X}")
    return tuple(_fill_segments(units))


def job_directory(root: str, job: JobName) -> str:
    """The directory of all datasets of a job, and of its staging."""
    return "/".join((root, *encode_segment(job)))


def path_of(root: str, job: JobName, urn: DatasetUrn, role: Role = Role.DATA) -> str:
    """The directory of one dataset's published files in one role: ``<root>/<job>/<role>/<urn>``."""
    return "/".join((root.rstrip("/"), *encode_segment(job), role.value, *encode_segment(urn)))


def asset_key_of(job: JobName, urn: DatasetUrn, role: Role = Role.DATA) -> tuple[str, ...]:
    """The components of the dataset's asset key: job, URN and, unless it is ``data``, the role.

    Percent-encoded is only what would be ambiguous: ``/`` (Dagster joins components by it), ``%``, the quote,
    backslash and star of its selection syntax, control characters, and spaces at the ends. So keys differ
    where URNs do, and so do their texts joined by ``/``.
    """
    component = _KEY_UNSAFE.sub(lambda unsafe: _escape(unsafe[0]), urn)
    return (job, component) if role is Role.DATA else (job, component, role.value)


def source_key_of(kind: str, connection: str, name: str) -> tuple[str, ...]:
    """The components of the asset key of a table or topic that is read, such as source/jdbc/shop/public.orders.

    Four, where ``asset_key_of`` makes two or three, so that none is a dataset's, whatever jobs and connections are
    called. Percent-encoded as there.
    """
    return ("source", *(_KEY_UNSAFE.sub(lambda unsafe: _escape(unsafe[0]), each) for each in (kind, connection, name)))


def source_tree_key_of(uri: str) -> tuple[str, ...]:
    """The components of the asset key of a tree of files that is copied, such as source/files/s3/bucket%2Fin.

    Four, as ``source_key_of`` makes them; no kind of source is called ``files``.
    """
    scheme, found, path = uri.partition("://")
    place = (path if found else uri).rstrip("/") or "/"
    return source_key_of("files", scheme if found else "file", place)


def _escape(text: str) -> str:
    return "".join(f"%{octet:02X}" for octet in text.encode("utf-8"))


def _fill_segments(units: Iterable[str]) -> Iterator[str]:
    """Cut between units only: an escape that is torn apart could open a segment with its digits."""
    segment = ""
    for unit in units:
        if len(segment) + len(unit) + len(_CONTINUED) > SEGMENT_BYTES_MAX:
            yield segment + _CONTINUED
            segment = ""
        segment += _escape(unit) if not segment and unit in _HIDES else unit
    yield segment


def list_upwards(directories: Iterable[str], root: str) -> list[str]:
    """These directories and their parents up to ``root``, itself included, deepest first and each once.

    What is to survive a power cut is synced in this order: a name is only as durable as those above it, and whoever
    made one of them may have died before syncing it.
    """
    found: set[str] = set()
    for directory in directories:
        current = PurePosixPath(directory)
        while str(current) not in found:
            found.add(str(current))
            if str(current) == root:
                break
            current = current.parent
    return sorted(found, key=lambda path: (-path.count("/"), path))


def moved_path(path: str, moved: tuple[str, str] | None) -> str:
    """Where a published path is now. ``moved``: the root at which it was published, and the one that it moved to."""
    if moved is None or not path.startswith(f"{moved[0]}/"):
        return path
    return moved[1] + path.removeprefix(moved[0])
