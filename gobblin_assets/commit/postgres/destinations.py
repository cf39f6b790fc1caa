"""``DestinationStore`` in Postgres: one row a job."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.commit.destination import Binding, Move, unfinished
from gobblin_assets.commit.postgres.guards import hold_fences
from gobblin_assets.db.statement_texts import IS_OPEN, IS_UNFINISHED
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import ConflictError, CorruptionError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import JobName

# Whether the job at hand has something on storage that a wrong destination would hide.
_HAS_PUBLISHED = f"""
    EXISTS (SELECT FROM gobblin.dataset d WHERE d.job = b.job AND (d.version > 0 OR EXISTS (
        SELECT FROM gobblin.commit_sequence s
         WHERE s.dataset_id = d.dataset_id AND s.state {IS_OPEN})))
"""

_FIND = text(f"""
    SELECT b.job, b.root_uri, b.identity, {_HAS_PUBLISHED} AS has_published
      FROM gobblin.destination b WHERE b.job = :job
""")

_LIST = text(f"""
    SELECT b.job, b.root_uri, b.identity, {_HAS_PUBLISHED} AS has_published FROM gobblin.destination b ORDER BY b.job
""")

# The first binding stays: a second process reads it, and is refused if its own destination differs.
_BIND = text("""
    INSERT INTO gobblin.destination (job, root_uri, identity) VALUES (:job, :root_uri, :identity)
        ON CONFLICT (job) DO NOTHING
""")

# Compare-and-set. A destination with an identity and publications gets no other identity here: _REBIND does that.
_IDENTIFY = text(f"""
    UPDATE gobblin.destination b SET identity = :identity, root_uri = :root_uri
     WHERE b.job = :job AND b.identity IS NOT DISTINCT FROM :old
       AND (CAST(:old AS text) IS NULL OR NOT {_HAS_PUBLISHED})
""")

_LIST_ROOTS = text("""
    SELECT DISTINCT s.details ->> 'root_uri' AS root_uri
      FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND s.details ->> 'root_uri' IS NOT NULL
     ORDER BY 1
""")

# Locked after the leases, as everywhere; two moves of one job wait for each other here.
_LOCK = text("SELECT root_uri, identity FROM gobblin.destination WHERE job = :job FOR UPDATE")

# Read under the lock: a dataset that was registered meanwhile has a lease that this process does not hold.
_UNHELD = text("""
    SELECT count(*) FROM gobblin.dataset
     WHERE job = :job AND dataset_id <> ALL (CAST(:dataset_ids AS bigint[]))
""")

_UNFINISHED = text(f"""
    SELECT count(*) FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id)
     WHERE d.job = :job AND s.state {IS_UNFINISHED}
""")

_REBIND = text("""
    UPDATE gobblin.destination SET root_uri = :new_uri, identity = :identity, bound_at = clock_timestamp()
     WHERE job = :job
""")

# A segment keeps its digest and the paths at which it was published. Its readers get the roots from which and to which
# these paths have moved since.
_MOVE_SEQUENCES = text("""
    UPDATE gobblin.commit_sequence s
       SET details = s.details || jsonb_build_object(
               'root_uri', CAST(:new_uri AS text),
               'moved', jsonb_build_array(coalesce(s.details -> 'moved' ->> 0, :old_root), CAST(:new_root AS text)))
      FROM gobblin.dataset d
     WHERE d.dataset_id = s.dataset_id AND d.job = :job
       AND s.details ->> 'root_uri' = ANY (CAST(:old_uris AS text[]))
""")

_MOVE_ATTEMPTS = text("""
    UPDATE gobblin.attempt a SET staging_path = :new_root || substr(a.staging_path, length(:old_root) + 1)
      FROM gobblin.dataset d
     WHERE d.dataset_id = a.dataset_id AND d.job = :job AND a.cleaned_at IS NULL
       AND starts_with(a.staging_path, :old_root || '/')
""")


class PostgresDestinationStore:
    """``DestinationStore`` over one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def find(self, job: JobName) -> Binding | None:
        return transact(self._engine, "find destination", lambda c: find_binding(c, job))

    def list_all(self) -> Sequence[Binding]:
        return transact(self._engine, "list destinations", lambda c: [_binding_of(row) for row in c.execute(_LIST)])

    def bind(self, job: JobName, *, root_uri: str, identity: str) -> Binding:
        return self._change(_BIND, job, root_uri=root_uri, identity=identity)

    def identify(self, job: JobName, *, old: str | None, root_uri: str, identity: str) -> Binding:
        return self._change(_IDENTIFY, job, old=old, root_uri=root_uri, identity=identity)

    def _change(self, statement: Any, job: JobName, **arguments: str | None) -> Binding:
        def body(connection: Connection) -> Binding:
            connection.execute(statement, {"job": job, **arguments})
            return _require(connection, job)

        return transact(self._engine, "bind destination", body, committed=Failpoint.DESTINATION_BOUND)

    def list_roots(self, job: JobName) -> Sequence[str]:
        rows = transact(self._engine, "list roots", lambda c: c.execute(_LIST_ROOTS, {"job": job}).scalars().all())
        return list(rows)

    def move(self, move: Move, *, expected: Binding, fences: Mapping[DatasetId, int]) -> None:
        arguments = {
            "job": move.job,
            "old_uris": list(move.old_uris),
            "old_root": move.old_root,
            "new_uri": move.new_uri,
            "new_root": move.new_root,
            "identity": move.identity,
        }

        def body(connection: Connection) -> None:
            hold_fences(connection, sorted(fences.items()))
            found = connection.execute(_LOCK, {"job": move.job}).one_or_none()
            current = None if found is None else (found.root_uri, found.identity)
            if current == (move.new_uri, move.identity):
                return
            if current != (expected.root_uri, expected.identity):
                raise ConflictError(f"the destination of {move.job} was changed meanwhile: {current}", job=move.job)
            if connection.execute(_UNHELD, {"job": move.job, "dataset_ids": list(fences)}).scalar_one():
                raise ConflictError(f"a dataset of {move.job} was added meanwhile", hint="Do it again.", job=move.job)
            if connection.execute(_UNFINISHED, {"job": move.job}).scalar_one():
                raise unfinished(move.job)
            for statement in (_REBIND, _MOVE_SEQUENCES, _MOVE_ATTEMPTS):
                connection.execute(statement, arguments)

        transact(self._engine, "move destination", body, committed=Failpoint.DESTINATION_MOVED)


def find_binding(connection: Connection, job: JobName) -> Binding | None:
    row = connection.execute(_FIND, {"job": job}).one_or_none()
    return None if row is None else _binding_of(row)


def _require(connection: Connection, job: JobName) -> Binding:
    found = find_binding(connection, job)
    if found is None:
        raise CorruptionError(f"the destination of {job} is not in the log that just got it", job=job)
    return found


def _binding_of(row: Row[Any]) -> Binding:
    return Binding(JobName(row.job), row.root_uri, row.identity, row.has_published)
