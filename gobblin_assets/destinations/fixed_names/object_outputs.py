"""Outputs that a copy stages for names in an object store: the values from which ``named_objects`` makes steps.

``number`` is unique within the attempt. Paths are relative to the dataset's place at the destination.
"""

from dataclasses import dataclass

from gobblin_assets.fs.objects import UploadId, UploadPart
from gobblin_assets.model.files import FileIdentity


@dataclass(frozen=True, slots=True)
class StagedUpload:
    """An upload with all of its parts. ``number`` is that of its output."""

    number: int
    upload: UploadId
    parts: tuple[UploadPart, ...]


@dataclass(frozen=True, slots=True)
class ObjectAtName:
    """A staged object. ``replaces``: the object that stands at its name; None: the name is free.

    ``identity``: its length and the time of its origin. ``is_metadata``: it is published after the other objects.
    """

    path: str
    staged: StagedUpload
    identity: FileIdentity
    replaces: FileIdentity | None = None
    is_metadata: bool = False


@dataclass(frozen=True, slots=True)
class ObjectToRemove:
    """An object to remove, by its ETag. ``staged``: the mark that takes its place before."""

    path: str
    staged: StagedUpload
    identity: FileIdentity


NamedObject = ObjectAtName | ObjectToRemove
