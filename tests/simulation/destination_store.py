"""``SimDestinationStore(db)``: the port ``DestinationStore`` over a ``SimDatabase``."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gobblin_assets.commit.destination import Binding, Move, unfinished
from gobblin_assets.errors import ConflictError, FencedError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import JobName
from tests.simulation.database import SimDatabase, json_text
from tests.simulation.rows import DestinationRow, SequenceRow


class SimDestinationStore:
    def __init__(self, db: SimDatabase) -> None:
        self._db = db

    def find(self, job: JobName) -> Binding | None:
        return find_binding(self._db, job)

    def list_all(self) -> Sequence[Binding]:
        return [_binding_of(self._db, self._db.destinations[job]) for job in sorted(self._db.destinations)]

    def bind(self, job: JobName, *, root_uri: str, identity: str) -> Binding:
        with self._db.transaction() as db:
            if job not in db.destinations:
                db.destinations.put(job, DestinationRow(job, root_uri, identity))
            return _binding_of(db, db.destinations[job])

    def identify(self, job: JobName, *, old: str | None, root_uri: str, identity: str) -> Binding:
        with self._db.transaction() as db:
            row = db.destinations[job]
            if row.identity == old and (old is None or not _has_published(db, job)):
                db.destinations.put(job, DestinationRow(job, root_uri, identity))
            return _binding_of(db, db.destinations[job])

    def list_roots(self, job: JobName) -> Sequence[str]:
        return sorted({str(json.loads(row.details)["root_uri"]) for row in _sequences(self._db, job)})

    def move(self, move: Move, *, expected: Binding, fences: Mapping[DatasetId, int]) -> None:
        with self._db.transaction() as db:
            for dataset_id, fence in sorted(fences.items()):
                if db.leases[dataset_id].fence != fence:
                    raise FencedError(f"dataset {dataset_id} was taken over", dataset_id=dataset_id, fence=fence)
            row = db.destinations.get(move.job)
            if row is not None and (row.root_uri, row.identity) == (move.new_uri, move.identity):
                return
            if row is None or (row.root_uri, row.identity) != (expected.root_uri, expected.identity):
                raise ConflictError(f"the destination of {move.job} was changed meanwhile", job=move.job)
            if {each.dataset_id for each in db.datasets.values() if each.job == move.job} - fences.keys():
                raise ConflictError(f"a dataset of {move.job} was added meanwhile", job=move.job)
            if any(each.state is SequenceState.BUILDING or each.state.is_open for each in _sequences(db, move.job)):
                raise unfinished(move.job)
            db.destinations.put(move.job, DestinationRow(move.job, move.new_uri, move.identity))
            for sequence in _sequences(db, move.job):
                details = json.loads(sequence.details)
                if details["root_uri"] in move.old_uris:
                    before = details.get("moved", [move.old_root])[0]
                    details |= {"root_uri": move.new_uri, "moved": [before, move.new_root]}
                    db.sequences.put(sequence.sequence_id, replace(sequence, details=json_text(details)))
            for attempt in list(db.attempts.values()):
                is_ours = db.datasets[attempt.dataset_id].job == move.job and attempt.cleaned_at is None
                if is_ours and attempt.staging_path.startswith(f"{move.old_root}/"):
                    path = move.new_root + attempt.staging_path.removeprefix(move.old_root)
                    db.attempts.put(attempt.attempt_id, replace(attempt, staging_path=path))


def find_binding(db: SimDatabase, job: JobName) -> Binding | None:
    row = db.destinations.get(job)
    return None if row is None else _binding_of(db, row)


def _binding_of(db: SimDatabase, row: DestinationRow) -> Binding:
    return Binding(row.job, row.root_uri, row.identity, _has_published(db, row.job))


def _has_published(db: SimDatabase, job: JobName) -> bool:
    versions = [row.version for row in db.datasets.values() if row.job == job]
    return any(versions) or any(row.state.is_open for row in _sequences(db, job))


def _sequences(db: SimDatabase, job: JobName) -> list[SequenceRow]:
    return [row for row in db.sequences.values() if db.datasets[row.dataset_id].job == job]
