"""Leftovers of failed attempts, captured for an attempt that can use them.

A later attempt takes what is finished out of the directories of earlier ones, instead of writing it again. First it
captures them, as cleanup and abandonment do: its fence is written to the log, and then each directory is renamed to a
name with that fence. So a process that was overtaken writes, and takes, by names that lead nowhere. A file that such a
process still has open can't be told by its name: the worker takes only what its writer had closed, and had said so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.attempt_capture import capture_chain
from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.sequence import AttemptRecord, LeftoverRequest
from gobblin_assets.commit.step_world import OpenFileSystem
from gobblin_assets.commit.store import CommitLogCleaner
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint, reach

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
