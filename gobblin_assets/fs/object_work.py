"""An object store as the file system of the small files that the commit protocol keeps beside what it publishes.

Each small file is one object that is written once. There are no directories, no renames, and nothing to sync: an
object is durable when the store has answered.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, NoReturn

from gobblin_assets.errors import ConflictError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.objects import (
    FOR_GIVEN_NAMES,
    FOR_NEW_NAMES,
    Ability,
    ObjectEntry,
    ObjectFiles,
    RemoveOutcome,
    WriteOutcome,
)
from gobblin_assets.model.files import FileIdentity, FileStat

_TRIES_MAX: Final = 3


@dataclass(slots=True)
class ObjectWorkFiles:
    """``FileSystem`` over one store, and the way from it to ``objects``. ``needed``: what the store must honour."""

    objects: ObjectFiles
    calls_at_once: int = 1
    needed: frozenset[Ability] = FOR_NEW_NAMES
    foresees_etags: bool = field(default=False, init=False)

    @property
    def scheme(self) -> str:
        return self.objects.scheme

    def to_uri(self, path: str) -> str:
        return self.objects.to_uri(path)

    def find_identity(self, path: str) -> FileIdentity | None:
        found = self.objects.find_object(path)
        return None if found is None else identity_of(found)

    def is_directory(self, path: str) -> bool:
        """Whether an object lies below ``<path>/``."""
        return next(iter(self.objects.list_objects(path)), None) is not None

    def find_directories(self, root: str, name: str) -> Iterator[str]:
        """The directories of objects whose keys have the name between two slashes."""
        last = ""
        for each in self.objects.list_objects(root):
            above, found, _ = each.path.removeprefix(root).partition(f"/{name}/")
            place = f"{root}{above}/{name}"
            if found and place != last:
                last = place
                yield place

    def list_files(self, directory: str) -> Sequence[FileStat]:
        return [FileStat(each.path, identity_of(each)) for each in self.objects.list_objects(directory)]

    def open_input(self, path: str) -> BinaryIO:
        # Whoever asked closes the stream, which is all that leaving the context would do.
        return self.objects.open_input(path).__enter__()

    def create_file(self, path: str) -> BinaryIO:
        _refuse("written in pieces", path)

    def make_directories(self, directory: str) -> None:
        """A store has no directories."""

    def make_destination(self, root: str) -> None:
        """A store has no directories."""

    def rename_no_replace(self, source: str, target: str) -> RenameOutcome:
        del target
        _refuse("renamed", source)

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        return frozenset(path for path, content in contents.items() if self._write(path, content))

    def _write(self, path: str, content: bytes) -> bool:
        for _try in range(_TRIES_MAX):
            try:
                return self.objects.put_if_absent(path, content) is WriteOutcome.WRITTEN
            except OutcomeUnknownError:
                # Sent again, it finds what it wrote before.
                continue
        raise RetryableError(f"{self.to_uri(path)} could not be written", path=path)

    def make_durable(self, files: Iterable[str]) -> None:
        """Objects are durable once they are there."""

    @contextmanager
    def durable_tree(self, directory: str, *, file_count: int) -> Iterator[None]:
        del directory, file_count
        yield

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Objects are durable once they are there."""

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        etag = identity.tag or self._find_etag(path, identity)
        if etag is not None and self.objects.remove_object(path, etag) is RemoveOutcome.CONDITION_FAILED:
            raise self._another(path)
        return True

    def _find_etag(self, path: str, identity: FileIdentity) -> str | None:
        """The ETag of the object there.

        None if there is none. ETags of some stores are none of the bytes, so no step knows them; and an object that a
        person copied to another destination may have got another one.
        """
        found = self.objects.find_object(path)
        if found is not None and not identity_of(found).matches(identity):
            raise self._another(path)
        return None if found is None else found.etag

    def _another(self, path: str) -> ConflictError:
        return ConflictError(f"{self.to_uri(path)} is another object now", path=path)

    def remove_tree(self, directory: str) -> None:
        for each in self.objects.list_objects(directory):
            self.objects.remove_object(each.path, each.etag)

    def remove_empty_directory(self, directory: str) -> bool:
        """A store has no directories."""
        del directory
        return False

    def apply_modes(self, root: str) -> None:
        """Objects have no modes."""

    def probe(self, staging_root: str, final_root: str) -> None:
        """RejectedError for a store that does not honour what is needed of it."""
        del final_root
        found = self.objects.rehearse(staging_root, self.needed | {Ability.FORESEEN_ETAGS})
        self.foresees_etags = Ability.FORESEEN_ETAGS in found
        lacking = [each.value for each in Ability if each in self.needed - found]
        if lacking:
            raise RejectedError(
                f"the store at {self.to_uri(staging_root)} ignores {', '.join(lacking)}",
                field="destination",
                hint="Without it a paused process could overwrite a later version. Use a store that honours it.",
                lacking=lacking,
            )


def for_given_names(fs: FileSystem) -> FileSystem:
    """The same store, which has to honour what publishing at given names needs."""
    return replace(fs, needed=FOR_GIVEN_NAMES) if isinstance(fs, ObjectWorkFiles) else fs


def identity_of(entry: ObjectEntry) -> FileIdentity:
    """The time is left out: the store's own changes with each write, and that of the origin is in the metadata."""
    return FileIdentity(entry.size_bytes, tag=entry.etag)


def _refuse(what: str, path: str) -> NoReturn:
    raise RejectedError(
        f"{path} can't be {what}: it is an object",
        field="destination",
        hint="Name a directory of a disk or a mounted file system, or publish objects by steps of their own.",
    )
