"""Markers: storage's own record of publications, for a log that was restored from an older backup.

The promise. A Postgres that is restored from an older backup does not know sequences whose files are on storage;
further runs would publish their rows twice. So before the first step of a sealed sequence is executed, a small durable
file (the marker) is put beside the datasets. Before anything runs for a dataset, its markers are listed. A marker whose
sequence the log never sealed, or whose fence is above the dataset's, means that the log is older than the storage. That
dataset is stopped until a person reconciles (``commit.reconciliation``); the other datasets go on.

    <root>/<job>/.markers/<dataset>/<version>-<fence>-<sequence>.json             of lane 0
    <root>/<job>/.markers/<dataset>/.lane-<n>/<version>-<fence>-<sequence>.json   of another lane

A dataset is stopped as a whole: what one lane published and the log forgot, another lane may hold by now.

Who is authoritative. The log, always: a marker only shows that another log, or a newer state of this log, wrote it.
Each executor puts a marker under its own fence, so that every fence that ever executed is seen. Markers are outside
staging, so that emptying staging loses none.

What a crash leaves. A marker without a visible file: its sequence is PREPARED and goes on. A hidden unfinished name.
An abandoned sequence's markers are removed before the sequence is ABORTED, because the next sequence gets its version.

What is not promised. A sequence that was sealed but not begun to be executed is forgotten without a trace; nothing of
it is visible. Only the newest ``MARKERS_KEPT`` publications of a lane are remembered, so a log that fell further behind
is noticed, but can't be completed from the markers.

The content of a marker is everything that a seal decided, as JSON with a digest of its own.

    {"sha256": "<of the text of marker>", "marker": {"format": 2, "sequence_id": …, "attempts": […], …}}

It has the segments as the log stores them (about 25 bytes for each file, in base64), so that a sequence is adopted from
its marker by the sealed identities, and not by a listing. A sequence at given names is never adopted, so its marker has
only the digest of its segments.
"""

import base64
import hashlib
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final

from gobblin_assets.commit.attempts import MARKERS_KEPT, MARKERS_NAME
from gobblin_assets.commit.batches import in_bounds
from gobblin_assets.commit.destination import (
    Binding,
    DestinationAwayError,
    StorageBehindError,
    StorageMismatchError,
    elsewhere,
    read_identity,
)
from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import (
    KeyMove,
    KnownSequence,
    PublishedInterval,
    SealedAttempt,
    SealedSequence,
    SealOrder,
    SequenceRecord,
)
from gobblin_assets.commit.store import CommitLogReader, LaneView
from gobblin_assets.errors import CorruptionError, GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.path_names import encode_segment, list_upwards
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import AttemptId, DatasetId, DatasetState, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark, parse_watermark, watermark_from
from gobblin_assets.state.leases import Lease

_FORMAT: Final = 2
# In the first format a key had one interval at most, and the partition of its sequence.
_FORMATS_READ: Final = (1, _FORMAT)
# The destination's URI as a person wrote it may hold a secret; a reader of a marker knows the destination anyway.
_LEFT_OUT: Final = frozenset({"root_uri"})


def encode_marker(sealed: SealedSequence, *, fence: int) -> bytes:
    """``fence`` is the executor's; in recovery it is newer than the one that sealed."""
    order = sealed.order
    marker = {
        "format": _FORMAT,
        "sequence_id": str(order.sequence_id),
        "job": sealed.job,
        "urn": sealed.urn,
        "partition": order.partition,
        "mode": sealed.mode.value,
        "replaces": sealed.replaces,
        "complete": order.complete,
        "base_version": order.base_version,
        "fence": fence,
        "digest": order.digest.hex(),
        "segment_count": order.segment_count,
        "row_count": order.row_count,
        "rows_by_role": _rows_by_role(sealed),
        "moves": [_move_to_json(move) for move in order.moves],
        "details": {name: value for name, value in order.details.items() if name not in _LEFT_OUT},
        "attempts": [
            _attempt_to_json(attempt, with_segments=not sealed.is_at_given_names) for attempt in sealed.attempts
        ],
    }
    text = _canonical(marker)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{{"sha256": "{digest}",\n"marker": {text}}}\n'.encode()


def decode_marker(content: bytes, path: str) -> SealedSequence:
    """The encoded sequence, with dataset id 0, since only a log gives ids. CorruptionError for any other text."""
    try:
        whole = json.loads(content)
        marker = whole["marker"]
        if hashlib.sha256(_canonical(marker).encode()).hexdigest() != whole["sha256"]:
            raise CorruptionError(f"the marker {path} does not match its digest", path=path)
        if marker["format"] not in _FORMATS_READ:
            raise CorruptionError(
                f"the marker {path} has the unknown format {marker['format']}",
                hint="Use the release that wrote it, or a newer one.",
                path=path,
            )
        return _sealed_of(marker)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"{path} can't be read as a marker: {error!r}", path=path) from error


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def _rows_by_role(sealed: SealedSequence) -> dict[str, int]:
    rows: dict[str, int] = {}
    for attempt in sealed.attempts:
        for segment in attempt.segments:
            rows[segment.role.value] = rows.get(segment.role.value, 0) + segment.row_count
    return rows


def _move_to_json(move: KeyMove) -> dict[str, object]:
    return {
        "key": move.key,
        "partition": move.partition,
        "old": _watermark_to_json(move.old),
        "new": _watermark_to_json(move.new),
        "intervals": [
            {
                "low": _watermark_to_json(each.interval.low),
                "high": _watermark_to_json(each.interval.high),
                "reread_from": _watermark_to_json(each.reread_from),
            }
            for each in move.intervals
        ],
    }


def _attempt_to_json(attempt: SealedAttempt, *, with_segments: bool) -> dict[str, object]:
    return {
        "attempt_id": str(attempt.attempt_id),
        "multi_work_unit": attempt.multi_work_unit,
        "try_number": attempt.try_number,
        "staging_path": attempt.staging_path,
        "segments": [
            {
                "segment_id": str(segment_id),
                "role": segment.role.value,
                "partition": segment.partition,
                "payload": base64.b64encode(segment.payload).decode("ascii"),
                "digest": segment.digest.hex(),
                "step_count": segment.step_count,
                "file_count": segment.file_count,
                "row_count": segment.row_count,
                "file_bytes": segment.file_bytes,
                "file_schema": segment.file_schema,
                **({} if segment.version is None else {"version": segment.version}),
            }
            for segment_id, segment in zip(attempt.segment_ids, attempt.segments, strict=True)
            if with_segments
        ],
    }


def _watermark_to_json(watermark: Watermark | None) -> Mapping[str, object] | None:
    return None if watermark is None else watermark.to_json()


def _sealed_of(marker: Mapping[str, Any]) -> SealedSequence:
    attempts = tuple(_attempt_of(each) for each in marker["attempts"])
    read_move = partial(_move_of_first_format, marker["partition"]) if marker["format"] == 1 else _move_of
    return SealedSequence(
        job=JobName(marker["job"]),
        urn=DatasetUrn(marker["urn"]),
        mode=Mode(marker["mode"]),
        replaces=marker["replaces"],
        attempts=attempts,
        order=SealOrder(
            sequence_id=SequenceId(uuid.UUID(marker["sequence_id"])),
            dataset_id=DatasetId(LaneId(0)),
            partition=marker["partition"],
            fence=marker["fence"],
            base_version=marker["base_version"],
            winners=tuple(attempt.attempt_id for attempt in attempts),
            digest=bytes.fromhex(marker["digest"]),
            segment_count=marker["segment_count"],
            row_count=marker["row_count"],
            moves=tuple(read_move(each) for each in marker["moves"]),
            complete=marker["complete"],
            details=marker["details"],
        ),
    )


def _move_of(stored: Mapping[str, Any]) -> KeyMove:
    return KeyMove(
        key=stored["key"],
        partition=stored["partition"],
        old=watermark_from(stored["old"]),
        new=watermark_from(stored["new"]),
        intervals=tuple(
            PublishedInterval(
                Interval(watermark_from(each["low"]), parse_watermark(each["high"])),
                watermark_from(each["reread_from"]),
            )
            for each in stored["intervals"]
        ),
    )


def _move_of_first_format(partition: str, stored: Mapping[str, Any]) -> KeyMove:
    new = watermark_from(stored["new"])
    return KeyMove(
        key=stored["key"],
        partition=partition,
        old=watermark_from(stored["old"]),
        new=new,
        intervals=()
        if new is None
        else (PublishedInterval(Interval(watermark_from(stored["low"]), new), watermark_from(stored["reread_from"])),),
    )


def _attempt_of(stored: Mapping[str, Any]) -> SealedAttempt:
    return SealedAttempt(
        attempt_id=AttemptId(uuid.UUID(stored["attempt_id"])),
        multi_work_unit=stored["multi_work_unit"],
        try_number=stored["try_number"],
        staging_path=stored["staging_path"],
        segments=tuple(
            Segment(
                role=Role(each["role"]),
                partition=each["partition"],
                payload=base64.b64decode(each["payload"], validate=True),
                digest=bytes.fromhex(each["digest"]),
                step_count=each["step_count"],
                file_count=each["file_count"],
                row_count=each["row_count"],
                file_bytes=each["file_bytes"],
                file_schema=each["file_schema"],
                version=each.get("version"),
            )
            for each in stored["segments"]
        ),
        segment_ids=tuple(uuid.UUID(each["segment_id"]) for each in stored["segments"]),
    )


_ASKED_AT_ONCE_MAX: Final = 10_000

_NAME: Final = re.compile(
    r"(?:\.lane-(?P<lane>\d{1,9})/)?(?P<version>\d{20})-(?P<fence>\d{20})-(?P<sequence>[0-9a-f]{32})\.json"
)


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker, as its path says. ``version``: the version of its lane that the sequence makes when it is DONE."""

    path: str
    identity: FileIdentity
    version: int
    fence: int
    sequence_id: SequenceId
    lane_number: int = 0


def marker_directory(root: str, job: JobName, urn: DatasetUrn, lane_number: int = 0) -> str:
    """The directory of one lane's markers. That of lane 0 is above those of all lanes."""
    lane = (f".lane-{lane_number}",) if lane_number else ()
    return "/".join((root, *encode_segment(job), MARKERS_NAME, *encode_segment(urn), *lane))


def put_markers(fs: FileSystem, root: str, executions: Iterable[tuple[SealedSequence, int]]) -> None:
    """Put the marker of each sequence, under its executor's fence; a marker that exists already is fine.

    The markers are durable after ``sync_markers``; nothing may be made visible before.
    """
    contents = {}
    for sealed, fence in executions:
        directory = marker_directory(root, sealed.job, sealed.urn, sealed.lane_number)
        fs.make_directories(directory)
        name = f"{sealed.version:020d}-{fence:020d}-{sealed.order.sequence_id.hex}.json"
        contents[f"{directory}/{name}"] = encode_marker(sealed, fence=fence)
    fs.write_new(contents)


def sync_markers(fs: FileSystem, root: str, sequences: Iterable[SealedSequence]) -> None:
    """Return once the names of these sequences' markers survive a power cut."""
    directories = (marker_directory(root, sealed.job, sealed.urn, sealed.lane_number) for sealed in sequences)
    fs.sync_directories(list_upwards(directories, root))


def list_markers(fs: FileSystem, root: str, job: JobName, urn: DatasetUrn) -> list[Marker]:
    """The markers of all lanes of the dataset, by lanes, the oldest version first."""
    found = []
    directory = marker_directory(root, job, urn)
    for file in fs.list_files(directory):
        name = _NAME.fullmatch(file.path.removeprefix(f"{directory}/"))
        if name is not None:
            version, fence, lane = int(name["version"]), int(name["fence"]), int(name["lane"] or 0)
            sequence_id = SequenceId(uuid.UUID(hex=name["sequence"]))
            found.append(Marker(file.path, file.identity, version, fence, sequence_id, lane))
    return sorted(found, key=lambda marker: (marker.lane_number, marker.version, marker.fence))


def find_forgotten(
    markers: Iterable[Marker], known: Mapping[SequenceId, KnownSequence], *, fences: Mapping[int, int]
) -> list[Marker]:
    """The markers that the log does not explain: it never sealed the sequence, or the fence went back.

    ``fences``: by the numbers of the lanes that the log has.
    """
    return [
        marker
        for marker in markers
        if marker.sequence_id not in known
        or not known[marker.sequence_id].is_sealed
        or marker.fence > fences.get(marker.lane_number, 0)
    ]


def check_log(store: CommitLogReader, fs: FileSystem, root: str, job: JobName, urn: DatasetUrn, lease: Lease) -> None:
    """Return if log and storage belong together for the leased dataset. Changes nothing.

    Raises:
        LogBehindError: the log does not explain every marker.
        StorageMismatchError: the destination is not there, or has no trace of what the log says is published.
        RejectedError: the log has the job at another root.

    """
    for error in check_logs(store, fs, root, job, {urn: lease}).values():
        raise error


def check_logs(
    store: CommitLogReader, fs: FileSystem, root: str, job: JobName, leases: Mapping[DatasetUrn, Lease]
) -> dict[DatasetUrn, GobblinError]:
    """The same for several datasets: the errors of ``check_log``, by dataset."""
    errors: dict[DatasetUrn, GobblinError] = {}
    for some in in_bounds(leases):
        errors |= _check_some(store, fs, root, job, {urn: leases[urn] for urn in some})
    return errors


def _check_some(
    store: CommitLogReader, fs: FileSystem, root: str, job: JobName, leases: Mapping[DatasetUrn, Lease]
) -> dict[DatasetUrn, GobblinError]:
    markers: dict[DatasetUrn, list[Marker]] = {}
    errors: dict[DatasetUrn, GobblinError] = {}
    try:
        identity = read_identity(fs, root)
    except GobblinError as error:
        return dict.fromkeys(leases, error)
    for urn in leases:
        try:
            markers[urn] = list_markers(fs, root, job, urn)
        except GobblinError as error:
            errors[urn] = error
    ids = list({marker.sequence_id for found in markers.values() for marker in found})
    view = store.look_at(job, [lease.dataset_id for lease in leases.values()], ids[:_ASKED_AT_ONCE_MAX])
    lanes: dict[DatasetId, list[LaneView]] = defaultdict(list)
    for lane in view.lanes:
        lanes[lane.dataset_id].append(lane)
    misplaced = _find_misplaced(view.binding, fs, root, identity)
    if misplaced is not None:
        return dict.fromkeys(leases, misplaced)
    known = dict(view.known)
    for start in range(_ASKED_AT_ONCE_MAX, len(ids), _ASKED_AT_ONCE_MAX):
        known |= store.find_known(ids[start : start + _ASKED_AT_ONCE_MAX])
    for urn, found in markers.items():
        of_dataset = lanes[leases[urn].dataset_id]
        version = max((lane.version for lane in of_dataset), default=0)
        forgotten = find_forgotten(found, known, fences={lane.number: lane.fence for lane in of_dataset})
        if forgotten:
            errors[urn] = LogBehindError(urn, forgotten)
        elif version and not found and not _is_visible(store, fs, leases[urn].dataset_id):
            errors[urn] = StorageBehindError(urn, root, version)
    return errors


def _find_misplaced(binding: Binding | None, fs: FileSystem, root: str, identity: str | None) -> GobblinError | None:
    """The fault of the destination, or None; also None if no run has read its identity yet."""
    if binding is None or binding.identity is None:
        return None
    if binding.root_uri != fs.to_uri(root):
        return elsewhere(binding.job, binding.root_uri, fs.to_uri(root))
    if binding.identity != identity and binding.has_published:
        return DestinationAwayError(binding.job, root, expected=binding.identity, found=identity)
    return None


def _is_visible(store: CommitLogReader, fs: FileSystem, dataset_id: DatasetId) -> bool:
    """Whether a file of the newest publication is there, for publications without markers of an earlier release."""
    segment = store.find_newest_segment(dataset_id)
    if segment is None:
        return True
    path, _identity, _rows = next(iter(segment.files()))
    return fs.find_identity(path) is not None


def is_any_visible(store: CommitLogReader, fs: FileSystem, root: str, state: DatasetState) -> bool:
    """Whether storage has a trace of the dataset's publications."""
    if list_markers(fs, root, state.job, state.urn):
        return True
    return store.find_newest_segment(state.dataset_id) is not None and _is_visible(store, fs, state.dataset_id)


def remove_markers(fs: FileSystem, root: str, sequence: SequenceRecord) -> None:
    """Forget a sequence that is being abandoned, durably: also if another process removed its markers before."""
    for marker in list_markers(fs, root, sequence.job, sequence.urn):
        if marker.sequence_id == sequence.sequence_id:
            fs.remove_file(marker.path, marker.identity)
    fs.sync_directories([marker_directory(root, sequence.job, sequence.urn, sequence.lane_number)])


def prune_markers(store: CommitLogReader, fs: FileSystem, root: str, job: JobName, urn: DatasetUrn) -> int:
    """Remove the oldest markers of each lane beyond ``MARKERS_KEPT`` whose sequences are over; returns how many."""
    by_lane = groupby(list_markers(fs, root, job, urn), key=lambda marker: marker.lane_number)
    old = [marker for _lane, markers in by_lane for marker in list(markers)[:-MARKERS_KEPT]]
    known = store.find_known([marker.sequence_id for marker in old]) if old else {}
    over = [marker for marker in old if _is_over(known.get(marker.sequence_id))]
    for marker in over:
        fs.remove_file(marker.path, marker.identity)
    return len(over)


class LogBehindError(StorageMismatchError):
    """The log is older than the storage, or another log publishes to the same destination."""

    def __init__(self, urn: DatasetUrn, forgotten: Sequence[Marker]) -> None:
        newest = max(forgotten, key=lambda marker: (marker.version, marker.fence))
        count = len({marker.sequence_id for marker in forgotten})
        are = "is" if count == 1 else "are"
        super().__init__(
            f"{urn} is stopped: {count} of its publications on storage {are} not explained by the commit log (the "
            f"newest is version {newest.version}, sequence {newest.sequence_id}, fence {newest.fence}). The log was "
            "restored from an older backup, or another log publishes to the same destination.",
            hint=f"Nothing was read or published. `gobblin-assets reconcile JOB_FILE --dataset '{urn}'` shows what was "
            "found and what can be done.",
            urn=urn,
            forgotten=count,
        )


def _is_over(known: KnownSequence | None) -> bool:
    return known is not None and known.state in (SequenceState.DONE, SequenceState.ABORTED)
