"""Finds sequences that storage remembers and the log forgot, and decides whether the log can adopt them.

Changes nothing. A sequence is forgotten if storage names it, by a marker or by a published directory, and the log never
sealed it. The log can adopt the lost history if that history is whole. Then the markers of each lane lead from the
lane's version in the log to the newest version, with one sequence for each version. And every file of these sequences
is there as it was sealed. The vnodes give the order among lanes: a sequence comes next if the position of each of its
vnodes is the sequence's start. Files of a generation that a later lost sequence replaced may be missing: nobody reads
them any more.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gobblin_assets.commit.attempts import published_directories
from gobblin_assets.commit.markers import Marker, decode_marker, list_markers
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.commit.sequence import KeyMove, KnownSequence, SealedSequence
from gobblin_assets.commit.step_calls import verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CommitStep, StepVerdict
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.path_names import path_of
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.state.datasets import DatasetStore

MISSING_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Remembered:
    """One sequence as storage and log know it.

    ``version`` None: it has no marker. ``sealed`` None: none of its markers can be read; ``unreadable`` says why.
    ``directories`` are the published directories with its name, in path order.
    """

    sequence_id: SequenceId
    known: KnownSequence | None
    version: int | None = None
    fence: int = 0
    markers: tuple[Marker, ...] = ()
    sealed: SealedSequence | None = None
    unreadable: str | None = None
    directories: tuple[str, ...] = ()

    @property
    def lane_number(self) -> int:
        return self.markers[-1].lane_number if self.markers else 0

    @property
    def is_forgotten(self) -> bool:
        return self.known is None or not self.known.is_sealed

    @property
    def is_open(self) -> bool:
        return self.known is not None and self.known.state.is_open


@dataclass(frozen=True, slots=True)
class LogFinding:
    """One dataset. ``dataset_id`` None: the log does not know it at all.

    ``forgotten``: oldest first. ``chain``: the sequences that adopting would execute, in order; it may begin with a
    sequence that the log has open. ``refusal``: why adopting is impossible. ``missing``: published files of the log
    that are not there (a lost refresh retired them), the first ``MISSING_NAMED_MAX`` of ``missing_count``;
    ``missing_partitions``: the partitions of these files. ``lane_count``: the lanes in the log or on storage.
    """

    urn: DatasetUrn
    dataset_id: DatasetId | None
    version: int
    fence: int
    storage_fence: int
    forgotten: tuple[Remembered, ...] = ()
    chain: tuple[Remembered, ...] = ()
    refusal: str | None = None
    missing: tuple[str, ...] = ()
    missing_count: int = 0
    missing_partitions: tuple[str, ...] = field(default=())
    is_fence_behind: bool = False
    lane_count: int = 1

    @property
    def is_behind(self) -> bool:
        """Whether the log lacks something that storage has, so that nothing may run."""
        return bool(self.forgotten) or self.is_fence_behind


@dataclass(frozen=True, slots=True)
class Examination:
    """An examination of one job's destination and of the log."""

    store: CommitLogReader
    datasets: DatasetStore
    published: PublishedFiles
    fs: FileSystem
    root: str
    job: JobName

    def look_at(self, urn: DatasetUrn, *, thoroughly: bool = False) -> LogFinding:
        """Read the markers. If they show a forgotten sequence, or ``thoroughly``, list the dataset's directories."""
        # Storage first: if a run publishes between the two looks, the log then knows its sequence.
        markers = list_markers(self.fs, self.root, self.job, urn)
        state = self.datasets.load(self.job, [urn]).get(urn)
        view = self.store.look_at(self.job, [] if state is None else [state.dataset_id], [])
        fences = {lane.number: lane.fence for lane in view.lanes}
        finding = LogFinding(
            urn,
            None if state is None else state.dataset_id,
            version=0 if state is None else state.version,
            fence=max(fences.values(), default=0),
            storage_fence=max((marker.fence for marker in markers), default=0),
            is_fence_behind=any(marker.fence > fences.get(marker.lane_number, 0) for marker in markers),
            lane_count=1 + max({*fences, *(marker.lane_number for marker in markers)}, default=0),
        )
        known = self.store.find_known(list({marker.sequence_id for marker in markers}))
        explained = all(m.sequence_id in known and known[m.sequence_id].is_sealed for m in markers)
        if explained and not thoroughly:
            return finding
        log = LanesInLog(
            versions={lane.number: lane.version for lane in view.lanes},
            watermarks={} if state is None else {key: found.watermark for key, found in state.keys.items()},
        )
        return self._look_closely(finding, markers, log)

    def _look_closely(self, finding: LogFinding, markers: Sequence[Marker], log: "LanesInLog") -> LogFinding:
        files = self._list_files(finding.urn)
        remembered = self._remember(markers, published_directories(files))
        forgotten = tuple(each for each in remembered if each.is_forgotten)
        if finding.lane_count > 1:
            chain, refusal = decide_lane_chain(log, remembered)
        else:
            chain, refusal = decide_chain(finding.version, remembered)
        if refusal is None:
            refusal = self._find_fault(finding.urn, chain)
        missing = self._find_missing(finding.urn, files)
        return replace(
            finding,
            forgotten=forgotten,
            chain=() if refusal else chain,
            refusal=refusal,
            missing=tuple(path for path, _partition in missing[:MISSING_NAMED_MAX]),
            missing_count=len(missing),
            missing_partitions=tuple(sorted({partition for _path, partition in missing})),
        )

    def list_directories(self, urn: DatasetUrn) -> Mapping[SequenceId, Iterable[str]]:
        """The published directories that bear a sequence's name, as they are now."""
        return published_directories(self._list_files(urn))

    def _list_files(self, urn: DatasetUrn) -> set[str]:
        return {file.path for role in Role for file in self.fs.list_files(path_of(self.root, self.job, urn, role))}

    def _remember(self, markers: Sequence[Marker], directories: Mapping[SequenceId, Iterable[str]]) -> list[Remembered]:
        of_sequence: dict[SequenceId, list[Marker]] = defaultdict(list)
        for marker in markers:
            of_sequence[marker.sequence_id].append(marker)
        ids = [*of_sequence, *(each for each in directories if each not in of_sequence)]
        known = self.store.find_known(ids)
        found = []
        for sequence_id in ids:
            mine = tuple(of_sequence.get(sequence_id, ()))
            stored = known.get(sequence_id)
            if stored is not None and stored.is_sealed and not stored.state.is_open:
                continue
            sealed, unreadable = self._read(mine)
            found.append(
                Remembered(
                    sequence_id=sequence_id,
                    known=stored,
                    version=mine[-1].version if mine else None,
                    fence=max((marker.fence for marker in mine), default=0),
                    markers=mine,
                    sealed=sealed,
                    unreadable=unreadable,
                    directories=tuple(sorted(directories.get(sequence_id, ()))),
                )
            )
        return sorted(found, key=lambda each: (each.version or 0, each.fence, each.sequence_id))

    def _read(self, markers: Sequence[Marker]) -> tuple[SealedSequence | None, str | None]:
        unreadable = None
        for marker in reversed(markers):
            try:
                with self.fs.open_input(marker.path) as stream:
                    return decode_marker(stream.read(), marker.path), None
            except CorruptionError as error:
                unreadable = str(error)
        return None, unreadable

    def _find_fault(self, urn: DatasetUrn, chain: Sequence[Remembered]) -> str | None:
        """Why the chain's files can't be published as they were sealed; None if they can."""
        for number, each in enumerate(chain):
            if each.sealed is None or is_replaced(each, chain[number + 1 :]):
                continue
            if each.sealed.is_at_given_names:
                return "copies are not adopted: the next run compares source and destination again"
            if (each.sealed.job, each.sealed.urn) != (self.job, urn):
                return f"the marker of sequence {each.sequence_id} is of {each.sealed.urn} of job {each.sealed.job}"
            try:
                fault = self._find_lost_file(each.sealed)
            except GobblinError as error:
                return str(error)
            if fault is not None:
                return f"{fault} (sequence {each.sequence_id}, version {each.version})"
        return None

    def _find_lost_file(self, sealed: SealedSequence) -> str | None:
        with StepPorts(suspects_uploads=True) as ports:
            for segment in sealed.segments():
                steps = decode_segment(segment.payload, segment.digest)
                for step, verdict in zip(steps, verify_steps(steps, StepWorld(self.fs, ports)), strict=True):
                    if verdict in (StepVerdict.LOST, StepVerdict.CONFLICT):
                        return self._describe(step)
        return None

    def _describe(self, step: CommitStep) -> str:
        """The fault of a step that can't be executed: its first file that is not as it was sealed."""
        for path, identity, _rows in step.published():
            found = self.fs.find_identity(path)
            if found is None:
                return f"{path} is not there"
            if not found.matches(identity):
                return f"{path} is not the file that was published"
        return f"something else is where a step of the kind {step.kind} was carried out"

    def _find_missing(self, urn: DatasetUrn, files: set[str]) -> list[tuple[str, str]]:
        """(path, partition) of each file that is published in the log and missing on storage."""
        missing = []
        for role in Role:
            found = self.published.find(self.job, urn, role=role)
            for segment in () if found is None else found.segments:
                missing += [(file.path, segment.partition) for file in segment.files() if file.path not in files]
        return missing


@dataclass(frozen=True, slots=True)
class LanesInLog:
    """The lanes of a dataset as the log has them.

    ``versions``: of its lanes, by their numbers. ``watermarks``: by key and partition.
    """

    versions: Mapping[int, int]
    watermarks: Mapping[tuple[str, str], Watermark | None]


def decide_chain(version: int, remembered: Sequence[Remembered]) -> tuple[tuple[Remembered, ...], str | None]:
    """The sequences from the log's ``version`` to the newest on storage, oldest first, or why there is no chain.

    ``remembered``: the forgotten sequences, and those that the log has open. Without a forgotten sequence there is
    nothing to adopt, since recovery completes an open sequence.
    """
    if not any(each.is_forgotten for each in remembered):
        return (), None
    return _chain_of_lane(version, remembered)


def decide_lane_chain(log: LanesInLog, remembered: Sequence[Remembered]) -> tuple[tuple[Remembered, ...], str | None]:
    """The same for a dataset with several lanes: each lane's chain, merged by the positions of the vnodes."""
    if not any(each.is_forgotten for each in remembered):
        return (), None
    if any(each.sealed is not None and each.sealed.replaces for each in remembered):
        return (), "a refresh is among what its lanes published"
    of_lane: dict[int, list[Remembered]] = defaultdict(list)
    for each in remembered:
        of_lane[each.lane_number].append(each)
    chains: list[deque[Remembered]] = []
    for number, mine in sorted(of_lane.items()):
        found, refusal = _chain_of_lane(log.versions.get(number, 0), mine)
        if refusal is not None:
            return (), f"lane {number}: {refusal}"
        chains.append(deque(found))
    watermarks = dict(log.watermarks)
    merged: list[Remembered] = []
    while any(chains):
        ready = next((chain for chain in chains if chain and _find_stray_key(watermarks, chain[0]) is None), None)
        if ready is None:
            first = next(chain[0] for chain in chains if chain)
            key = _find_stray_key(watermarks, first)
            return (), f"sequence {first.sequence_id} of lane {first.lane_number} does not start where {key!r} stands"
        watermarks |= {(move.key, move.partition): move.new for move in _moves_of(ready[0]) if move.new is not None}
        merged.append(ready.popleft())
    return tuple(merged), None


def _find_stray_key(watermarks: Mapping[tuple[str, str], Watermark | None], each: Remembered) -> str | None:
    """A key whose position is not the sequence's start. A key that the sequence does not move may be anywhere."""
    moved = [move for move in _moves_of(each) if move.new is not None or not move.intervals]
    return next((move.key for move in moved if watermarks.get((move.key, move.partition)) != move.old), None)


def _moves_of(each: Remembered) -> tuple[KeyMove, ...]:
    return () if each.sealed is None else tuple(each.sealed.order.moves)


def _chain_of_lane(version: int, remembered: Sequence[Remembered]) -> tuple[tuple[Remembered, ...], str | None]:
    for each in remembered:
        if each.is_forgotten and (fault := _unusable(version, each)) is not None:
            return (), fault
    candidates: dict[int, list[Remembered]] = defaultdict(list)
    for each in remembered:
        if each.version is not None:
            candidates[each.version].append(each)
    newest = max(candidates, default=version)
    chain = []
    for number in range(version + 1, newest + 1):
        match candidates.get(number, []):
            case []:
                return (), f"storage has no marker of version {number}, between {version} in the log and {newest}"
            case [one] if one.known is not None and one.known.state is SequenceState.ABANDONING:
                return (), f"sequence {one.sequence_id} of version {number} is being given up"
            case [one]:
                chain.append(one)
            case several:
                named = ", ".join(str(each.sequence_id) for each in several)
                return (), f"{len(several)} sequences claim version {number}: {named}"
    return tuple(chain), None


def is_replaced(sequence: Remembered, later: Iterable[Remembered]) -> bool:
    """Whether a later sequence of the lost history replaced all publications of this one."""
    return sequence.sealed is not None and any(
        each.sealed is not None
        and each.sealed.replaces
        and each.sealed.order.partition == sequence.sealed.order.partition
        for each in later
    )


def _unusable(version: int, each: Remembered) -> str | None:
    if each.version is None:
        return f"sequence {each.sequence_id} has published files and no marker: an older release wrote it, or it is old"
    if each.version <= version:
        return f"the log has gone on by itself: its version {each.version} is another sequence than {each.sequence_id}"
    if each.sealed is None:
        return f"sequence {each.sequence_id}: {each.unreadable}"
    if each.known is not None and each.known.state is not SequenceState.BUILDING:
        return f"sequence {each.sequence_id} was given up in this log ({each.known.state})"
    return None
