"""A prefix of an object store as a destination of copies: objects are published at the names that the source gives.

The prefix ``<root>/.gobblin`` has the copies of replaced objects as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gobblin_assets.commit.object_steps import PlaceObject, RemoveObject, ReplaceObject
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.claims import find_claim, refuse_rows, refuse_tree
from gobblin_assets.destinations.given_names import GivenNames
from gobblin_assets.destinations.object_outputs import NamedObject, ObjectAtName
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.object_work import for_given_names
from gobblin_assets.fs.objects import HoldsObjects, expected_etag
from gobblin_assets.model.path_names import list_upwards
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output


@dataclass(slots=True)
class NamedObjects(GivenNames):
    """``Destination`` of the objects below ``root`` of ``fs``."""

    def _open_work(self) -> FileSystem:
        return for_given_names(self.fs)

    @property
    def reuse_keep_s(self) -> float | None:
        """The uploads of a failed attempt are aborted: a store asks money for them."""
        return None

    def refuse_strangers(self, urn: DatasetUrn) -> None:
        """No other job may publish below a prefix on the way from the root to the dataset's place."""
        for place in list_upwards([self.place_of(urn)], self.root)[:-1]:
            holder = find_claim(self.fs, place)
            if holder is not None:
                raise refuse_tree(self.place_of(urn), place, holder)
            if place != self.place_of(urn):
                refuse_rows(self.fs, self.place_of(urn), place)

    def make_durable(self, staged: Mapping[str, Sequence[Output]]) -> None:
        """A part is durable once the store has answered."""

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Iterator[CommitStep]:
        root, work = self.place_of(target.urn), self._work.fs
        foresees_etags = isinstance(work, HoldsObjects) and work.foresees_etags
        return (
            _step_of(each, output.path, root, foresees_etags=foresees_etags)
            for output in outputs
            for each in _details_of(output)
        )


def _details_of(output: Output) -> Sequence[NamedObject]:
    found: Sequence[NamedObject] = output.details
    return found


def _step_of(output: NamedObject, staging: str, root: str, *, foresees_etags: bool) -> CommitStep:
    staged = output.staged
    common = (staging, f"{root}/{output.path}", str(staged.number), staged.upload, staged.parts)
    if not isinstance(output, ObjectAtName):
        return RemoveObject(*common, old=output.identity)
    identity = replace(output.identity, tag=expected_etag(staged.parts) if foresees_etags else None)
    if output.replaces is None:
        return PlaceObject(*common, identity=identity, is_metadata=output.is_metadata)
    return ReplaceObject(*common, identity=identity, old=output.replaces, is_metadata=output.is_metadata)
