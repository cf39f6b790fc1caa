"""Reconciliation: a person reconciles the storage with a log that is older than the storage.

There are two ways. *Adopt* executes the lost sequences again, through the ordinary transactions, under a new fence and
with their own ids. *Set aside* moves files and markers that the log does not know out of readers' sight and deletes
nothing; the next run reads those rows again from the restored watermark.

Order. The fence is raised above every fence that storage shows, then the dataset is taken: a process with an old fence
can write nothing more. Then everything is examined again under the lease, and carried out. If the command is killed,
the dataset stays stopped until the log explains its last marker, and the same command goes on from there. A lost
sequence that was begun again is begun once more. A sequence that was sealed again is an ordinary open sequence. Of the
names that are set aside, the markers go last. Steps that publish no files are undone before anything is moved.

Adopting. The files are there already, so every step is found done, and ledger, watermarks and lanes' versions end as
they were. A vnode is first moved to the lane that published it, as it was then; vnodes that moved stay where they are
if the command is killed.

Setting aside (``withdrawal``). The log may have a publication at given names open. If the lost history sealed another
publication after it, the lost history ended it. How it ended is not known, and the files at its names are newer now. So
it is given up without being undone: its attempts are moved, with all that lies in their slots, and the next run
compares source and destination. A process of the lost history may wake up: wherever it had captured the attempts, it
finds no place any more. Attempts are moved first, from the lowest fence to the highest, because such a process may
still be moving one up. Files are moved next. Then the open publication is ended, without its markers, since the next
publication has its version.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Final

from gobblin_assets.commit.attempts import SET_ASIDE_NAME, captured_directory, staging_root
from gobblin_assets.commit.examination import Examination, LogFinding, Remembered, is_replaced
from gobblin_assets.commit.lanes import LaneStore
from gobblin_assets.commit.markers import list_markers
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import (
    NewAttempt,
    NewSequence,
    Publication,
    SealedSequence,
    SequenceRecord,
    StagedAttempt,
)
from gobblin_assets.commit.step_calls import directories_to_sync, undo_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, StepVerdict
from gobblin_assets.commit.withdrawal import abort_attempt_uploads, withdraw_name
from gobblin_assets.errors import ConflictError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.path_names import encode_segment, list_upwards
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.state.leases import Lease, LeaseKeeper

ENDED: Final = "ended in the history that was lost"


@dataclass(frozen=True, slots=True)
class SettingAside:
    """The setting aside of one dataset, under ``fence``. ``require`` raises FencedError when its lease is too old.

    ``job_directory``: what is below it keeps its path below ``aside``, which is new with each fence. ``moved``: the
    names that were moved; ``ended``: what the log had open.
    """

    operations: LogOperations
    examination: Examination
    finding: LogFinding
    dataset_id: DatasetId
    fence: int
    require: Callable[[], None]
    job_directory: str
    aside: str
    moved: list[str] = field(default_factory=list)
    ended: list[SequenceId] = field(default_factory=list)

    def carry_out(self) -> None:
        self._undo_what_has_no_files()
        open_ = self._begin_to_end()
        forgotten = self.finding.forgotten
        # First of all, a paused process of the lost history must find nothing to publish when it wakes up.
        for sealed in (each.sealed for each in forgotten):
            if sealed is not None:
                stagings = [attempt.staging_path for attempt in sealed.attempts]
                self._move_attempts(stagings, sealed.order.fence if sealed.is_at_given_names else None)
        for sequence in open_:
            attempts = self.operations.store.list_attempts(sequence.sequence_id)
            for attempt in attempts:
                self.operations.interrupt(attempt)
            self._move_attempts([attempt.staging_path for attempt in attempts], sequence.fence)
        # Looked for again: until now, such a process may have published more.
        published = self.examination.list_directories(self.finding.urn)
        directories = {path for each in forgotten for path in published.get(each.sequence_id, ())}
        self._move(sorted(directories), Failpoint.LOST_DIRECTORY_MOVED)
        reach(Failpoint.LOST_FILES_MOVED)
        for sequence in open_:
            self._end(sequence)
        self._move([marker.path for each in forgotten for marker in each.markers], Failpoint.LOST_MARKER_MOVED)

    def _begin_to_end(self) -> list[SequenceRecord]:
        if not self.finding.forgotten:
            return []
        store = self.operations.store
        unfinished = store.find_unfinished(self.dataset_id)
        found = [each for each in unfinished if each.state.is_open and each.is_at_given_names]
        for sequence in found:
            store.begin_abandon(sequence.sequence_id, fence=self.fence, reason=ENDED)
        return found

    def _end(self, sequence: SequenceRecord) -> None:
        examination = self.examination
        markers = list_markers(examination.fs, examination.root, examination.job, self.finding.urn)
        mine = [marker.path for marker in markers if marker.sequence_id == sequence.sequence_id]
        self._move(mine, Failpoint.LOST_MARKER_MOVED)
        self.operations.store.end_abandon(sequence.sequence_id, fence=self.fence)
        self.ended.append(sequence.sequence_id)
        reach(Failpoint.OPEN_SEQUENCE_ENDED)

    def _move_attempts(self, stagings: Sequence[str], sealed_by: int | None) -> None:
        """Their directories; with ``sealed_by``, under the names of all captures since."""
        for staging in stagings:
            self.require()
            abort_attempt_uploads(self.examination.fs, staging)
        fences = () if sealed_by is None else range(sealed_by, self.fence)
        names = (name for staging in stagings for name in self._names_of(staging, fences))
        self._move(names, Failpoint.LOST_DIRECTORY_MOVED)

    def _names_of(self, staging: str, fences: Iterable[int]) -> Iterator[str]:
        """Each is looked at when those before it were moved."""
        yield staging
        for fence in fences:
            name = captured_directory(staging, fence)
            if self.examination.fs.is_directory(name):
                yield name

    def _undo_what_has_no_files(self) -> None:
        """Undo steps with effects outside the dataset's files, newest first, since these effects can't be moved."""
        fs, root = self.examination.fs, self.examination.root
        with StepPorts(self.operations.open_file_system) as ports:
            self._refuse_loaded(ports)
            for each in reversed(self.finding.forgotten):
                if each.sealed is not None and each.sealed.is_at_given_names:
                    # What it removed or replaced stays in its slots; the next run compares both sides again.
                    continue
                captured = CapturedStaging(each.sequence_id, self.fence, {})
                for segment in () if each.sealed is None else each.sealed.segments():
                    steps = decode_segment(segment.payload, segment.digest)
                    elsewhere = [step for step in steps if next(iter(step.published()), None) is None]
                    if elsewhere:
                        undo_steps(elsewhere, StepWorld(fs, ports), captured)
                        fs.sync_directories(directories_to_sync(elsewhere, root, {}, captured))

    def _refuse_loaded(self, ports: StepPorts) -> None:
        """Before anything is undone: rows that were loaded stay, and would be read and loaded again."""
        for each in self.finding.forgotten:
            for segment in () if each.sealed is None else each.sealed.segments():
                if segment.file_count or not segment.row_count:
                    continue
                steps = decode_segment(segment.payload, segment.digest)
                verdicts = verify_steps(steps, StepWorld(self.examination.fs, ports))
                if StepVerdict.DONE in verdicts:
                    raise ConflictError(
                        f"the rows of sequence {each.sequence_id} are loaded, and are not taken back",
                        hint="Take it back into the log: `gobblin-assets reconcile --adopt`.",
                        sequence_id=str(each.sequence_id),
                    )

    def _move(self, paths: Iterable[str], point: Failpoint) -> None:
        fs, root = self.examination.fs, self.examination.root
        touched: set[str] = set()
        for path in paths:
            self.require()
            target = self.aside + path.removeprefix(self.job_directory)
            if withdraw_name(fs, path, target):
                self.moved.append(path)
                reach(point)
            touched |= {str(PurePosixPath(each).parent) for each in (path, target)}
        fs.sync_directories(list_upwards(touched, root))


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


_CAPTURED: Final = re.compile(r"\.captured-(\d+)(?:/|$)")


class Way(StrEnum):
    """The way to deal with the sequences that the log forgot."""

    ADOPT = "adopt"
    SET_ASIDE = "set-aside"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The result for one dataset: ``adopted`` publications, or ``moved`` names, now below ``aside``.

    ``ended``: publications that the log had open, and that the lost history had ended.
    """

    urn: DatasetUrn
    dataset_id: DatasetId
    fence: int
    adopted: tuple[Publication, ...] = ()
    moved: tuple[str, ...] = ()
    aside: str | None = None
    ended: tuple[SequenceId, ...] = ()


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The reconciliation of a job's datasets.

    ``root_uri`` is its destination; adopted sequences belong to the run of ``operations.holder``.
    """

    operations: LogOperations
    examination: Examination
    lanes: LaneStore
    root_uri: str

    def carry_out(self, urn: DatasetUrn, way: Way) -> Reconciled:
        """Reconcile one dataset. If the process is killed, the dataset stays stopped, and the next call goes on.

        Raises:
            ConflictError: another process holds the dataset, or its lost history can't be adopted.
            RetryableError: another process publishes to the same place meanwhile, under a newer fence.

        """
        examination = self.examination
        finding = examination.look_at(urn, thoroughly=True)
        dataset_id = examination.datasets.register(examination.job, [urn])[urn]
        if way is Way.ADOPT:
            _require_adoptable(finding)
            if finding.lane_count > len(self.operations.store.list_lane_ids(dataset_id)):
                # The sink was scaled after the backup.
                self.lanes.spread(dataset_id, finding.lane_count)
        floor = max(finding.storage_fence, self._captured_fence())
        for lane_id in self.operations.store.list_lane_ids(dataset_id):
            self.operations.leases.raise_fence(lane_id, floor=floor)
        reach(Failpoint.FENCE_RAISED)
        with self._hold(dataset_id, urn, by_lanes=way is Way.ADOPT and finding.lane_count > 1) as (keeper, leases):
            # Before the leases were ours, the storage may have changed.
            finding = examination.look_at(urn, thoroughly=True)
            fence = min(lease.fence for lease in leases.values())
            if max(floor, finding.storage_fence) >= fence or (way is Way.ADOPT and finding.lane_count > len(leases)):
                raise RetryableError(
                    f"{urn} is published under fence {max(floor, finding.storage_fence)} by somebody else meanwhile",
                    hint="Stop the other process that publishes to this destination, then reconcile again.",
                    urn=urn,
                )
            if way is Way.ADOPT:
                _require_adoptable(finding)
                adoption = Adoption(
                    self.operations, self.lanes, finding, dataset_id, self.root_uri, keeper, leases
                )  # fmt: skip
                return Reconciled(urn, dataset_id, fence, adopted=adoption.carry_out())
            done = self._set_aside(finding, dataset_id, keeper, leases[0])
            moved, ended = tuple(done.moved), tuple(done.ended)
            return Reconciled(urn, dataset_id, fence, moved=moved, aside=done.aside, ended=ended)

    @contextmanager
    def _hold(
        self, dataset_id: DatasetId, urn: DatasetUrn, *, by_lanes: bool
    ) -> Iterator[tuple[LeaseKeeper, Mapping[int, Lease]]]:
        """The leases, by lanes. What a lane published is adopted under its own lease, and nobody holds another lane."""
        if not by_lanes:
            with self.operations.hold(dataset_id, urn) as (keeper, lease):
                yield keeper, {0: lease}
            return
        with self.operations.hold_lanes(dataset_id, urn) as (keeper, taken):
            numbers = {lane.lane_id: lane.number for lane in self.lanes.load(dataset_id)[dataset_id].lanes}
            yield keeper, {numbers[lease.lane_id]: lease for lease in taken}

    def _captured_fence(self) -> int:
        """The newest fence in the names of the job's captured staging, whose dataset the log may have forgotten."""
        found = self.examination.fs.list_files(staging_root(self._job_directory()))
        return max((int(fence) for file in found for fence in _CAPTURED.findall(file.path)), default=0)

    def _job_directory(self) -> str:
        return "/".join((self.examination.root, *encode_segment(self.examination.job)))

    def _set_aside(self, finding: LogFinding, dataset_id: DatasetId, keeper: LeaseKeeper, lease: Lease) -> SettingAside:
        job_directory = self._job_directory()
        setting = SettingAside(
            operations=self.operations,
            examination=self.examination,
            finding=finding,
            dataset_id=dataset_id,
            fence=lease.fence,
            require=lambda: keeper.require(lease),
            job_directory=job_directory,
            aside="/".join((job_directory, SET_ASIDE_NAME, *encode_segment(finding.urn), f"{lease.fence:020d}")),
        )
        setting.carry_out()
        return setting


def _require_adoptable(finding: LogFinding) -> None:
    if finding.refusal is not None:
        raise ConflictError(
            f"the lost history of {finding.urn} can't be adopted: {finding.refusal}",
            hint="Reconcile with --set-aside: nothing is deleted, and the rows are read again.",
            urn=finding.urn,
        )
