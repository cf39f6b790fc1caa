"""Things that an attempt keeps in an object store: the uploads that it began, and its copies of old versions.

    <attempt>/uploads-<writer>-<n>.json    uploads that were begun, written down before their parts are written
    <attempt>/slots/<number>               a copy of the version that a step replaced or removed
    <attempt>/undo/<number>/<fence>-<id>   an upload by which an abandonment takes the step back

An attempt in an object store has no directory that could be renamed, so nobody captures it. Its uploads are what may
still change a name: whoever gives an attempt up aborts them.
"""

import json
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from gobblin_assets.commit.attempts import SLOTS
from gobblin_assets.errors import (
    CorruptionError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.fs.objects import ObjectEntry, ObjectFiles, UploadId, WriteOutcome

ID_KEY: Final = "gobblin-id"
"""In an object's metadata: the attempt and the number of the step that published it."""

MTIME_KEY: Final = "gobblin-mtime-ns"

UNDO: Final = "undo"

PART_BYTES: Final = 16 * 1024 * 1024
_PARTS_MAX: Final = 10_000

BACK_OFFS_S: Final = (0.1, 0.5, 2.0)
"""Before what is written down is sent again."""

_DISCARDED_TOGETHER: Final = 100
"""Objects of an attempt that are discarded before the lease is looked at again."""

_ABORTED_UNASKED_MAX: Final = 8
"""So many uploads are aborted sooner than the log is asked which of them are used up."""

_UPLOADS: Final = "uploads-"

BegunUpload = tuple[str, UploadId]
"""The path of the object that it becomes, and its id."""


def slot_of(staging: str, number: str) -> str:
    return f"{staging}/{SLOTS}/{number}"


def plan_parts(size_bytes: int, part_bytes_min: int) -> list[int]:
    """The sizes of an upload's parts. The same sizes give the same parts, and so the same ETag for the same bytes."""
    part_bytes = max(PART_BYTES, part_bytes_min, -(-size_bytes // _PARTS_MAX))
    whole, rest = divmod(size_bytes, part_bytes)
    return [part_bytes] * whole + ([rest] if rest or not whole else [])


def write_uploads(files: ObjectFiles, staging: str, name: str, uploads: Sequence[BegunUpload]) -> None:
    """Write down uploads that were begun. ``name`` is new. RetryableError if it is not."""
    content = json.dumps([[path, upload] for path, upload in uploads]).encode()
    _write(files, f"{staging}/{_UPLOADS}{name}.json", content)


@contextmanager
def aborted_on_error(files: ObjectFiles, begun: Collection[BegunUpload]) -> Iterator[None]:
    """Uploads that a block begins and writes down. If it fails, nobody would find them: they are aborted.

    That ends at the first that the store fails, because an error is being raised already.
    """
    try:
        yield
    except GobblinError:
        with suppress(GobblinError):
            for path, upload in begun:
                files.abort_upload(path, upload)
        raise


def write_undo(files: ObjectFiles, staging: str, number: str, fence: int, begun: BegunUpload) -> str:
    """Write down the upload of an abandonment, under its owner's fence. Returns where."""
    path = f"{staging}/{UNDO}/{number}/{fence:020d}-{uuid.uuid4().hex}"
    _write(files, path, json.dumps([begun]).encode())
    return path


def _write(files: ObjectFiles, path: str, content: bytes) -> None:
    """Write a new name, again if no answer came. What is there then is ours if it is the same: no two uploads are."""
    for wait_s in (0.0, *BACK_OFFS_S):
        time.sleep(wait_s)
        try:
            if files.put_if_absent(path, content) is WriteOutcome.WRITTEN:
                return
        except OutcomeUnknownError:
            continue
        found = files.find_object(path)
        if found is None or _read_whole(files, found) != content:
            raise RetryableError(f"{path} is there already, and only this attempt writes it", path=path)
        return
    raise RetryableError(f"{path} could not be written: the store does not answer", path=path)


def list_undone(files: ObjectFiles, staging: str, number: str, fence: int) -> Iterator[BegunUpload]:
    """The uploads by which owners up to ``fence`` tried to take the step back."""
    place = f"{staging}/{UNDO}/{number}"
    for entry in list(files.list_objects(place)):
        if int(entry.path[len(place) + 1 :].partition("-")[0]) <= fence:
            yield from _read(files, entry)


def discard_attempt(
    files: ObjectFiles,
    staging: str,
    calls_at_once: int = 1,
    require: Callable[[], None] = lambda: None,
    find_used_up: Callable[[], Collection[UploadId]] = tuple,
) -> bool:
    """Abort all uploads of an attempt whose sequence is over, and remove what it kept. True if there was anything.

    Each list of uploads is removed once they are aborted, so that a discarding that is interrupted goes on from there.
    ``require`` is called again and again, and raises FencedError when another owner does the work. ``find_used_up``:
    uploads that became objects, and need no request. It is asked once, and only where there are several.
    """
    found = list(files.list_objects(staging))
    # Copies that were put aside by parts. What the keys may not list, the store's own rule for uploads removes.
    with suppress(RejectedError):
        for pending in files.list_uploads(staging):
            files.abort_upload(pending.path, pending.upload)
    used_up: Collection[UploadId] | None = None
    with ThreadPoolExecutor(calls_at_once, thread_name_prefix="discard") as pool:
        # One call at a time needs no thread.
        run: Callable[..., Iterable[Any]] = map if calls_at_once == 1 else pool.map
        for are_lists in (True, False):
            some = [each for each in found if _is_list(each, staging) is are_lists]
            for start in range(0, len(some), _DISCARDED_TOGETHER):
                require()
                chunk = some[start : start + _DISCARDED_TOGETHER]
                begun = [each for listed in run(partial(_read, files), chunk if are_lists else ()) for each in listed]
                if used_up is None and len(begun) > _ABORTED_UNASKED_MAX:
                    used_up = frozenset(find_used_up())
                left = [each for each in begun if each[1] not in (used_up or ())]
                deque(run(lambda each: files.abort_upload(*each), left), maxlen=0)
                deque(run(lambda each: files.remove_object(each.path, each.etag), chunk), maxlen=0)
    return bool(found)


def _is_list(entry: ObjectEntry, staging: str) -> bool:
    return entry.path[len(staging) + 1 :].startswith((_UPLOADS, f"{UNDO}/"))


def _read_whole(files: ObjectFiles, entry: ObjectEntry) -> bytes:
    return files.read_range(entry.path, entry.etag, 0, entry.size_bytes) if entry.size_bytes else b""


def abort_uploads(files: ObjectFiles, staging: str) -> None:
    """Abort all uploads of an attempt, and keep what it wrote down."""
    for entry in list(files.list_objects(staging)):
        for path, upload in _read(files, entry) if _is_list(entry, staging) else ():
            files.abort_upload(path, upload)


def _read(files: ObjectFiles, entry: ObjectEntry) -> list[BegunUpload]:
    if not entry.size_bytes:
        return []
    try:
        found = json.loads(_read_whole(files, entry))
        return [(str(path), UploadId(str(upload))) for path, upload in found]
    except (ValueError, TypeError) as error:
        raise CorruptionError(f"{entry.path} can't be read as a list of uploads", path=entry.path) from error
