"""A marker's content: everything that a seal decided, as JSON with a digest of its own.

    {"sha256": "<of the text of marker>", "marker": {"format": 2, "sequence_id": …, "attempts": […], …}}

A marker holds the segments as the log stores them (about 25 bytes for each file, in base64), so that a sequence which
is adopted from its marker is checked and published by the sealed identities, and not by a listing. A sequence at given
names is never adopted, so its marker has only the digest of its segments.
"""

import base64
import hashlib
import json
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from gobblin_assets.commit.segment import Segment
from gobblin_assets.commit.sequence import KeyMove, PublishedInterval, SealedAttempt, SealedSequence, SealOrder
from gobblin_assets.errors import CorruptionError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.state import AttemptId, DatasetId, LaneId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark, parse_watermark

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
        old=_watermark_of(stored["old"]),
        new=_watermark_of(stored["new"]),
        intervals=tuple(
            PublishedInterval(
                Interval(_watermark_of(each["low"]), parse_watermark(each["high"])), _watermark_of(each["reread_from"])
            )
            for each in stored["intervals"]
        ),
    )


def _move_of_first_format(partition: str, stored: Mapping[str, Any]) -> KeyMove:
    new = _watermark_of(stored["new"])
    return KeyMove(
        key=stored["key"],
        partition=partition,
        old=_watermark_of(stored["old"]),
        new=new,
        intervals=()
        if new is None
        else (PublishedInterval(Interval(_watermark_of(stored["low"]), new), _watermark_of(stored["reread_from"])),),
    )


def _watermark_of(stored: Mapping[str, object] | None) -> Watermark | None:
    return None if stored is None else parse_watermark(stored)


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
