"""Claims a tree for a job, so that of two jobs whose trees overlap at most one publishes.

The promise. A run of the first job to claim a tree, one around it or one inside it goes on; runs of the other job are
refused, and leave nothing that would refuse the first one.

How. A run that finds no claim of its job looks for those of other jobs: in all directories above the tree, and in all
below it. If there is none, it writes an intent into the work directory, looks again, writes the claim, and removes the
intent. Who looks second sees the intent, or the claim, of who wrote first; so of two runs of two jobs at most one
writes its claim. It may be none: then one of them can run again.

What is removed. An intent belongs to one run, so no other run relies on it. A claim stays: other runs of the job may
have found it. Whoever has a claim is not stopped by intents, since he looked after he had written his own. So the
intent of a killed run stops only others' first runs; a later run of its job removes it when it claims the tree, or when
it finds the claim of another job, which shows that no run with an intent can succeed. Beside a claim it has no effect.

What is not promised. If a run is killed with its intent while a first run of another job overlaps it, both jobs may be
refused until a person removes the intent that the error names. A tree that somebody moves into another, or whose claim
somebody removes, is found where a listing of the other one comes to it.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from gobblin_assets.destinations.claims import (
    WORK_NAME,
    find_claim,
    find_trees,
    list_above,
    list_intents,
    refuse_around,
    refuse_intent,
    refuse_rows,
    refuse_tree,
    remove_intents,
    write_claim,
    write_intent,
)
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.fs.file_system import FileSystem, SearchedDirectories
from gobblin_assets.model.urn import JobName


@dataclass(frozen=True, slots=True)
class TreeClaim:
    """``is_whole``: a dataset is the whole tree. This may be a copy of a destination of rows: its listing finds out."""

    fs: FileSystem
    root: str
    job: JobName
    is_whole: bool
    new_id: Callable[[], uuid.UUID]

    def look(self) -> bool:
        """Whether the job has claimed the tree. RejectedError if it, or one around it, is another job's, or if nobody
        has claimed it and another tree lies inside.
        """
        holder = find_claim(self.fs, self.root)
        try:
            self._refuse_others(holder)
        except RejectedError as refused:
            if holder is None and _names_a_claim(refused):
                remove_intents(self.fs, self.root, self.job)
            raise
        return holder is not None

    def take(self) -> None:
        """Claim the tree, which the job has not, as ``look`` said. The work directory is there."""
        intent = write_intent(self.fs, self.root, self.job, self.new_id())
        reach(Failpoint.CLAIM_INTENDED)
        try:
            self._refuse_others(find_claim(self.fs, self.root))
            write_claim(self.fs, self.root, self.job)
            # Another job may have claimed this very root meanwhile.
            self._refuse_others(find_claim(self.fs, self.root))
        except GobblinError as error:
            remove_intents(self.fs, self.root, self.job, only=None if _names_a_claim(error) else intent)
            raise
        remove_intents(self.fs, self.root, self.job)

    def _refuse_others(self, holder: str | None) -> None:
        """``holder``: the job that claims the tree; None: nobody does, so that intents and trees inside count."""
        if holder not in {None, self.job}:
            raise refuse_tree(self.root, self.root, str(holder))
        if not self.is_whole:
            refuse_rows(self.fs, self.root, self.root)
        for place in list_above(self.fs, self.root):
            # Whoever removed his intent has written his claim before.
            intents = list_intents(self.fs, place) if holder is None else ()
            found = find_claim(self.fs, place)
            if found is not None:
                raise refuse_tree(self.root, place, found)
            if intents:
                raise refuse_intent(self.root, intents[0].path)
            refuse_rows(self.fs, self.root, place)
        if holder is None:
            self._refuse_below()

    def _refuse_below(self) -> None:
        if not isinstance(self.fs, SearchedDirectories):
            raise RejectedError(
                f"directories of {self.fs.scheme} can't be searched for other jobs' trees",
                field="destination",
                hint="Copy to a file system that can.",
            )
        for place in find_trees(self.fs.find_directories(self.root, WORK_NAME), self.root):
            raise refuse_around(place, find_claim(self.fs, place))


def _names_a_claim(error: GobblinError) -> bool:
    return error.fields.get("claimed_by") is not None
