"""Faults of a step at a given name that can't go on, or can't be taken back, with what a person can do.

The hints are for both ways out: a publication that is resumed, and one that is abandoned.
"""

from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.steps import StepFault, StepVerdict
from gobblin_assets.destinations.fixed_names.named_decisions import Found

PUT_BACK: Final = "Put back what was there before. To abandon the publication, any file there will do."

_REPLACED: Final = "the next run replaces that file by the source's, and keeps it in the trash for trash_keep_s"
_COMPARED: Final = "the next run compares both sides again"
_ONLY_MOVED_BACK: Final = "resuming helps only if the planned file is moved back, which a copy of it is not"

STRANGER_AT_FREE_NAME: Final = f"Move that file elsewhere and resume. Or abandon: {_REPLACED}."
STRANGER_ON_THE_WAY: Final = f"Move that away and resume. Or abandon: {_COMPARED}."
STRANGER_IN_PLACE_OF_OLD: Final = f"Abandon: {_REPLACED}; {_ONLY_MOVED_BACK}."
OLD_IS_GONE: Final = f"Abandon: {_COMPARED}; {_ONLY_MOVED_BACK}."

_COPIED_AGAIN: Final = "the next run copies again"
_ABANDON: Final = f"Abandon the publication: {_COPIED_AGAIN}."
_KEPT: Final = {Found.OLD: "The version before", Found.OTHER: "Another file that was found there"}


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of a step's places, and what was found at each."""

    target: str
    source: str
    slot: str
    returned: str
    at_target: Found
    at_source: Found
    at_slot: Found
    at_returned: Found


def describe_fault(places: Places, verdict: StepVerdict, hint_of_stranger: str, *, has_old: bool) -> StepFault:
    """``has_old``: a version was planned to stand at the name before."""
    if verdict is StepVerdict.LOST:
        return StepFault(places.target, "is neither staged nor published", _hint_of_kept(places) or _ABANDON)
    if places.at_target is Found.NOTHING:
        return StepFault(places.target, "is missing: something else removed it", _hint_of_kept(places) or PUT_BACK)
    if places.at_target is Found.NEW:
        # A directory with other files than were staged: to move away a part of it leads nowhere.
        whole = f"Move the whole directory {places.target} elsewhere, and abandon the publication: {_COPIED_AGAIN}."
        return StepFault(places.target, "is not as it was staged any more", _hint_of_kept(places) or whole)
    planned = "the file that was planned there" if has_old else "what was staged"
    found = f"is not {planned}: something else put it there"
    return StepFault(places.target, found, _hint_of_kept(places) or hint_of_stranger)


def describe_gone(attempt: str, target: str, verdict: StepVerdict, at_target: Found) -> StepFault:
    """The attempt's directory is not there, under any name."""
    if verdict is StepVerdict.LOST:
        hint = "Move it back, or abandon the publication: the next run copies again."
        return StepFault(attempt, "is gone, and with it what was staged", hint)
    if at_target is Found.NEW:
        found = f"was published, and can't be taken back: {attempt} is gone"
        return StepFault(target, found, is_repaired=True)
    return StepFault(target, f"is missing, and {attempt} is gone", is_repaired=True)


def _hint_of_kept(places: Places) -> str:
    """Where what was moved from the name lies now."""
    for place, found in ((places.slot, places.at_slot), (places.returned, places.at_returned)):
        if found in _KEPT:
            return f"Move away by hand what stands there. {_KEPT[found]} is kept in {place}."
    if places.at_source in _KEPT:
        return f"{_KEPT[places.at_source]} is kept in {places.source}: move it to the name by hand."
    return ""
