"""Codecs of segments for the steps of ``object_steps``: the columns have what is published, ``payload`` the upload.

The payload is a JSON list: the upload, its parts, the ETag and size of the old version or nothing, and whether the
object is metadata. A row with a target and without a size is an object that is removed.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from gobblin_assets.commit.named_codecs import CLEAR_FILE, NAMED_KINDS, REMOVE_FILE, format_identity, parse_identity
from gobblin_assets.commit.object_steps import (
    ObjectStep,
    PlaceObject,
    PublishObject,
    RemoveObject,
    ReplaceObject,
)
from gobblin_assets.commit.steps import CommitStep, StepKind, StepRow
from gobblin_assets.errors import CorruptionError
from gobblin_assets.fs.objects import UploadId, UploadPart
from gobblin_assets.model.files import FileIdentity

REMOVE_OBJECT: Final = "remove_object"


class _ObjectCodec:
    """Of the kinds at given names; ``_make`` makes a step of the one."""

    def to_columns(self, steps: Sequence[ObjectStep], first: int) -> Sequence[Sequence[object]]:
        return _to_columns(steps, first)

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, staging, number, target_dir, target, size, inode, mtime, tag, _rows, payload in rows:
            identity = None if size is None else FileIdentity(size, inode, mtime, tag)
            upload, parts, old, is_metadata = json.loads(payload)
            common = (staging or "", f"{target_dir}/{target}", number or "", UploadId(upload), _read_parts(parts))
            yield self._make(common, identity, None if old is None else parse_identity(old), bool(is_metadata))

    def _make(
        self,
        common: tuple[str, str, str, UploadId, tuple[UploadPart, ...]],
        identity: FileIdentity | None,
        old: FileIdentity | None,
        is_metadata: bool,  # noqa: FBT001  a column of the payload
    ) -> CommitStep:
        if identity is None:
            return RemoveObject(*common, old=_require(old))
        if old is None:
            return PlaceObject(*common, identity=identity, is_metadata=is_metadata)
        return ReplaceObject(*common, identity=identity, old=old, is_metadata=is_metadata)


class _PublishCodec:
    """Of ``publish_object``."""

    def to_columns(self, steps: Sequence[ObjectStep], first: int) -> Sequence[Sequence[object]]:
        return _to_columns(steps, first)

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        for _, _, staging, number, target_dir, target, size, _inode, _mtime, tag, row_count, payload in rows:
            upload, parts, _old, _is_metadata = json.loads(payload)
            yield PublishObject(
                staging,
                f"{target_dir}/{target}",
                number,
                UploadId(upload),
                _read_parts(parts),
                identity=FileIdentity(size, tag=tag),
                row_count=row_count,
            )


def _to_columns(steps: Sequence[ObjectStep], first: int) -> Sequence[Sequence[object]]:
    targets = [step.target.rpartition("/") for step in steps]
    published = [next(iter(step.published()), None) for step in steps]
    identities = [None if each is None else each[1] for each in published]
    return [
        range(first, first + len(steps)),
        [step.staging for step in steps],
        [step.number for step in steps],
        [directory for directory, _, _ in targets],
        [name for _, _, name in targets],
        [None if identity is None else identity.size_bytes for identity in identities],
        [None] * len(steps),
        [None if identity is None else identity.mtime_ns for identity in identities],
        [None if identity is None else identity.tag for identity in identities],
        [None if each is None else each[2] for each in published],
        [_write(step) for step in steps],
    ]


def _read_parts(parts: Iterable[Sequence[Any]]) -> tuple[UploadPart, ...]:
    return tuple(UploadPart(number, *part) for number, part in enumerate(parts, start=1))


def _write(step: ObjectStep) -> str:
    parts = [[part.size_bytes, part.etag, part.crc32c] for part in step.parts]
    old = None if step.replaced is None else format_identity(step.replaced)
    is_metadata = isinstance(step, PlaceObject | ReplaceObject) and step.is_metadata
    return json.dumps([step.upload, parts, old, int(is_metadata)], separators=(",", ":"))


def _require(identity: FileIdentity | None) -> FileIdentity:
    if identity is None:
        raise CorruptionError("a stored removal of an object has no old version")
    return identity


OBJECT_KINDS: Final = tuple(
    StepKind(name, _ObjectCodec()) for name in ("place_object", "replace_object", REMOVE_OBJECT)
)

PUBLISH_OBJECT: Final = StepKind("publish_object", _PublishCodec())
"""At a name that is new with each sequence."""

GIVEN_NAMES: Final = frozenset(kind.name for kind in (*NAMED_KINDS, *OBJECT_KINDS))
"""Kinds whose names other publications use too."""

REMOVING: Final = frozenset({CLEAR_FILE, REMOVE_FILE, REMOVE_OBJECT})
"""Kinds after which nothing stands at the name."""
