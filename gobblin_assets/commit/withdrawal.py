"""Withdraws names from readers: what is at a name is moved to a new name. Nothing is deleted or replaced.

A file system renames them. An object store has no rename: there each object is copied inside the store, and then
removed if it is still the version that was copied. A process that is killed between the two leaves both.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gobblin_assets.commit.object_attempts import abort_uploads
from gobblin_assets.errors import ConflictError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.objects import HoldsObjects, ObjectEntry, ObjectFiles, RemoveOutcome, WriteOutcome


def withdraw_name(fs: FileSystem, path: str, target: str) -> bool:
    """Move a file, or a directory with all below it. True if it was there. ConflictError if ``target`` is taken."""
    if isinstance(fs, HoldsObjects):
        return _move_objects(fs, path, target)
    fs.make_directories(target.rpartition("/")[0])
    outcome = fs.rename_no_replace(path, target)
    if outcome is RenameOutcome.TARGET_EXISTS:
        raise ConflictError(f"{target} is taken; {path} stays where it is", path=path)
    return outcome is RenameOutcome.RENAMED


def abort_attempt_uploads(fs: FileSystem, staging: str) -> None:
    """Abort the attempt's uploads, so that a process that still executes its steps finds nothing to publish.

    An upload can't be moved as files are. The rows of an aborted one are read again.
    """
    if isinstance(fs, HoldsObjects):
        abort_uploads(fs.objects, staging)


def _move_objects(fs: HoldsObjects, path: str, target: str) -> bool:
    files = fs.objects
    found = list(files.list_objects(path))
    if not found:
        one = files.find_object(path)
        found = [] if one is None else [one]
    with ThreadPoolExecutor(max(1, fs.calls_at_once), thread_name_prefix="withdraw") as pool:
        for _done in pool.map(partial(_move_object, files, path, target), found):
            pass
    return bool(found)


def _move_object(files: ObjectFiles, path: str, target: str, entry: ObjectEntry) -> None:
    copied = files.copy_object(entry.path, target + entry.path.removeprefix(path), entry.etag)
    if copied is not WriteOutcome.WRITTEN or (
        files.remove_object(entry.path, entry.etag) is RemoveOutcome.CONDITION_FAILED
    ):
        raise ConflictError(
            f"{files.to_uri(entry.path)} changed while it was moved aside",
            hint="Stop what else writes there, then reconcile again.",
            path=entry.path,
        )
