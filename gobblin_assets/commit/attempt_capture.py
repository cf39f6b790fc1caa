"""Captures of an attempt's directory: an owner renames the directory to a name that carries the owner's fence.

Processes that know an earlier name then find nothing. Each fence is in the log before its capture, so that the
directory is found by the fences of its attempt, also after its owner has died.

There are two ways. If names are always new, Spark's tasks may make a directory again after it was captured. So each
capture keeps its own name, and there may be several (``capture``). At given names nobody makes a directory again, and
files of later versions must not move with a stale one. So there is one directory, which only moves up: from the name of
one fence to that of the next (``capture_chain``). Attempts in object stores are not captured at all.

A log that was restored from a backup lacks the fences of the history that was lost. So whoever goes on with a sealed
sequence, and finds its directory under none of the fences in the log, looks under all fences since its seal.

Leftovers are what failed attempts had finished: a later attempt takes them out of the directories of earlier ones,
instead of writing them again. It captures these directories first, as cleanup and abandonment do. So a process that was
overtaken writes, and takes, by names that lead nowhere. A file that such a process still has open can't be told by its
name: the worker takes only what its writer had closed, and had said so.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.sequence import AttemptRecord, LeftoverRequest
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import CommitLogCleaner
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.fs.objects import HoldsObjects


def capture(fs: FileSystem, attempt: AttemptRecord, fence: int) -> bool:
    """Move the attempt's directory, if it is there, to the name of ``fence``. True if it was there.

    Earlier captures of the same attempt keep their names: those were marked in the log before.
    """
    target = captured_directory(attempt.staging_path, fence)
    outcome = fs.rename_no_replace(attempt.staging_path, target)
    if outcome is RenameOutcome.TARGET_EXISTS:
        # Captured under this fence before; since then a writer that did not know has made the directory again.
        return fs.is_directory(attempt.staging_path)
    return outcome is RenameOutcome.RENAMED


def capture_attempt(fs: FileSystem, attempt: AttemptRecord, fence: int, sealed_by: int | None = None) -> bool:
    """Take the attempt away from earlier owners, in the way of its destination. True if anything of it is there.

    In an object store nothing is renamed: what an earlier owner could still do is fenced by uploads that are used up
    (``files.upload_step``). ``sealed_by``: as in ``capture_chain``.
    """
    if isinstance(fs, HoldsObjects):
        return fs.is_directory(attempt.staging_path)
    if attempt.is_at_given_names:
        return capture_chain(fs, attempt.staging_path, attempt.cleanup_fences, fence, sealed_by)
    return capture(fs, attempt, fence)


def capture_chain(
    fs: FileSystem, staging: str, fences: Iterable[int], fence: int, sealed_by: int | None = None
) -> bool:
    """Move the attempt's directory up to the name of ``fence``, from wherever an earlier owner left it.

    ``fences``: all fences that the log has for the attempt, in any order. ``sealed_by``: the fence of an open sequence,
    since which the log may have forgotten some. Returns whether the directory is there now. ConflictError if there are
    two: somebody copied one.
    """
    target = captured_directory(staging, fence)
    _move_up(fs, [staging, *_names_under(staging, fences, fence)], target)
    if fs.is_directory(target):
        return True
    if sealed_by is None:
        return False
    _move_up(fs, _names_under(staging, range(sealed_by, fence), fence), target)
    return fs.is_directory(target)


def _names_under(staging: str, fences: Iterable[int], fence: int) -> list[str]:
    """In ascending order, since an owner that is overtaken may still be moving the directory from a lower name to a
    higher one.
    """
    return [captured_directory(staging, each) for each in sorted(fences) if each < fence]


def _move_up(fs: FileSystem, sources: Iterable[str], target: str) -> None:
    for source in sources:
        if fs.rename_no_replace(source, target) is RenameOutcome.TARGET_EXISTS and fs.is_directory(source):
            raise ConflictError(
                f"{source} and {target} are both there, and belong to one attempt",
                hint="gobblin-assets makes no second one: move the copy away.",
                path=source,
            )


LEFTOVERS_MAX: Final = 8
"""Failed attempts that one attempt looks through. Each takes over what those before it left, so that few have much."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The leftovers of failed attempts at a partition.

    ``interrupt`` ends any work that still writes into an attempt's staging, as far as that is possible.
    """

    store: CommitLogCleaner
    open_file_system: OpenFileSystem
    interrupt: Callable[[AttemptRecord], None]
    say: Callable[[str], None]

    def capture(self, request: LeftoverRequest, root_uri: str) -> tuple[str, ...]:
        """Their directories, the newest first. A directory that can't be captured is left to cleanup.

        Errors of the log are raised: who was overtaken captures nothing.
        """
        fs, _root = self.open_file_system(root_uri)
        captured = []
        for attempt in self.store.mark_for_reuse(request):
            try:
                self.interrupt(attempt)
                if capture_chain(fs, attempt.staging_path, attempt.cleanup_fences, request.fence):
                    captured.append(captured_directory(attempt.staging_path, request.fence))
            except GobblinError as error:
                self.say(f"what an earlier attempt wrote is not used: {error}")
        if captured:
            fs.sync_directories({str(PurePosixPath(path).parent) for path in captured})
        reach(Failpoint.REUSE_CAPTURED)
        return tuple(captured)
