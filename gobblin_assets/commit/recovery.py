"""Recovery: ends the sequences that an earlier owner of a dataset left unfinished. Runs, sensors and people call this.

The caller holds the dataset's lease. The decision depends on the sequence's state alone; the driver verifies each
step to find out whether it has happened.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, assert_never

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.sequence import Publication, SequenceRecord
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.defects import find_family
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import LaneId, SequenceId
from gobblin_assets.state.leases import Lease

LEFT_UNSEALED: Final = "left unsealed by its run"


class RecoveryAction(StrEnum):
    ABORT = "abort"
    ROLL_FORWARD = "roll_forward"
    WAIT_FOR_A_PERSON = "wait_for_a_person"
    GO_ON_ABANDONING = "go_on_abandoning"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery ended. ``blocked`` is set when the dataset must be left alone until a person has looked."""

    published: tuple[Publication, ...] = ()
    aborted: int = 0
    blocked: SequenceRecord | None = None


def decide_recovery(state: SequenceState) -> RecoveryAction:
    """What to do with a sequence that an earlier owner left in ``state``."""
    match state:
        case SequenceState.BUILDING:
            # Not sealed: none of its files was ever visible, and its source will be read again.
            return RecoveryAction.ABORT
        case SequenceState.PREPARED:
            return RecoveryAction.ROLL_FORWARD
        case SequenceState.BLOCKED:
            return RecoveryAction.WAIT_FOR_A_PERSON
        case SequenceState.ABANDONING:
            return RecoveryAction.GO_ON_ABANDONING
        case SequenceState.DONE | SequenceState.ABORTED:
            return RecoveryAction.NOTHING
        case _:
            assert_never(state)


def recover_dataset(driver: Driver, abandonment: Abandonment, lease: Lease) -> Recovered:
    """End every unfinished sequence of lane 0 of a dataset that is leased as a whole, oldest first.

    Raises the families of ``Driver.publish``; sequences that were ended before stay ended, and the next call goes on.
    ConflictError if another lane has an open sequence: that lane's next holder completes it.
    """
    unfinished = driver.store.find_unfinished(lease.dataset_id)
    for each in unfinished:
        if each.lane_id != lease.lane_id and each.state.is_open:
            raise ConflictError(
                f"lane {each.lane_number} of {each.urn} has an open publication, sequence {each.sequence_id}",
                hint="Complete it first: `gobblin-assets commit recover`, or run its sink.",
                sequence_id=str(each.sequence_id),
            )
    return _recover(driver, abandonment, lease, unfinished)


def recover_lane(driver: Driver, abandonment: Abandonment, lease: Lease) -> Recovered:
    """The same for a single lane, whatever the others have open."""
    return _recover(driver, abandonment, lease, driver.store.find_unfinished(lease.dataset_id))


def recover_lanes(driver: Driver, abandonment: Abandonment, leases: Sequence[Lease]) -> list[Recovered | GobblinError]:
    """The same for several lanes: the result or error of ``recover_lane`` for each, in their order.

    What they have sealed is published together.
    """
    unfinished: dict[LaneId, list[SequenceRecord]] = defaultdict(list)
    for each in driver.store.find_unfinished(*dict.fromkeys(lease.dataset_id for lease in leases)):
        unfinished[each.lane_id].append(each)
    found: dict[LaneId, Recovered | GobblinError] = {}
    prepared: list[tuple[SequenceId, Lease]] = []
    for lease in leases:
        mine = unfinished[lease.lane_id]
        sealed = [each for each in mine if decide_recovery(each.state) is RecoveryAction.ROLL_FORWARD]
        if mine:
            reach(Failpoint.RECOVERY_STARTED)
        try:
            found[lease.lane_id] = _end_all(driver, abandonment, lease, [each for each in mine if each not in sealed])
        except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
            found[lease.lane_id] = find_family("its recovery", error)
            continue
        prepared += [(each.sequence_id, lease) for each in sealed]
    outcomes = driver.publish_all(prepared) if prepared else []
    for (_sequence_id, lease), outcome in zip(prepared, outcomes, strict=True):
        before = found[lease.lane_id]
        if isinstance(outcome, GobblinError):
            found[lease.lane_id] = outcome
        elif isinstance(before, Recovered):
            found[lease.lane_id] = replace(before, published=(*before.published, outcome))
    return [found[lease.lane_id] for lease in leases]


def _recover(driver: Driver, abandonment: Abandonment, lease: Lease, of_dataset: Sequence[SequenceRecord]) -> Recovered:
    unfinished = [each for each in of_dataset if each.lane_id == lease.lane_id]
    if not unfinished:
        return Recovered()
    reach(Failpoint.RECOVERY_STARTED)
    return _end_all(driver, abandonment, lease, unfinished)


def _end_all(driver: Driver, abandonment: Abandonment, lease: Lease, unfinished: Sequence[SequenceRecord]) -> Recovered:
    published: list[Publication] = []
    aborted = 0
    for sequence in unfinished:
        match decide_recovery(sequence.state):
            case RecoveryAction.ABORT:
                # Also a sequence of this same lease: recovery comes before anything is begun, so the sequence is one
                # that an earlier round of a stream could not abandon while the log was away.
                driver.store.abort(sequence.sequence_id, fence=lease.fence, error=LEFT_UNSEALED)
                aborted += 1
            case RecoveryAction.ROLL_FORWARD:
                published.append(driver.publish(sequence.sequence_id, lease))
            case RecoveryAction.WAIT_FOR_A_PERSON:
                return Recovered(tuple(published), aborted, sequence)
            case RecoveryAction.GO_ON_ABANDONING:
                abandonment.carry_out(sequence, lease)
                aborted += 1
            case RecoveryAction.NOTHING:
                pass
    return Recovered(tuple(published), aborted)
