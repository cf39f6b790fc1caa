"""Lets a sink go on with the place that is there now, where the one of before, or its marks, are gone: ``sink adopt``.

The rows there stay, and later ones follow them, with marks that agree with the log. Rows that went with the old place
are not loaded again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gobblin_assets.commit.lanes import LaneState
from gobblin_assets.commit.sequence import SealedSequence, SequenceRecord
from gobblin_assets.destinations.lane_marks import LaneMark
from gobblin_assets.destinations.loaded_destination import LoadedDestination
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.stores import Stores

_OPEN_MAX: Final = 10_000


def adopt_place(
    stores: Stores,
    destination: LoadedDestination,
    urn: DatasetUrn,
    dataset_id: DatasetId,
    *,
    there: Collection[str] = (),
    missing: Collection[str] = (),
) -> Sequence[int]:
    """Adopt what is at the dataset's destination; returns the lanes that had no mark. No worker may hold one.

    ``there``, ``missing``: publications that are not complete, by whether their rows are in the place. RejectedError if
    one in a lane without a mark is in neither.
    """
    lanes = {lane.number: lane for lane in stores.lanes.load(dataset_id)[dataset_id].lanes}
    listed = stores.commits.list_open(destination.job, limit=_OPEN_MAX)
    opened = {each.lane_number: each for each in listed if each.urn == urn}
    used = {number for number, lane in lanes.items() if lane.version > 0} | opened.keys()
    unmarked = destination.find_unmarked(urn, sorted(used))
    undecided = {number: opened[number] for number in unmarked & opened.keys()}
    unsaid = [each for each in undecided.values() if str(each.sequence_id) not in {*there, *missing}]
    if unsaid:
        raise _refuse_open(urn, unsaid)
    loaded = {
        number: stores.commits.load_sealed(each.sequence_id)[0]
        for number, each in undecided.items()
        if str(each.sequence_id) in there
    }
    marks = _marks_of(lanes, loaded)
    if marks:
        destination.adopt(urn, marks, sum(map(_count_rows, loaded.values())))
    return sorted(unmarked)


def _marks_of(lanes: Mapping[int, LaneState], loaded: Mapping[int, SealedSequence]) -> Mapping[int, LaneMark]:
    """The mark that each lane would have. ``loaded``: open publications whose rows are there."""
    return {
        number: LaneMark(loaded[number].version, (str(loaded[number].order.sequence_id),))
        if number in loaded
        else LaneMark(lane.version)
        for number, lane in lanes.items()
        if lane.version > 0 or number in loaded
    }


def _count_rows(sealed: SealedSequence) -> int:
    """The rows that its steps load."""
    loads = [each for each in sealed.segments() if each.role is Role.DATA and not each.file_count]
    return sum(each.row_count for each in loads)


def _refuse_open(urn: DatasetUrn, sequences: Sequence[SequenceRecord]) -> RejectedError:
    named = ", ".join(str(each.sequence_id) for each in sequences)
    return RejectedError(
        f"{urn} has publications that are not complete ({named}), and no mark says whether their rows are there",
        field="--there",
        hint="Look for the rows of each at the destination, then name it by --there or by --missing.",
    )
