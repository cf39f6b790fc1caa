"""Adopting: the sequences of a lost history are sealed and executed again, under their own ids and in their own lanes.

Their files are there already, so every step is found done, and ledger, watermarks and lanes' versions end as they were.
A vnode is first moved to the lane that published it, as it was then. Whoever is killed leaves the next call to go on: a
sequence that was begun again is begun once more, one that was sealed again is an ordinary open sequence, and the vnodes
that moved stay where they are.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gobblin_assets.commit.examination import LogFinding, Remembered, is_replaced
from gobblin_assets.commit.lanes import LaneStore
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, Publication, SealedSequence, StagedAttempt
from gobblin_assets.commit.setting_aside import ENDED
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId
from gobblin_assets.state.leases import Lease, LeaseKeeper


@dataclass(frozen=True, slots=True)
class Adoption:
    """The adoption of a dataset's lost history.

    ``leases``: by the numbers of its lanes; a lease of lane 0 alone holds the dataset as a whole. Adopted sequences
    belong to the run of ``operations.holder``.
    """

    operations: LogOperations
    lanes: LaneStore
    finding: LogFinding
    dataset_id: DatasetId
    root_uri: str
    keeper: LeaseKeeper
    leases: Mapping[int, Lease]
    _owners: dict[str, int] = field(default_factory=dict)

    def carry_out(self) -> tuple[Publication, ...]:
        chain = self.finding.chain
        if not chain:
            return ()
        self._end_what_history_ended()
        found = self.lanes.load(self.dataset_id)[self.dataset_id]
        self._owners.update({vnode: lane.number for lane in found.lanes for vnode in lane.vnodes})
        published = []
        for number, each in enumerate(chain):
            self.keeper.require(self.leases[each.lane_number])
            published.append(self._adopt_one(each, chain[number + 1 :]))
            reach(Failpoint.LOST_SEQUENCE_ADOPTED)
        return tuple(published)

    def _end_what_history_ended(self) -> None:
        """End unfinished sequences of the log without a marker on storage: they were never published."""
        store, chain = self.operations.store, {each.sequence_id for each in self.finding.chain}
        for sequence in store.find_unfinished(self.dataset_id):
            if sequence.sequence_id in chain:
                continue
            lease = self.leases[sequence.lane_number]
            match sequence.state:
                case SequenceState.BUILDING:
                    store.abort(sequence.sequence_id, fence=lease.fence, error=ENDED)
                case SequenceState.ABANDONING:
                    self.operations.abandonment().carry_out(sequence, lease)
                case _:
                    reason = "given up in the history that was lost"
                    self.operations.abandonment().begin(sequence, lease, reason=reason)

    def _adopt_one(self, each: Remembered, later: Sequence[Remembered]) -> Publication:
        store, lease = self.operations.store, self.leases[each.lane_number]
        if each.is_forgotten and each.sealed is not None:
            if len(self.leases) > 1:
                self._bring_vnodes(each.lane_number, each.sealed)
            self._seal_again(each.sealed, lease, begun=each.known is not None)
        elif each.known is not None and each.known.state is SequenceState.BLOCKED:
            store.resume(each.sequence_id, fence=lease.fence)
        if is_replaced(each, later):
            # It was finished, or the sequence that replaced it could not have been sealed. Cleanup may have removed its
            # files since, so there is nothing to verify; the sequence that replaced it retires it again.
            store.finish(each.sequence_id, fence=lease.fence)
            return store.load_publications(each.sequence_id)[0]
        return self.operations.driver(self.keeper).publish(each.sequence_id, lease)

    def _bring_vnodes(self, number: int, sealed: SealedSequence) -> None:
        """Move the sequence's vnodes to its lane. One that the log does not know becomes the lane's by the seal."""
        by_owner: dict[int, list[str]] = defaultdict(list)
        for move in sealed.order.moves:
            owner = self._owners.setdefault(move.key, number)
            if owner != number:
                by_owner[owner].append(move.key)
        for owner, vnodes in by_owner.items():
            self.lanes.move(self.leases[owner], number, vnodes)
            self._owners.update(dict.fromkeys(vnodes, number))

    def _seal_again(self, sealed: SealedSequence, lease: Lease, *, begun: bool) -> None:
        store, order = self.operations.store, sealed.order
        if begun:
            store.continue_building(order.sequence_id, fence=lease.fence)
        else:
            store.begin(
                NewSequence(
                    sequence_id=order.sequence_id,
                    dataset_id=self.dataset_id,
                    run_id=self.operations.holder.run_id,
                    partition=order.partition,
                    mode=sealed.mode,
                    replaces=sealed.replaces,
                    fence=lease.fence,
                    root_uri=self.root_uri,
                    lane=lease.lane,
                )
            )
        reach(Failpoint.LOST_SEQUENCE_BEGUN)
        for attempt in sealed.attempts:
            store.register_attempt(
                NewAttempt(
                    attempt_id=attempt.attempt_id,
                    sequence_id=order.sequence_id,
                    dataset_id=self.dataset_id,
                    fence=lease.fence,
                    multi_work_unit=attempt.multi_work_unit,
                    try_number=attempt.try_number,
                    staging_path=attempt.staging_path,
                    lane=lease.lane,
                )
            )
            staged = StagedAttempt(
                attempt.attempt_id, order.sequence_id, lease.fence, attempt.segments, attempt.segment_ids
            )
            store.stage(staged)
        store.seal(replace(order, dataset_id=self.dataset_id, fence=lease.fence, lane=lease.lane))
        reach(Failpoint.LOST_SEQUENCE_SEALED)
