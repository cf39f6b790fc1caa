"""``SimDatasetStore(db)``, ``SimRunStore(db)`` and ``SimPublishedFiles(db)``: ports of the state.

They share one ``SimDatabase`` with ``SimCommitStepStore``, ``SimLeaseStore`` and ``SimLaneStore``.
"""

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gobblin_assets.commit.published.published_port import (
    ActiveSchema,
    PublishedPartition,
    PublishedSegment,
    PublishedSet,
    PublishedSource,
    RowsElsewhere,
    T,
)
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.interval import Interval, join_neighbours
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import (
    DatasetId,
    DatasetState,
    KeyId,
    KeyState,
    RunId,
    WorkingState,
)
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.state.datasets import LapsedRun, NewRun, RunDatasetRecord
from tests.simulation.database import ConstraintError, SimDatabase, json_text
from tests.simulation.lane_store import next_lane_id
from tests.simulation.log_guards import is_live
from tests.simulation.log_reading import where
from tests.simulation.rows import DatasetRow, LaneRow, LeaseRow, RunDatasetRow, RunRow, SegmentRow

_LAPSED_WITHIN_S: Final = dt.timedelta(days=30).total_seconds()
_RUN_STATES: Final = frozenset(WorkingState) - {WorkingState.SUCCESSFUL, WorkingState.SKIPPED}


class SimDatasetStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def register(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetId]:
        with self._db.transaction() as db:
            known = {row.urn: row.dataset_id for row in db.datasets.values() if row.job == job}
            for urn in sorted(set(urns) - known.keys()):
                dataset_id = known[urn] = DatasetId(next_lane_id(db))
                db.datasets.put(dataset_id, DatasetRow(dataset_id, job, urn))
                db.lanes.put(dataset_id, LaneRow(dataset_id, dataset_id, 0, tidied_at=db.now_s))
                db.leases.put(dataset_id, LeaseRow(dataset_id))
        return {urn: known[urn] for urn in urns}

    def load(self, job: JobName, urns: Sequence[DatasetUrn]) -> Mapping[DatasetUrn, DatasetState]:
        rows = [row for row in self._db.datasets.values() if row.job == job and row.urn in urns]
        return {row.urn: self._state_of(row) for row in rows}

    def settle_columns(self, dataset_id: DatasetId, columns: Mapping[str, str]) -> Mapping[str, str]:
        with self._db.transaction() as db:
            row = db.datasets[dataset_id]
            if row.source_columns is None:
                row = replace(row, source_columns=json_text(list(columns.items())))
                db.datasets.put(dataset_id, row)
        return dict(json.loads(row.source_columns or "[]"))

    def load_intervals(self, dataset_id: DatasetId, partition: str | None) -> Mapping[str, Sequence[Interval]]:
        by_key: dict[KeyId, list[Interval]] = {}
        for entry in self._db.ledger.values():
            sequence = self._db.sequences[entry.sequence_id]
            wanted = sequence.dataset_id == dataset_id and partition in (None, sequence.partition)
            if wanted and entry.is_active and entry.high is not None:
                by_key.setdefault(entry.key_id, []).append(Interval(entry.low, entry.high))
        intervals: dict[str, list[Interval]] = {}
        for key_id, found in by_key.items():
            joined = join_neighbours(sorted(found, key=Interval.low_bytes))
            intervals.setdefault(self._db.keys[key_id].name, []).extend(joined)
        return {name: sorted(found, key=Interval.low_bytes) for name, found in intervals.items()}

    def note_lost(self, dataset_id: DatasetId, key: str, at: Watermark, reason: str) -> None:
        with self._db.transaction() as db:
            for row in list(db.keys.values()):
                if row.watermark is not None and (row.dataset_id, row.name, row.watermark) == (dataset_id, key, at):
                    history = {"lost": reason, **(row.watermark.history or {})}
                    db.keys.put(row.key_id, replace(row, watermark=replace(row.watermark, history=history)))

    def list_urns(self, job: JobName | None = None) -> Sequence[tuple[JobName, DatasetUrn]]:
        return sorted((row.job, row.urn) for row in self._db.datasets.values() if job in (None, row.job))

    def _state_of(self, row: DatasetRow) -> DatasetState:
        keys = {key.key_id: key for key in self._db.keys.values() if key.dataset_id == row.dataset_id}
        active = [entry for entry in self._db.ledger.values() if entry.is_active and entry.key_id in keys]
        ahead: dict[tuple[str, str], list[Interval]] = {}
        for entry in active:
            key = keys[entry.key_id]
            if entry.high is None:
                continue
            interval = Interval(entry.low, entry.high)
            if key.watermark is None or interval.high > key.watermark:
                ahead.setdefault((key.name, key.partition), []).append(interval)
        return DatasetState(
            dataset_id=row.dataset_id,
            job=row.job,
            urn=row.urn,
            version=self._db.lanes[row.dataset_id].version,
            keys={
                (key.name, key.partition): KeyState(key.key_id, key.name, key.partition, key.watermark)
                for key in keys.values()
            },
            published=frozenset(self._db.sequences[entry.sequence_id].partition for entry in active),
            ahead={key: tuple(sorted(found, key=Interval.low_bytes)) for key, found in ahead.items()},
            source_columns=_columns(row.source_columns),
            published_columns=_columns(row.published_columns),
            source_facts={} if row.source_facts is None else json.loads(row.source_facts),
        )


def _columns(pairs: str | None) -> Mapping[str, str] | None:
    return None if pairs is None else dict(json.loads(pairs))


class SimRunStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def begin(self, run: NewRun) -> None:
        with self._db.transaction() as db:
            if run.run_id not in db.runs:
                state = WorkingState.RUNNING
                row = RunRow(run.run_id, run.job, state, run.owner, run.dagster_run_id, started_at=db.now_s)
                db.runs.put(run.run_id, row)

    def record_dataset(self, run_id: RunId, *records: RunDatasetRecord) -> None:
        with self._db.transaction() as db:
            for record in records:
                self._record_one(db, run_id, record)

    def _record_one(self, db: SimDatabase, run_id: RunId, record: RunDatasetRecord) -> None:
        unknown_sequence = record.sequence_id is not None and record.sequence_id not in db.sequences
        if run_id not in db.runs or record.dataset_id not in db.datasets or unknown_sequence:
            raise ConflictError(f"the run, dataset or sequence of an outcome of run {run_id} is not in the log")
        row = RunDatasetRow(
            run_id=run_id,
            dataset_id=record.dataset_id,
            partition=record.partition,
            outcome=record.outcome,
            sequence_id=record.sequence_id,
            error=record.error,
            figures=json_text(record.figures),
            ended_at=db.now_s,
        )
        db.run_datasets.put((run_id, record.dataset_id, record.partition), row)

    def end(self, run_id: RunId, state: WorkingState, *, error: str | None, figures: Mapping[str, object]) -> None:
        with self._db.transaction() as db:
            row = db.runs.get(run_id)
            if row is None:
                return
            if state not in _RUN_STATES:
                raise ConstraintError(f"a run is never {state}")
            ended = replace(row, state=state, error=error, figures=json_text(figures), ended_at=db.now_s)
            db.runs.put(run_id, ended)

    def forget(self, job: JobName, *, older_than_s: float, limit: int) -> int:
        with self._db.transaction() as db:
            kept = {row.run_id for row in db.sequences.values()}
            kept |= {row.run_id for row in db.leases.values() if row.run_id is not None and is_live(db, row)}
            old_at = db.now_s - older_than_s
            old = [
                row
                for row in sorted(db.runs.values(), key=lambda run: run.started_at)
                if row.job == job
                and row.started_at < old_at
                and (row.ended_at is None or row.ended_at < old_at)
                and row.run_id not in kept
            ][:limit]
            ids = {row.run_id for row in old}
            for key in [key for key, row in db.run_datasets.items() if row.run_id in ids]:
                db.run_datasets.drop(key)
            for run_id in ids:
                db.runs.drop(run_id)
        return len(old)

    def list_working(self, job: JobName | None, dagster_run_ids: Collection[str]) -> Collection[str]:
        return {
            row.dagster_run_id
            for row in self._db.runs.values()
            if job in (None, row.job) and row.state is WorkingState.RUNNING and row.dagster_run_id in dagster_run_ids
        }

    def list_lapsed(self, job: JobName | None, *, limit: int) -> Sequence[LapsedRun]:
        db = self._db
        found = []
        for row in sorted(db.runs.values(), key=lambda run: run.started_at):
            held = [lease for lease in db.leases.values() if lease.run_id == row.run_id and lease.owner is not None]
            was_ended = row.state is WorkingState.FAILED and row.figures is None
            if (
                job in (None, row.job)
                and (row.state is WorkingState.RUNNING or was_ended)
                and row.dagster_run_id is not None
                and row.started_at > db.now_s - _LAPSED_WITHIN_S
                and not any(is_live(db, lease) for lease in held)
            ):
                ran_out = was_ended or bool(held)
                found.append(LapsedRun(row.run_id, row.dagster_run_id, row.owner, ran_out, row.job, is_command=False))
        return found[:limit]


class SimPublishedFiles:
    """The port ``PublishedFiles``: one look at one moment of the tables."""

    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def find(
        self, job: JobName, urn: DatasetUrn, *, role: Role, partitions: Sequence[str] | None = None
    ) -> PublishedSet | None:
        db = self._db
        dataset = next((row for row in db.datasets.values() if (row.job, row.urn) == (job, urn)), None)
        if dataset is None:
            return None
        published = [
            segment
            for segment in db.segments.values()
            if (segment.dataset_id, segment.role) == (dataset.dataset_id, role)
            and segment.sealed
            and db.sequences[segment.sequence_id].state is SequenceState.DONE
        ]
        active = [
            segment
            for segment in published
            if segment.retired_by is None
            and (segment.file_count or SLOTS_KEEP_DETAIL in json.loads(db.sequences[segment.sequence_id].details))
        ]
        schemas = self._schemas(active) or self._schemas(published)[:1]
        active = [segment for segment in active if partitions is None or segment.partition in partitions]
        active.sort(key=lambda s: (-self._version_of(s), s.partition, s.segment_id))
        return PublishedSet(dataset.version, tuple(self._shown(segment) for segment in active), schemas)

    def find_source(self, job: JobName, urn: DatasetUrn, *, role: Role) -> PublishedSource | None:
        files = self.find(job, urn, role=role)
        if files is None:
            return None
        (row,) = (row for row in self._db.datasets.values() if (row.job, row.urn) == (job, urn))
        columns = None if row.source_columns is None else dict(json.loads(row.source_columns))
        return PublishedSource(files, columns, json.loads(row.source_facts or "{}"))

    def scan(
        self, job: JobName, urn: DatasetUrn, *, role: Role, read: Callable[[int, Iterator[PublishedSegment]], T]
    ) -> T | None:
        found = self.find(job, urn, role=role)
        return None if found is None else read(found.version, iter(found.segments))

    def find_active_schemas(
        self, job: JobName, urns: Sequence[DatasetUrn]
    ) -> Mapping[DatasetUrn, Sequence[ActiveSchema]]:
        db = self._db
        found: dict[DatasetUrn, list[ActiveSchema]] = {}
        for dataset in (row for row in db.datasets.values() if row.job == job and row.urn in urns):
            partitions: dict[str, set[str]] = {}
            for segment in db.segments.values():
                is_done = db.sequences[segment.sequence_id].state is SequenceState.DONE
                is_active = segment.sealed and segment.retired_by is None and is_done and segment.file_count > 0
                if segment.dataset_id == dataset.dataset_id and is_active and segment.file_schema is not None:
                    partitions.setdefault(segment.file_schema, set()).add(segment.partition)
            for text, names in partitions.items():
                only = next(iter(names)) if len(names) == 1 else None
                found.setdefault(dataset.urn, []).append(ActiveSchema(json.loads(text), only))
        return found

    def list_partitions(self, job: JobName, urn: DatasetUrn) -> Sequence[PublishedPartition]:
        db, found = self._db, list[PublishedPartition]()
        active: dict[str, list[SegmentRow]] = {}
        for segment in db.segments.values():
            dataset, sequence = db.datasets[segment.dataset_id], db.sequences[segment.sequence_id]
            is_active = segment.sealed and segment.retired_by is None and sequence.state is SequenceState.DONE
            if is_active and segment.file_count and (dataset.job, dataset.urn) == (job, urn):
                active.setdefault(segment.partition, []).append(segment)
        for partition, segments in sorted(active.items()):
            newest_at = max(db.sequences[segment.sequence_id].done_at or 0.0 for segment in segments)
            files, file_bytes = (sum(s.file_count for s in segments), sum(s.file_bytes for s in segments))
            found.append(PublishedPartition(partition, files, file_bytes, db.now_s - newest_at))
        return found

    def find_rows_elsewhere(self, job: JobName, urn: DatasetUrn) -> RowsElsewhere | None:
        db = self._db
        found = [
            segment
            for segment in db.segments.values()
            if (db.datasets[segment.dataset_id].job, db.datasets[segment.dataset_id].urn) == (job, urn)
            and (segment.role, segment.sealed, segment.retired_by, segment.file_count) == (Role.DATA, True, None, 0)
            and segment.row_count > 0
            and db.sequences[segment.sequence_id].state is SequenceState.DONE
        ]
        if not found:
            return None
        uris = [json.loads(db.sequences[segment.sequence_id].details).get("uri") for segment in found]
        uri = max(filter(None, uris), default="another place")
        return RowsElsewhere(uri, sum(segment.row_count for segment in found))

    def list_urns(self, job: JobName) -> Sequence[DatasetUrn]:
        return sorted(row.urn for row in self._db.datasets.values() if row.job == job)

    def _version_of(self, segment: SegmentRow) -> int:
        return segment.version or self._db.sequences[segment.sequence_id].result_version or 0

    def _schemas(self, segments: Iterable[SegmentRow]) -> tuple[object, ...]:
        newest: dict[str, int] = {}
        for segment in segments:
            if segment.file_schema is not None:
                version = self._version_of(segment)
                newest[segment.file_schema] = max(version, newest.get(segment.file_schema, 0))
        return tuple(json.loads(text) for text in sorted(newest, key=lambda text: -newest[text]))

    def _shown(self, segment: SegmentRow) -> PublishedSegment:
        root_uri, moved = where(self._db, segment.sequence_id)
        return PublishedSegment(
            sequence_id=segment.sequence_id,
            version=self._version_of(segment),
            partition=segment.partition,
            role=segment.role,
            root_uri=root_uri,
            file_count=segment.file_count,
            row_count=segment.row_count,
            file_bytes=segment.file_bytes,
            file_schema=None if segment.file_schema is None else json.loads(segment.file_schema),
            payload=segment.payload,
            digest=segment.digest,
            moved=moved,
        )
