"""``ScheduleStore`` in Postgres.

A fire is one statement in a transaction of its own. It locks the rows of its flows, in an order, and passes over what
others hold. Which executions are open is looked at of those alone that may overlap: an index refuses the insert of any
other one, and what follows is decided by whether the row came to be. Times are compared with ``now()``, which an index
can use.
"""

import datetime as dt
import json
import logging
import uuid
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import selection_from_json
from gobblin_assets.service.flow_config import FlowConfig, Overlap
from gobblin_assets.service.flow_store import PAUSED_MESSAGE, FlowState, Launch
from gobblin_assets.service.postgres.execution_moves import lock_execution
from gobblin_assets.service.postgres.flows import FLOW_COLUMNS, FLOWS_WITH_VERSIONS, flow_of, note_launched
from gobblin_assets.service.postgres.launches import DEADLINE, launch_execution
from gobblin_assets.service.postgres.slots import SCHEDULING_COLUMNS, slot_arguments
from gobblin_assets.service.schedule_store import LAUNCHER, PendingExecution
from gobblin_assets.service.slots import WAS_OPEN, DueFlow, PlannedFire
from gobblin_assets.service.statuses import ExecutionStatus

T = TypeVar("T")

_log = logging.getLogger(__name__)

OVERLAPS_MAX: Final = 20
"""So many executions of a flow may be open, if they may overlap at all."""

RESTART_FIRST_S: Final = 5.0
RESTART_S_MAX: Final = 600.0
"""How long a flow that always runs rests after its failures of the last hour: twice as long after each."""

_COUNTED_MAX: Final = 20
"""Its failures are counted among so many executions, the last ones."""

_RESUMED_S: Final = 10.0
"""Who resumes such a flow begins it. Behind this time, whoever looks does."""

_CHOSEN_SHARE: Final = 16
"""A node takes one of so many flows that wait longest, at random."""

_MISSING_MAX: Final = FlowConfig.model_fields["missing_max"].default

_DUE: Final = "f.due_at <= now() AND f.deleted_at IS NULL AND f.state <> 'PAUSED'"

# Some of those that wait longest: nodes that all take the same ones would plan for nothing.
_LIST_DUE = text(f"""
    WITH oldest AS MATERIALIZED (
        SELECT f.flow_id FROM gobblin_service.flow f
         WHERE {_DUE} AND (f.flow_id, f.version) NOT IN (
                   SELECT * FROM unnest(CAST(:flow_ids AS uuid[]), CAST(:versions AS bigint[])))
         ORDER BY f.due_at LIMIT :oldest),
    chosen AS MATERIALIZED (SELECT flow_id FROM oldest ORDER BY random() LIMIT :limit)
    SELECT f.flow_id, f.version, f.next_fire_at, f.paused_at, f.resumed_at, now() AS now, {SCHEDULING_COLUMNS}
      FROM {FLOWS_WITH_VERSIONS} WHERE f.flow_id IN (SELECT flow_id FROM chosen)
""")

_IS_OPEN: Final = """
    SELECT FROM gobblin_service.flow_execution o
     WHERE o.flow_id = f.flow_id AND o.ended_at IS NULL AND NOT o.is_adopted
"""

_INSERT_PENDING: Final = """
    INSERT INTO gobblin_service.flow_execution
           (request_id, flow_id, flow_version, status, asked_by, selection, fire_at, launch_at, may_overlap,
            start_by, finish_by)
"""

_DEADLINES_OF: Final = ", ".join(
    DEADLINE.format(since="clock_timestamp()", config="{config}", option=option)
    for option in ("start_deadline", "finish_deadline")
)

_SELECTION_OF: Final = "jsonb_build_object('begun_by', {at}, 'missing_max', {most})"

_FIRE = text(f"""
    WITH asked AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(CAST(:fires AS jsonb)) AS a
               (flow_id uuid, version bigint, fire_at timestamptz, next_at timestamptz, due_at timestamptz,
                if_open text, may_overlap boolean, replaces_waiting boolean, waiting_max int, missing_max int)),
    planned AS MATERIALIZED (
        SELECT *, row_number() OVER (PARTITION BY flow_id, run_by = at ORDER BY at) AS place
          FROM jsonb_to_recordset(CAST(:slots AS jsonb)) AS s
               (flow_id uuid, at timestamptz, until timestamptz, count int, state text, reason text,
                run_by timestamptz)),
    locked AS MATERIALIZED (
        SELECT f.flow_id FROM gobblin_service.flow f JOIN asked a USING (flow_id)
         WHERE f.version = a.version AND f.next_fire_at = a.fire_at AND {_DUE}
         ORDER BY f.flow_id FOR UPDATE OF f SKIP LOCKED),
    moved AS (
        UPDATE gobblin_service.flow f SET next_fire_at = a.next_at, due_at = a.due_at
          FROM locked l JOIN asked a USING (flow_id) WHERE f.flow_id = l.flow_id
        RETURNING f.flow_id, f.owner, a.version, a.if_open, a.may_overlap, a.replaces_waiting, a.waiting_max,
                  a.missing_max),
    begun AS (
        {_INSERT_PENDING}
        SELECT gen_random_uuid(), f.flow_id, f.version, 'PENDING', f.owner,
               {_SELECTION_OF.format(at="s.at", most="f.missing_max")}, s.at, now(), f.may_overlap,
               {_DEADLINES_OF.format(config="v.config")}
          FROM moved f JOIN planned s USING (flow_id)
          JOIN gobblin_service.flow_version v ON (v.flow_id, v.version) = (f.flow_id, f.version)
         WHERE s.run_by = s.at
           AND (f.replaces_waiting OR NOT EXISTS (SELECT FROM gobblin_service.flow_slot w
                                                   WHERE w.flow_id = f.flow_id AND w.state = 'WAITING'))
           AND (NOT f.may_overlap OR (SELECT count(*) FROM ({_IS_OPEN}) AS o) + s.place <= :overlaps_max)
           AND (f.may_overlap OR NOT EXISTS ({_IS_OPEN} AND o.may_overlap))
         ORDER BY s.at
            ON CONFLICT DO NOTHING
        RETURNING execution_id, flow_id, fire_at),
    replaced AS (
        UPDATE gobblin_service.flow_slot w
           SET state = CASE WHEN r.replaces_waiting THEN 'COALESCED' ELSE 'SKIPPED' END,
               reason = CASE WHEN r.replaces_waiting THEN 'a later slot took its place'
                             ELSE 'more slots waited than catch_up_max' END
          FROM (SELECT w.flow_id, w.slot_at, f.replaces_waiting, f.waiting_max,
                       row_number() OVER (PARTITION BY w.flow_id ORDER BY w.slot_at DESC) AS place
                  FROM gobblin_service.flow_slot w JOIN moved f USING (flow_id)
                 WHERE w.state = 'WAITING'
                   AND EXISTS (SELECT FROM planned s WHERE s.flow_id = w.flow_id AND s.run_by = s.at)
                   AND (f.if_open = 'WAITING' OR NOT f.replaces_waiting
                        OR EXISTS (SELECT FROM begun b WHERE b.flow_id = w.flow_id))) AS r
         WHERE w.flow_id = r.flow_id AND w.slot_at = r.slot_at AND w.state = 'WAITING'
           AND (r.replaces_waiting OR r.place > r.waiting_max)),
    stored AS (
        INSERT INTO gobblin_service.flow_slot (flow_id, slot_at, until_at, count, state, reason, execution_id)
        SELECT f.flow_id, s.at, s.until, s.count,
               CASE WHEN s.run_by IS NULL OR b.execution_id IS NOT NULL THEN s.state
                    WHEN f.if_open = 'WAITING' AND s.at <> s.run_by THEN s.state
                    ELSE f.if_open END,
               CASE WHEN s.run_by IS NULL OR b.execution_id IS NOT NULL OR s.at <> s.run_by AND f.if_open = 'WAITING'
                    THEN s.reason ELSE :was_open END,
               b.execution_id
          FROM moved f JOIN planned s USING (flow_id)
          LEFT JOIN begun b ON b.flow_id = s.flow_id AND b.fire_at = s.run_by
            ON CONFLICT DO NOTHING)
    SELECT (SELECT count(*) FROM moved) AS fired,
           CASE WHEN EXISTS (SELECT FROM begun) THEN pg_notify('{Channel.CATALOGS.value}', '{LAUNCHER}') END
""")

_OVERLAPS: Final = f"v.config ->> 'overlap' = '{Overlap.ALLOW.value}'"

_HAS_ROOM: Final = f"""
    CASE WHEN {_OVERLAPS} THEN (SELECT count(*) FROM ({_IS_OPEN}) AS o) < :overlaps_max ELSE NOT EXISTS ({_IS_OPEN}) END
"""

_WAITING: Final = f"""
    SELECT f.flow_id, now() AS now, v.config ? 'windows' AS has_windows, {SCHEDULING_COLUMNS}
      FROM {FLOWS_WITH_VERSIONS}
     WHERE f.flow_id IN (SELECT w.flow_id FROM gobblin_service.flow_slot w WHERE w.state = 'WAITING')
       AND f.state <> 'PAUSED' AND f.deleted_at IS NULL AND {_HAS_ROOM}
"""

_LIST_WAITING = text(f"{_WAITING} AND f.flow_id > :after ORDER BY f.flow_id LIMIT :limit")

_LOCK_WAITING = text(f"""
    {_WAITING} AND f.flow_id = ANY (CAST(:flow_ids AS uuid[])) ORDER BY f.flow_id FOR UPDATE OF f SKIP LOCKED
""")

# A statement behind the locks: what it sees of slots and executions, nobody changes meanwhile.
_BEGIN_WAITING = text(f"""
    WITH chosen AS (
        SELECT f.flow_id, f.version, f.owner, w.slot_at, v.config, coalesce({_OVERLAPS}, false) AS may_overlap
          FROM {FLOWS_WITH_VERSIONS}
          JOIN LATERAL (SELECT s.slot_at FROM gobblin_service.flow_slot s
                         WHERE s.flow_id = f.flow_id AND s.state = 'WAITING' ORDER BY s.slot_at LIMIT 1) w ON true
         WHERE f.flow_id = ANY (CAST(:flow_ids AS uuid[])) AND {_HAS_ROOM}),
    begun AS (
        {_INSERT_PENDING}
        SELECT gen_random_uuid(), flow_id, version, 'PENDING', owner,
               {_SELECTION_OF.format(at="slot_at", most="coalesce(CAST(config ->> 'missing_max' AS int), :most)")},
               slot_at, now(), may_overlap, {_DEADLINES_OF.format(config="config")}
          FROM chosen
            ON CONFLICT DO NOTHING
        RETURNING execution_id, flow_id, fire_at)
    UPDATE gobblin_service.flow_slot s SET state = 'RUN', reason = '', execution_id = b.execution_id
      FROM begun b WHERE s.flow_id = b.flow_id AND s.slot_at = b.fire_at
""")

# Of a flow and its last execution, ``l``. A worker that failed meanwhile has left its own message there.
_PAUSE_ENDED: Final = """
    (l.message = :paused OR l.status = 'FAILED' AND l.cancel_asked_at BETWEEN f.paused_at AND f.resumed_at)
"""

# What somebody cancelled begins with a version that was made behind that, and not by itself.
_BEGIN_CONTINUOUS = text(f"""
    WITH chosen AS MATERIALIZED (
        SELECT f.flow_id, f.version, f.owner, v.config FROM {FLOWS_WITH_VERSIONS}
          LEFT JOIN LATERAL (SELECT e.status, e.flow_version, e.message, e.ended_at, e.cancel_asked_at
                               FROM gobblin_service.flow_execution e
                              WHERE e.flow_id = f.flow_id AND NOT e.is_adopted
                              ORDER BY e.execution_id DESC LIMIT 1) l ON true
         WHERE f.is_continuous AND f.deleted_at IS NULL AND f.state = 'ACTIVE' AND NOT f.restarts
           AND NOT EXISTS ({_IS_OPEN})
           AND (l.cancel_asked_at IS NULL OR l.cancel_asked_at < v.made_at OR {_PAUSE_ENDED})
           AND CASE WHEN l.status IS NULL THEN true
                    WHEN l.status = 'FAILED' THEN
                         l.ended_at + make_interval(secs => least(CAST(:most_s AS float8), :first_s * power(2, (
                             SELECT count(*) - 1
                               FROM (SELECT p.status, p.ended_at FROM gobblin_service.flow_execution p
                                      WHERE p.flow_id = f.flow_id AND NOT p.is_adopted
                                      ORDER BY p.execution_id DESC LIMIT :counted) AS p
                              WHERE p.status = 'FAILED' AND p.ended_at > now() - interval '1 hour')))) <= now()
                    WHEN l.message = :paused THEN f.resumed_at < now() - make_interval(secs => :resumed_s)
                    ELSE l.flow_version <> f.version END
         ORDER BY f.flow_id LIMIT :limit FOR UPDATE OF f SKIP LOCKED),
    begun AS (
        {_INSERT_PENDING}
        SELECT gen_random_uuid(), flow_id, version, 'PENDING', owner, CAST('{{}}' AS jsonb), NULL, now(), false,
               {_DEADLINES_OF.format(config="config")}
          FROM chosen
            ON CONFLICT DO NOTHING
        RETURNING execution_id)
    SELECT count(*) FROM begun
""")

_AHEAD: Final = f"""
    SELECT j.executor, count(*) AS ahead FROM gobblin_service.job_execution j
     WHERE j.ended_at IS NULL AND j.status IN ({states(ExecutionStatus.COMPILED, ExecutionStatus.ORCHESTRATED)})
     GROUP BY j.executor
"""

_COUNT_AHEAD = text(_AHEAD)

# Those that were held come behind those that were not tried yet.
_TAKE_PENDING = text("""
    WITH oldest AS MATERIALIZED (
        SELECT p.execution_id FROM gobblin_service.flow_execution p
         WHERE p.launch_at <= now()
           AND p.waits_for <> ALL (CAST(:full AS text[]))
         ORDER BY p.launch_at, p.execution_id LIMIT :limit FOR UPDATE SKIP LOCKED)
    UPDATE gobblin_service.flow_execution e SET launch_at = now() + make_interval(secs => :hold_s)
      FROM oldest o WHERE e.execution_id = o.execution_id
    RETURNING e.execution_id
""")

_LIST_PENDING = text(f"""
    SELECT e.execution_id, e.request_id, e.message, e.selection, f.deleted_at,
           e.cancel_asked_at IS NOT NULL AS is_asked_to_end, {FLOW_COLUMNS}
      FROM gobblin_service.flow_execution e JOIN ({FLOWS_WITH_VERSIONS}) ON f.flow_id = e.flow_id
     WHERE e.execution_id = ANY (CAST(:execution_ids AS bigint[])) ORDER BY e.execution_id
""")

_LOCK_FLOW = text("""
    SELECT f.flow_id, f.version, f.state, f.deleted_at FROM gobblin_service.flow f
      JOIN gobblin_service.flow_execution e USING (flow_id)
     WHERE e.execution_id = :execution_id FOR UPDATE OF f
""")

_IS_PENDING = text("""
    SELECT launch_at IS NOT NULL AND cancel_asked_at IS NULL FROM gobblin_service.flow_execution
     WHERE execution_id = :execution_id
""")

# Of those that wait for one executor, the oldest stays the first.
_HOLD_PENDING = text("""
    UPDATE gobblin_service.flow_execution
       SET launch_at = CASE WHEN :waits_for <> '' THEN started_at ELSE now() + make_interval(secs => :wait_s) END,
           message = :message, waits_for = :waits_for
     WHERE execution_id = :execution_id AND launch_at IS NOT NULL AND cancel_asked_at IS NULL
""")

_END_PENDING = text("""
    UPDATE gobblin_service.flow_execution
       SET launch_at = NULL, message = CASE WHEN cancel_asked_at IS NULL THEN :message ELSE message END,
           status = CASE WHEN cancel_asked_at IS NULL THEN :status ELSE 'CANCELLED' END, ended_at = clock_timestamp()
     WHERE execution_id = :execution_id AND launch_at IS NOT NULL
""")

_WAKE_PENDING = text("""
    UPDATE gobblin_service.flow_execution SET launch_at = now(), waits_for = ''
     WHERE launch_at > now() OR waits_for <> '' AND launch_at IS NOT NULL
""")

_FORGET_SLOTS = text("""
    DELETE FROM gobblin_service.flow_slot
     WHERE state <> 'WAITING' AND accounted_at < now() - make_interval(secs => :kept_s)
""")


class PostgresScheduleStore:
    """``ScheduleStore`` over ``flow``, ``flow_slot`` and ``flow_execution``."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._single = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._unreadable: set[int] = set()

    def list_due(self, *, limit: int, without: Collection[tuple[uuid.UUID, int]] = ()) -> Sequence[DueFlow]:
        flow_ids, versions = [flow_id for flow_id, _version in without], [version for _flow_id, version in without]
        arguments = {
            "limit": limit,
            "oldest": _CHOSEN_SHARE * limit,
            "flow_ids": flow_ids,
            "versions": versions,
        }
        return [
            DueFlow(row.flow_id, row.version, row.next_fire_at, row.now, row.scheduling, row.paused_at, row.resumed_at)
            for row in self._do_one("list due flows", lambda c: c.execute(_LIST_DUE, arguments).all())
        ]

    def fire(self, fires: Sequence[PlannedFire]) -> int:
        arguments = {
            "fires": json.dumps([_fire_arguments(fire) for fire in fires], default=str),
            "slots": json.dumps(
                [
                    {"flow_id": fire.flow.flow_id, "run_by": slot.run_by, **slot_arguments(slot)}
                    for fire in fires
                    for slot in fire.slots
                ],
                default=str,
            ),
            "overlaps_max": OVERLAPS_MAX,
            "was_open": WAS_OPEN,
        }

        def body(connection: Connection) -> int:
            return int(connection.execute(_FIRE, arguments).one().fired)

        # A repetition finds that its flows are no longer as they were seen.
        return self._do_one("fire flows", body, Failpoint.FLOWS_FIRED)

    def begin_waiting(self, *, limit: int) -> int:
        def body(connection: Connection) -> int:
            room = {"overlaps_max": OVERLAPS_MAX}
            asked = {"flow_ids": _list_waiting(connection, limit), **room}
            # A window may have been put to a flow meanwhile.
            locked = connection.execute(_LOCK_WAITING, asked).all() if asked["flow_ids"] else ()
            flow_ids = [row.flow_id for row in locked if not _is_held_up(row)]
            if not flow_ids:
                return 0
            arguments = {"flow_ids": flow_ids, "most": _MISSING_MAX, **room}
            begun = connection.execute(_BEGIN_WAITING, arguments).rowcount
            notify(connection, Channel.CATALOGS, LAUNCHER)
            return begun

        return self._do("begin slots that wait", body)

    def begin_continuous(self, *, limit: int) -> int:
        arguments = {
            "most_s": RESTART_S_MAX,
            "first_s": RESTART_FIRST_S,
            "paused": PAUSED_MESSAGE,
            "resumed_s": _RESUMED_S,
            "counted": _COUNTED_MAX,
            "limit": limit,
        }

        def body(connection: Connection) -> int:
            return int(connection.execute(_BEGIN_CONTINUOUS, arguments).scalar_one())

        return self._do_one("begin flows that always run", body)

    def take_pending(self, *, limit: int, full: Collection[str], hold_s: float) -> Sequence[PendingExecution]:
        arguments = {"limit": limit, "full": list(full), "hold_s": hold_s}

        def take(connection: Connection) -> Sequence[int]:
            return connection.execute(_TAKE_PENDING, arguments).scalars().all()

        taken = self._do_one("take pending executions", take)
        if not taken:
            return ()
        wanted = {"execution_ids": list(taken)}
        rows = self._do_one("list pending executions", lambda c: c.execute(_LIST_PENDING, wanted).all())
        return [pending for row in rows if (pending := self._read_pending(row)) is not None]

    def _read_pending(self, row: Row[Any]) -> PendingExecution | None:
        """None: this process can't read it, and it is left to those that can. It is told once."""
        try:
            return PendingExecution(
                execution_id=row.execution_id,
                flow=flow_of(row),
                selection=selection_from_json(row.selection),
                request_id=row.request_id,
                message=row.message,
                is_asked_to_end=row.is_asked_to_end or row.deleted_at is not None,
            )
        except (ValueError, RejectedError):
            # What was found is not told: a config may hold what is secret.
            if row.execution_id not in self._unreadable:
                self._unreadable.add(row.execution_id)
                said = (
                    "the execution %d is not launched here: its flow %s is of another release, or was changed by hand"
                )
                _log.warning(said, row.execution_id, row.flow_id)
            return None

    def count_ahead(self) -> dict[str, int]:
        rows = self._do_one("count what executors have not begun", lambda c: c.execute(_COUNT_AHEAD).all())
        return {row.executor: row.ahead for row in rows}

    def launch_pending(self, execution_id: int, launch: Launch, *, if_version: str) -> bool:
        def body(connection: Connection) -> bool:
            flow = connection.execute(_LOCK_FLOW, {"execution_id": execution_id}).one()
            lock_execution(connection, execution_id)
            if not connection.execute(_IS_PENDING, {"execution_id": execution_id}).scalar():
                return False
            if str(flow.version) != if_version or flow.deleted_at is not None or flow.state == FlowState.PAUSED:
                return False
            launch_execution(connection, flow.flow_id, flow.version, execution_id, launch)
            note_launched(connection, flow, launch.pins)
            return True

        return self._do("launch a pending execution", body, Failpoint.PENDING_LAUNCHED)

    def hold_pending(self, execution_id: int, message: str, *, wait_s: float, waits_for: str = "") -> None:
        arguments = {"execution_id": execution_id, "message": message, "wait_s": wait_s, "waits_for": waits_for}
        self._do_one("hold an execution", lambda c: c.execute(_HOLD_PENDING, arguments).rowcount)

    def end_pending(self, execution_id: int, message: str, *, is_failed: bool) -> None:
        status = ExecutionStatus.FAILED if is_failed else ExecutionStatus.CANCELLED
        arguments = {"execution_id": execution_id, "message": message, "status": status.value}
        self._do_one("end a pending execution", lambda c: c.execute(_END_PENDING, arguments).rowcount)

    def wake_pending(self) -> int:
        return self._do_one("wake pending executions", lambda c: c.execute(_WAKE_PENDING).rowcount)

    def forget_slots(self, *, kept_days: float) -> int:
        arguments = {"kept_s": dt.timedelta(days=kept_days).total_seconds()}
        return self._do_one("forget slots", lambda c: c.execute(_FORGET_SLOTS, arguments).rowcount)

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed)

    def _do_one(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        """One statement, which is its own transaction."""
        return transact(self._single, name, body, committed=committed)


def _list_waiting(connection: Connection, limit: int) -> Sequence[uuid.UUID]:
    """Flows of which a slot that waits can begin, however many others are held up."""
    able: list[uuid.UUID] = []
    after = uuid.UUID(int=0)
    while len(able) < limit:
        page = {"after": after, "limit": limit, "overlaps_max": OVERLAPS_MAX}
        rows = connection.execute(_LIST_WAITING, page).all()
        able += [row.flow_id for row in rows if not _is_held_up(row)]
        if len(rows) < limit:
            break
        after = rows[-1].flow_id
    return able[:limit]


def _is_held_up(row: Row[Any]) -> bool:
    """A maintenance window is open. A node that can't read the windows leaves the flow to those that can."""
    if not row.has_windows:
        return False
    try:
        return FlowConfig.model_validate_json(row.scheduling).find_window_end(row.now) is not None
    except (ValueError, KeyError):
        return True


def _fire_arguments(fire: PlannedFire) -> dict[str, object]:
    return {
        "flow_id": fire.flow.flow_id,
        "version": fire.flow.version,
        "fire_at": fire.flow.fire_at,
        "next_at": fire.next_at,
        "due_at": fire.due_at,
        "if_open": fire.if_open.value,
        "may_overlap": fire.may_overlap,
        "replaces_waiting": fire.replaces_waiting,
        "waiting_max": fire.waiting_max,
        "missing_max": fire.missing_max,
    }
