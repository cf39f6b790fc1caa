"""``FlowStore`` in Postgres.

Whoever changes a flow or what it runs locks the flow's row first, then the execution's, then those of its jobs. A
change of the catalog takes its number last, since all other changes wait for that row until the commit.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.statement_texts import to_jsonb
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.errors import ConflictError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.service.access import EVERY_FLOW, FlowScope
from gobblin_assets.service.flow_config import FlowConfig
from gobblin_assets.service.flow_store import (
    PAUSED_MESSAGE,
    CatalogChanges,
    FlowCopy,
    FlowPage,
    FlowState,
    FlowVersion,
    FlowWrite,
    Launch,
    NamedJob,
    Owner,
    RequestKey,
    SpecNotFoundError,
    StaleVersionError,
    StoredFlow,
    no_flow,
)
from gobblin_assets.service.postgres.execution_moves import request_deletions, request_end
from gobblin_assets.service.postgres.execution_statuses import find_last, find_status, list_last, list_statuses
from gobblin_assets.service.postgres.launches import (
    binding_of,
    find_launched,
    is_open,
    make_execution,
    resume_jobs,
    runs_as_planned,
)
from gobblin_assets.service.postgres.scopes import IN_SCOPE, scope_arguments
from gobblin_assets.service.postgres.slots import end_schedule, list_slots, schedule_flow
from gobblin_assets.service.slots import FlowSlot
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import FlowStatus

T = TypeVar("T")

_READ_TRIES: Final = 2
"""A reader has a copy to fall back on, and does not wait for a server that is away."""

FLOW_CATALOG: Final = "flows"

NEXT_CHANGE = text("""
    INSERT INTO gobblin_service.catalog_change AS c (catalog, number) VALUES (:catalog, 1)
        ON CONFLICT (catalog) DO UPDATE SET number = c.number + 1, changed_at = clock_timestamp()
    RETURNING number
""")

CHANGE_NUMBER = text("SELECT number FROM gobblin_service.catalog_change WHERE catalog = :catalog")

FLOW_COLUMNS: Final = """
    f.flow_id, f.flow_group, f.flow_name, f.version, f.state, f.reasons, f.runs_when_able, f.restarts, f.generation,
    f.owner, f.owner_groups, f.change, f.created_at, f.updated_at, f.next_fire_at, CAST(v.config AS text) AS config,
    v.pins
"""

FLOWS_WITH_VERSIONS: Final = "gobblin_service.flow f JOIN gobblin_service.flow_version v USING (flow_id, version)"

_BY_KEY: Final = "f.flow_group = :flow_group AND f.flow_name = :flow_name AND f.deleted_at IS NULL"

_FIND = text(f"SELECT {FLOW_COLUMNS} FROM {FLOWS_WITH_VERSIONS} WHERE {_BY_KEY}")

_FIND_BY_ID = text(f"SELECT {FLOW_COLUMNS} FROM {FLOWS_WITH_VERSIONS} WHERE f.flow_id = :flow_id")

_LIST = text(f"""
    SELECT {FLOW_COLUMNS} FROM {FLOWS_WITH_VERSIONS}
     WHERE f.deleted_at IS NULL AND (f.flow_group, f.flow_name) > (:after_group, :after_name)
       AND (CAST(:flow_group AS text) IS NULL OR f.flow_group = :flow_group)
       AND (CAST(:search AS text) IS NULL
            OR f.flow_group ILIKE :search OR f.flow_name ILIKE :search OR v.config ->> 'description' ILIKE :search)
       AND (NOT :is_pending OR f.state = 'PENDING')
       AND {IN_SCOPE}
     ORDER BY f.flow_group, f.flow_name
     LIMIT :limit
""")

_PENDING = text(f"""
    SELECT {FLOW_COLUMNS} FROM {FLOWS_WITH_VERSIONS}
     WHERE f.state = 'PENDING' AND f.deleted_at IS NULL
       AND (f.created_at, f.flow_id) > (coalesce(:after_at, CAST('-infinity' AS timestamptz)), :after_id)
     ORDER BY f.created_at, f.flow_id
     LIMIT :limit
""")

_CHANGED = text(f"""
    SELECT {FLOW_COLUMNS}, f.deleted_at FROM {FLOWS_WITH_VERSIONS}
     WHERE f.change > :after ORDER BY f.change LIMIT :limit
""")

_LOCK_REQUEST = text("SELECT pg_advisory_xact_lock(hashtextextended(:request_key, 7))")

_REQUEST = text("SELECT digest, flow_id FROM gobblin_service.request WHERE request_key = :request_key")

_KEEP_REQUEST = text("""
    INSERT INTO gobblin_service.request (request_key, digest, flow_id) VALUES (:request_key, :digest, :flow_id)
""")

_INSERT = text("""
    INSERT INTO gobblin_service.flow
           (flow_id, flow_group, flow_name, version, state, reasons, runs_when_able, owner, owner_groups, change)
    VALUES (:flow_id, :flow_group, :flow_name, 1, :state, CAST(:reasons AS jsonb), :runs_when_able, :owner,
            CAST(:owner_groups AS jsonb), 0)
        ON CONFLICT (flow_group, flow_name) WHERE deleted_at IS NULL DO NOTHING
""")

_LOCK = text("""
    SELECT f.flow_id, f.version, f.state, f.generation, f.restarts FROM gobblin_service.flow f
     WHERE f.flow_id = :flow_id AND f.deleted_at IS NULL FOR UPDATE
""")

_LOCK_BY_KEY = text(f"""
    SELECT f.flow_id, f.version, f.state, f.generation, f.restarts FROM gobblin_service.flow f
     WHERE {_BY_KEY} FOR UPDATE
""")

_INSERT_VERSION = text("""
    INSERT INTO gobblin_service.flow_version (flow_id, version, request_id, config, made_by, pins)
    VALUES (:flow_id, :version, :request_id, CAST(:config AS jsonb), :made_by, CAST(:pins AS jsonb))
""")

_FIND_VERSION = text("SELECT flow_id FROM gobblin_service.flow_version WHERE request_id = :request_id")

_UPDATE = text("""
    UPDATE gobblin_service.flow
       SET version = version + 1, state = CASE state WHEN 'PAUSED' THEN state ELSE :state END,
           reasons = CAST(:reasons AS jsonb), runs_when_able = :runs_when_able, owner = :owner,
           owner_groups = CAST(:owner_groups AS jsonb), updated_at = clock_timestamp()
     WHERE flow_id = :flow_id
    RETURNING version
""")

_SET_STATE = text("""
    UPDATE gobblin_service.flow
       SET state = :state, reasons = CAST(:reasons AS jsonb), runs_when_able = runs_when_able AND :state = 'PENDING',
           updated_at = clock_timestamp()
     WHERE flow_id = :flow_id
""")

_SET_PAUSED = text("""
    UPDATE gobblin_service.flow
       SET state = CASE WHEN :is_paused THEN 'PAUSED' WHEN reasons = '[]' THEN 'ACTIVE' ELSE 'PENDING' END,
           paused_at = CASE WHEN :is_paused THEN now() ELSE paused_at END,
           resumed_at = CASE WHEN :is_paused THEN NULL ELSE now() END,
           updated_at = clock_timestamp()
     WHERE flow_id = :flow_id AND (state = 'PAUSED') <> :is_paused
""")

# What was fired before the pause is launched now.
_WAKE_PENDING = text("""
    UPDATE gobblin_service.flow_execution SET launch_at = now() WHERE flow_id = :flow_id AND launch_at IS NOT NULL
""")

_DELETE = text("UPDATE gobblin_service.flow SET deleted_at = clock_timestamp() WHERE flow_id = :flow_id")

_NUMBER = text("UPDATE gobblin_service.flow SET change = :change WHERE flow_id = :flow_id")

_SET_GENERATION = text("UPDATE gobblin_service.flow SET generation = :generation WHERE flow_id = :flow_id")

_SET_RESTARTS = text("UPDATE gobblin_service.flow SET restarts = :restarts WHERE flow_id = :flow_id")

# As everywhere: the flow first, then its execution.
_LOCK_OF_EXECUTION = text("""
    SELECT FROM gobblin_service.flow f
     WHERE f.flow_id = (SELECT e.flow_id FROM gobblin_service.flow_execution e WHERE e.execution_id = :execution_id)
       FOR UPDATE
""")

# Of the newest execution alone: the end of an older one says nothing of the workers of now.
_CANCEL_RESTART = text("""
    UPDATE gobblin_service.flow f SET restarts = false
      FROM gobblin_service.flow_execution e
     WHERE e.execution_id = :execution_id AND f.flow_id = e.flow_id AND f.restarts
       AND NOT EXISTS (SELECT FROM gobblin_service.flow_execution o
                        WHERE o.flow_id = e.flow_id AND o.execution_id > e.execution_id AND NOT o.is_adopted)
""")

_RESTARTING = text(f"""
    SELECT {FLOW_COLUMNS} FROM {FLOWS_WITH_VERSIONS}
     WHERE f.restarts AND f.state = 'ACTIVE' AND f.deleted_at IS NULL
       AND NOT EXISTS (SELECT FROM gobblin_service.flow_execution e
                        WHERE e.flow_id = f.flow_id AND e.ended_at IS NULL AND NOT e.is_adopted)
       AND (f.created_at, f.flow_id) > (coalesce(:after_at, CAST('-infinity' AS timestamptz)), :after_id)
     ORDER BY f.created_at, f.flow_id LIMIT :limit
""")

# What is pinned already stays as it is.
_ADD_PINS = text("""
    UPDATE gobblin_service.flow_version SET pins = CAST(:pins AS jsonb) || pins
     WHERE flow_id = :flow_id AND version = :version AND CAST(:pins AS jsonb) || pins <> pins
""")

_FORGET_PINS = text("""
    UPDATE gobblin_service.flow_version SET pins = '{}' WHERE flow_id = :flow_id AND version = :version
""")

_VERSIONS = text(f"""
    SELECT v.version, CAST(v.config AS text) AS config, v.pins, v.made_by, v.made_at
      FROM gobblin_service.flow f JOIN gobblin_service.flow_version v USING (flow_id)
     WHERE {_BY_KEY} ORDER BY v.version DESC
""")

_JOBS = text("""
    SELECT j.node, j.job_name, j.log_id, j.template_uri, j.source_node, j.source_place, j.root,
           j.retired_at IS NOT NULL AS is_retired
      FROM gobblin_service.flow_job j JOIN gobblin_service.flow f USING (flow_id, generation)
     WHERE j.flow_id = :flow_id ORDER BY j.node
""")

_COUNT_WORKERS = text("""
    SELECT count(*) FROM gobblin_service.flow_execution x JOIN gobblin_service.job_execution j USING (execution_id)
     WHERE x.ended_at IS NULL AND x.flow_id <> :without
       AND j.ended_at IS NULL AND j.executor = :executor AND j.ticket ->> 'shape' = 'worker'
""")

_JOB_LOG = text("SELECT log_id FROM gobblin_service.flow_job WHERE job_name = :job_name")

_OPEN = text("""
    SELECT execution_id FROM gobblin_service.flow_execution WHERE flow_id = :flow_id AND ended_at IS NULL
""")

_OPEN_STARTED = text("""
    SELECT execution_id FROM gobblin_service.flow_execution
     WHERE flow_id = :flow_id AND ended_at IS NULL AND NOT is_adopted
""")

_OPEN_WITH_WORKERS = text("""
    SELECT e.execution_id FROM gobblin_service.flow_execution e
     WHERE e.flow_id = :flow_id AND e.ended_at IS NULL
       AND EXISTS (SELECT FROM gobblin_service.job_execution j
                    WHERE j.execution_id = e.execution_id AND j.ticket ->> 'shape' = 'worker')
""")


class PostgresFlowStore:
    """``FlowStore`` over the tables of the service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Each statement sees what was committed before it, as in a transaction of READ COMMITTED, and needs no BEGIN.
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    def create(self, flow_id: uuid.UUID, write: FlowWrite, request: RequestKey | None) -> StoredFlow:
        key = FlowKey(write.config.flow_group, write.config.flow_name)

        def body(connection: Connection) -> StoredFlow:
            if (known := _answer_again(connection, request)) is not None:
                return known
            if not connection.execute(_INSERT, _flow_arguments(flow_id, write)).rowcount:
                found = _find(connection, key)
                if found is None or found.flow_id != flow_id:
                    raise ConflictError(
                        f"there is a flow {key.name!a} in the group {key.group!a}",
                        hint="Choose another name, or change that flow.",
                        uri=key.uri,
                    )
                return found
            connection.execute(_INSERT_VERSION, _version_arguments(flow_id, 1, write))
            schedule_flow(connection, flow_id, 1, write.config)
            if write.launch is not None:
                make_execution(connection, flow_id, 1, write.launch)
            if request is not None:
                connection.execute(
                    _KEEP_REQUEST, {"request_key": request.key, "digest": request.digest, "flow_id": flow_id}
                )
            return _changed(connection, flow_id)

        return self._write("create a flow", body)

    def change(self, flow_id: uuid.UUID, write: FlowWrite, *, if_version: str) -> StoredFlow:
        key = FlowKey(write.config.flow_group, write.config.flow_name)

        def body(connection: Connection) -> StoredFlow:
            locked = _lock(connection, key, flow_id)
            if connection.execute(_FIND_VERSION, {"request_id": write.request_id}).scalar() is not None:
                return _get_by_id(connection, flow_id)
            _require_version(key, locked, if_version)
            version = connection.execute(_UPDATE, _flow_arguments(flow_id, write)).scalar_one()
            connection.execute(_INSERT_VERSION, _version_arguments(flow_id, version, write))
            schedule_flow(connection, flow_id, locked.version, write.config)
            if locked.state != FlowState.PAUSED and _ends_workers(connection, flow_id, version, write):
                return _changed(connection, flow_id)
            if write.launch is not None:
                _require_able(key, locked)
                make_execution(connection, flow_id, version, write.launch)
            return _changed(connection, flow_id)

        return self._write("change a flow", body)

    def delete(self, key: FlowKey, *, if_version: str | None = None) -> StoredFlow | None:
        deleted: list[StoredFlow] = []

        def body(connection: Connection) -> StoredFlow | None:
            locked = connection.execute(_LOCK_BY_KEY, _key_arguments(key)).one_or_none()
            if locked is None:
                # A repetition finds its own work done.
                return deleted[0] if deleted else None
            if if_version is not None:
                _require_version(key, locked, if_version)
            for execution_id in connection.execute(_OPEN, {"flow_id": locked.flow_id}).scalars().all():
                request_end(connection, execution_id, "the flow was deleted")
            end_schedule(connection, locked.flow_id, locked.version)
            request_deletions(connection, locked.flow_id)
            connection.execute(_DELETE, {"flow_id": locked.flow_id})
            deleted[:] = [_changed(connection, locked.flow_id)]
            return deleted[0]

        return self._write("delete a flow", body)

    def find(self, key: FlowKey) -> StoredFlow | None:
        return self._read("find a flow", lambda c: _find(c, key))

    def list_flows(
        self,
        *,
        group: str | None,
        search: str | None,
        after: FlowKey | None,
        limit: int,
        scope: FlowScope = EVERY_FLOW,
        is_pending: bool = False,
    ) -> FlowPage:
        arguments = {
            "flow_group": group,
            "search": None if not search else f"%{_escape_like(search)}%",
            "after_group": "" if after is None else after.group,
            "after_name": "" if after is None else after.name,
            "limit": limit + 1,
            "is_pending": is_pending,
            **scope_arguments(scope),
        }
        rows = self._read("list flows", lambda c: c.execute(_LIST, arguments).all())
        flows = tuple(flow_of(row) for row in rows[:limit])
        return FlowPage(flows, flows[-1].spec.key if len(rows) > limit else None)

    def list_pending(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        arguments = _page_arguments(after, limit)
        return [
            flow_of(row) for row in self._read("list pending flows", lambda c: c.execute(_PENDING, arguments).all())
        ]

    def activate(self, flow_id: uuid.UUID, *, if_version: str, launch: Launch | None, pins: Mapping[str, str]) -> bool:
        def body(connection: Connection) -> bool:
            locked = connection.execute(_LOCK, {"flow_id": flow_id}).one_or_none()
            if locked is None or locked.state != FlowState.PENDING or str(locked.version) != if_version:
                return False
            _set_state(connection, flow_id, FlowState.ACTIVE, ())
            _add_pins(connection, flow_id, locked.version, pins)
            open_id = connection.execute(_OPEN_WITH_WORKERS, {"flow_id": flow_id}).scalar()
            if open_id is not None:
                _restart(connection, flow_id, open_id, locked.version)
            elif launch is not None and connection.execute(_OPEN_STARTED, {"flow_id": flow_id}).scalar() is None:
                # One that is open was fired, and waits for its launch.
                make_execution(connection, flow_id, locked.version, launch)
            _changed(connection, flow_id)
            return True

        return self._write("activate a flow", body)

    def set_reasons(self, flow_id: uuid.UUID, reasons: Sequence[str], *, if_version: str) -> None:
        def body(connection: Connection) -> None:
            locked = connection.execute(_LOCK, {"flow_id": flow_id}).one_or_none()
            if locked is not None and locked.state != FlowState.PAUSED and str(locked.version) == if_version:
                _set_state(connection, flow_id, FlowState.PENDING, reasons)
                _changed(connection, flow_id)

        self._write("say why a flow is pending", body)

    def set_paused(self, key: FlowKey, *, is_paused: bool) -> StoredFlow:
        def body(connection: Connection) -> StoredFlow:
            locked = _lock(connection, key)
            execution_id = connection.execute(_OPEN_WITH_WORKERS, {"flow_id": locked.flow_id}).scalar()
            if is_paused and execution_id is not None:
                request_end(connection, execution_id, PAUSED_MESSAGE)
            if connection.execute(_SET_PAUSED, {"flow_id": locked.flow_id, "is_paused": is_paused}).rowcount:
                if not is_paused:
                    connection.execute(_WAKE_PENDING, {"flow_id": locked.flow_id})
                return _changed(connection, locked.flow_id)
            return _get_by_id(connection, locked.flow_id)

        return self._write("pause a flow", body)

    def list_versions(self, key: FlowKey) -> Sequence[FlowVersion]:
        rows = self._read("list versions", lambda c: c.execute(_VERSIONS, _key_arguments(key)).all())
        if not rows:
            raise no_flow(key)
        return [
            FlowVersion(
                str(row.version), FlowConfig.model_validate_json(row.config), row.pins, row.made_by, row.made_at
            )
            for row in rows
        ]

    def list_slots(self, flow_id: uuid.UUID, *, limit: int) -> Sequence[FlowSlot]:
        return self._read("list slots", lambda c: list_slots(c, flow_id, limit))

    def list_jobs(self, flow_id: uuid.UUID) -> Sequence[NamedJob]:
        rows = self._read("list jobs", lambda c: c.execute(_JOBS, {"flow_id": flow_id}).all())
        return [NamedJob(row.node, row.job_name, binding_of(row), row.is_retired) for row in rows]

    def count_workers(self, executor: str, *, without: uuid.UUID) -> int:
        asked = {"executor": executor, "without": without}
        return int(self._read("count workers", lambda c: c.execute(_COUNT_WORKERS, asked).scalar_one()))

    def find_job_log(self, job_name: str) -> LogId | None:
        found = self._read("find a job's log", lambda c: c.execute(_JOB_LOG, {"job_name": job_name}).scalar())
        return None if found is None else LogId(found)

    def replan(self, flow_id: uuid.UUID, *, generation: int) -> None:
        def body(connection: Connection) -> None:
            locked = connection.execute(_LOCK, {"flow_id": flow_id}).one_or_none()
            if locked is None:
                raise ConflictError("the flow was deleted meanwhile", hint="Look for it in the list of flows.")
            if locked.generation == generation:
                return
            if locked.generation != generation - 1:
                raise ConflictError("the flow was replanned meanwhile", hint="Look at its jobs before the next replan.")
            if (execution_id := connection.execute(_OPEN, {"flow_id": flow_id}).scalar()) is not None:
                raise is_open(execution_id)
            connection.execute(_SET_GENERATION, {"flow_id": flow_id, "generation": generation})
            connection.execute(_FORGET_PINS, {"flow_id": flow_id, "version": locked.version})
            # The names of before are used no more, and what sources keep for their workers neither.
            request_deletions(connection, flow_id)
            _changed(connection, flow_id)

        self._write("replan a flow", body)

    def list_restarting(self, *, after: StoredFlow | None, limit: int) -> Sequence[StoredFlow]:
        arguments = _page_arguments(after, limit)
        rows = self._read("list flows that restart", lambda c: c.execute(_RESTARTING, arguments).all())
        return [flow_of(row) for row in rows]

    def launch(self, flow_id: uuid.UUID, launch: Launch, *, if_version: str) -> int:
        def body(connection: Connection) -> int:
            locked = connection.execute(_LOCK, {"flow_id": flow_id}).one_or_none()
            if (launched := find_launched(connection, launch.request_id)) is not None:
                return launched
            if locked is None:
                raise ConflictError("the flow was deleted meanwhile", hint="Look for it in the list of flows.")
            if launch.is_restart and not locked.restarts:
                raise ConflictError("the flow was started again meanwhile", hint="Look at its executions.")
            if str(locked.version) != if_version or locked.state == FlowState.PAUSED:
                raise ConflictError("the flow was changed meanwhile", hint="Look at it, and run it again.")
            execution_id = make_execution(connection, flow_id, locked.version, launch)
            note_launched(connection, locked, launch.pins)
            return execution_id

        return self._write("launch a flow", body)

    def resume_execution(self, key: FlowKey, execution_id: int, launch: Launch, *, if_version: str) -> FlowStatus:
        def body(connection: Connection) -> FlowStatus:
            locked = _lock(connection, key)
            found = _get_execution(connection, key, execution_id)
            if str(locked.version) != if_version or locked.state == FlowState.PAUSED or locked.restarts:
                raise ConflictError("the flow was changed meanwhile", hint="Look at it, and run it again.")
            resume_jobs(connection, locked.flow_id, locked.version, execution_id, launch)
            return find_status(connection, execution_id) or found

        return self._write("resume an execution", body)

    def cancel(self, key: FlowKey, execution_id: int) -> FlowStatus:
        def body(connection: Connection) -> FlowStatus:
            found = _get_execution(connection, key, execution_id)
            connection.execute(_LOCK_OF_EXECUTION, {"execution_id": execution_id})
            request_end(connection, execution_id, "somebody asked for its end")
            # Also of workers that end for a new version: whoever asks for an end wants none to begin by itself.
            connection.execute(_CANCEL_RESTART, {"execution_id": execution_id})
            return find_status(connection, execution_id) or found

        return self._write("cancel an execution", body)

    def find_status(self, key: FlowKey) -> FlowStatus | None:
        return self._read("find a status", lambda c: find_last(c, key))

    def list_last_statuses(self, flow_ids: Sequence[uuid.UUID]) -> Sequence[FlowStatus]:
        return self._read("list last statuses", lambda c: list_last(c, flow_ids))

    def list_executions(self, key: FlowKey, *, after: int | None, limit: int) -> Sequence[FlowStatus]:
        return self._read("list executions", lambda c: list_statuses(c, key, after=after, limit=limit))

    def find_execution(self, execution_id: int) -> FlowStatus | None:
        return self._read("find an execution", lambda c: find_status(c, execution_id))

    def read_changes(self, after: int, *, limit: int) -> CatalogChanges:
        def body(connection: Connection) -> tuple[int, Sequence[Row[Any]]]:
            # The number first: what commits behind it is read once more by the next look, and not lost.
            number = connection.execute(CHANGE_NUMBER, {"catalog": FLOW_CATALOG}).scalar() or 0
            return number, connection.execute(_CHANGED, {"after": after, "limit": limit}).all()

        number, rows = self._read("read changed flows", body)
        # Values are made behind the transaction, which may not be idle for long.
        return CatalogChanges(
            number=number if len(rows) < limit else rows[-1].change,
            flows=tuple(_copy_of(row) for row in rows if row.deleted_at is None),
            gone=tuple((FlowKey(row.flow_group, row.flow_name), row.flow_id) for row in rows if row.deleted_at),
            is_all=len(rows) < limit,
        )

    def find_change_number(self) -> int:
        def body(connection: Connection) -> int:
            return connection.execute(CHANGE_NUMBER, {"catalog": FLOW_CATALOG}).scalar() or 0

        return self._read("look for changes", body)

    def _read(self, name: str, body: Callable[[Connection], T]) -> T:
        return transact(self._reading, name, body, tries=_READ_TRIES)

    def _write(self, name: str, body: Callable[[Connection], T]) -> T:
        return transact(self._engine, name, body, committed=Failpoint.FLOW_STORED, tries=TRIES_MAX)


def _answer_again(connection: Connection, request: RequestKey | None) -> StoredFlow | None:
    if request is None:
        return None
    # Two requests of one key at once: the second one waits for the answer of the first.
    connection.execute(_LOCK_REQUEST, {"request_key": request.key})
    found = connection.execute(_REQUEST, {"request_key": request.key}).one_or_none()
    if found is None:
        return None
    if found.digest != request.digest:
        raise ConflictError(
            "the key of this request belongs to another request", hint="Make a new key for each new request."
        )
    return _get_by_id(connection, found.flow_id)


def _changed(connection: Connection, flow_id: uuid.UUID) -> StoredFlow:
    """Number the change, as the last write of its transaction, and read what the flow is now."""
    change = connection.execute(NEXT_CHANGE, {"catalog": FLOW_CATALOG}).scalar_one()
    connection.execute(_NUMBER, {"flow_id": flow_id, "change": change})
    notify(connection, Channel.CATALOGS, FLOW_CATALOG)
    return _get_by_id(connection, flow_id)


def _get_execution(connection: Connection, key: FlowKey, execution_id: int) -> FlowStatus:
    found = find_status(connection, execution_id)
    if found is None or found.flow != key:
        raise SpecNotFoundError(
            f"the flow {key.name!a} has no execution {execution_id}",
            field="execution",
            hint="Look at the flow's executions.",
        )
    return found


def _find(connection: Connection, key: FlowKey) -> StoredFlow | None:
    row = connection.execute(_FIND, _key_arguments(key)).one_or_none()
    return None if row is None else flow_of(row)


def _get_by_id(connection: Connection, flow_id: uuid.UUID) -> StoredFlow:
    return flow_of(connection.execute(_FIND_BY_ID, {"flow_id": flow_id}).one())


def _lock(connection: Connection, key: FlowKey, flow_id: uuid.UUID | None = None) -> Row[Any]:
    locked = connection.execute(_LOCK_BY_KEY, _key_arguments(key)).one_or_none()
    if locked is None or flow_id not in (None, locked.flow_id):
        raise no_flow(key)
    return locked


def _require_version(key: FlowKey, locked: Row[Any], if_version: str) -> None:
    if str(locked.version) != if_version:
        raise StaleVersionError(
            f"the flow {key.name!a} is at version {locked.version}, not {if_version}",
            hint="Somebody changed it: read it, and change what is there now.",
            version=str(locked.version),
            if_version=if_version,
        )


def _require_able(key: FlowKey, locked: Row[Any]) -> None:
    if locked.state == FlowState.PAUSED:
        raise ConflictError(f"the flow {key.name!a} is paused", hint="Resume it first, or don't ask for a run.")


def _ends_workers(connection: Connection, flow_id: uuid.UUID, version: int, write: FlowWrite) -> bool:
    """Whether workers run otherwise than the version says: then their end is asked for, and the flow restarts.

    A version that no executor can run leaves them at work until one can.
    """
    open_id = connection.execute(_OPEN_WITH_WORKERS, {"flow_id": flow_id}).scalar()
    if open_id is None or write.reasons or runs_as_planned(connection, open_id, write.planned):
        return False
    _restart(connection, flow_id, open_id, version)
    return True


def _restart(connection: Connection, flow_id: uuid.UUID, execution_id: int, version: int) -> None:
    """Who asked for the end before is heard: an earlier version wants a start, and who cancelled wants none."""
    if request_end(connection, execution_id, f"version {version} takes its place"):
        connection.execute(_SET_RESTARTS, {"flow_id": flow_id, "restarts": True})


def _set_state(connection: Connection, flow_id: uuid.UUID, state: FlowState, reasons: Sequence[str]) -> None:
    arguments = {"flow_id": flow_id, "state": state.value, "reasons": to_jsonb(list(reasons))}
    connection.execute(_SET_STATE, arguments)


def _add_pins(connection: Connection, flow_id: uuid.UUID, version: int, pins: Mapping[str, str]) -> bool:
    arguments = {"flow_id": flow_id, "version": version, "pins": to_jsonb(dict(pins))}
    return bool(pins) and connection.execute(_ADD_PINS, arguments).rowcount == 1


def note_launched(connection: Connection, locked: Row[Any], pins: Mapping[str, str]) -> None:
    """A flow that a launch has compiled is ACTIVE, and has these pins."""
    is_changed = _add_pins(connection, locked.flow_id, locked.version, pins)
    if locked.state == FlowState.PENDING:
        _set_state(connection, locked.flow_id, FlowState.ACTIVE, ())
        is_changed = True
    if is_changed:
        _changed(connection, locked.flow_id)


def _page_arguments(after: StoredFlow | None, limit: int) -> dict[str, object]:
    return {
        "after_at": None if after is None else after.created_at,
        "after_id": uuid.UUID(int=0) if after is None else after.flow_id,
        "limit": limit,
    }


def _key_arguments(key: FlowKey) -> dict[str, object]:
    return {"flow_group": key.group, "flow_name": key.name}


def _flow_arguments(flow_id: uuid.UUID, write: FlowWrite) -> dict[str, object]:
    return {
        "flow_id": flow_id,
        "flow_group": write.config.flow_group,
        "flow_name": write.config.flow_name,
        "state": (FlowState.PENDING if write.reasons else FlowState.ACTIVE).value,
        "reasons": to_jsonb(list(write.reasons)),
        "runs_when_able": write.runs_when_able,
        "owner": write.owner.name,
        "owner_groups": to_jsonb(sorted(write.owner.groups)),
    }


def _version_arguments(flow_id: uuid.UUID, version: int, write: FlowWrite) -> dict[str, object]:
    return {
        "flow_id": flow_id,
        "version": version,
        "request_id": write.request_id,
        "config": to_jsonb(write.config.model_dump(mode="json")),
        "made_by": write.owner.name,
        "pins": to_jsonb(dict(write.pins)),
    }


def flow_of(row: Row[Any]) -> StoredFlow:
    return _copy_of(row).load()


def _copy_of(row: Row[Any]) -> FlowCopy:
    return FlowCopy(
        flow_id=row.flow_id,
        key=FlowKey(row.flow_group, row.flow_name),
        version=str(row.version),
        config=row.config,
        pins=row.pins,
        state=FlowState(row.state),
        reasons=tuple(row.reasons),
        owner=Owner(row.owner, frozenset(row.owner_groups)),
        created_at=row.created_at,
        updated_at=row.updated_at,
        change=row.change,
        generation=row.generation,
        runs_when_able=row.runs_when_able,
        restarts=row.restarts,
        next_fire_at=row.next_fire_at,
    )


def _escape_like(text_: str) -> str:
    return text_.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
