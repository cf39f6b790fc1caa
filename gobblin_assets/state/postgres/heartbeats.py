"""``HeartbeatStore`` in Postgres, by the database's clock."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, Engine, text

from gobblin_assets.db.transactions import transact
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import (
    ExecutorHeartbeat,
    ExecutorPhase,
    HeardHeartbeat,
    heartbeat_from_json,
    heartbeat_to_json,
)
from gobblin_assets.state.postgres.log_drains import IS_DRAINING

KEPT_S: Final = 24 * 3_600.0
"""So long a process that beats no more is remembered; the last one of an executor stays."""

_TRIES: Final = 2
"""Of a heartbeat that is late another one comes anyway."""

_BEAT = text("""
    INSERT INTO gobblin.executor_heartbeat (executor, owner, body)
    VALUES (:executor, :owner, CAST(:body AS jsonb))
        ON CONFLICT (executor, owner) DO UPDATE SET body = excluded.body, beaten_at = clock_timestamp()
""")

_FORGET = text("""
    DELETE FROM gobblin.executor_heartbeat h
     WHERE h.beaten_at < clock_timestamp() - make_interval(secs => :kept_s)
       AND EXISTS (SELECT FROM gobblin.executor_heartbeat o
                    WHERE o.executor = h.executor AND o.beaten_at > h.beaten_at)
""")

# A clock that went back makes no heartbeat of the future.
_HEARD = text(f"""
    SELECT h.body, greatest(extract(epoch FROM clock_timestamp() - h.beaten_at), 0)::float8 AS heard_ago_s,
           i.waiting, i.working, d.is_draining
      FROM gobblin.executor_heartbeat h
     CROSS JOIN (SELECT {IS_DRAINING} AS is_draining) d
      LEFT JOIN LATERAL (
           SELECT count(*) FILTER (WHERE NOT t.is_taken) AS waiting, count(*) FILTER (WHERE t.is_taken) AS working
             FROM (SELECT EXISTS (SELECT FROM gobblin.ticket_claim c
                                   WHERE c.ticket_id = o.ticket_id AND c.ended_at IS NULL
                                     AND c.expires_at > clock_timestamp()) AS is_taken
                     FROM gobblin.job_ticket o
                    WHERE o.executor = h.executor AND o.ended_at IS NULL AND o.verb NOT IN ('PROBE', 'CANCEL')) t
           ) i ON true
     ORDER BY h.executor, h.beaten_at DESC, h.owner
""")

_log = logging.getLogger(__name__)


class PostgresHeartbeatStore:
    """``HeartbeatStore`` over the table ``executor_heartbeat``. The inbox is counted when somebody looks."""

    def __init__(self, engine: Engine, *, tries: int = _TRIES) -> None:
        self._engine = engine
        self._tries = tries
        self._told: set[str] = set()

    def beat(self, beat: ExecutorHeartbeat) -> None:
        row = {"executor": beat.executor, "owner": beat.owner, "body": json.dumps(heartbeat_to_json(beat))}

        def body(connection: Connection) -> None:
            connection.execute(_BEAT, row)
            connection.execute(_FORGET, {"kept_s": KEPT_S})

        transact(self._engine, "beat", body, tries=self._tries)

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        rows = transact(self._engine, "list heartbeats", lambda c: c.execute(_HEARD).all(), tries=self._tries)
        found = []
        for row in rows:
            try:
                beat = heartbeat_from_json(row.body)
            except RejectedError as error:
                self._tell_once(str(error))
                continue
            if row.is_draining and beat.phase is ExecutorPhase.WORKING:
                beat = replace(beat, phase=ExecutorPhase.DRAINING)
            found.append(HeardHeartbeat(beat, row.heard_ago_s, row.waiting, row.working))
        return found

    def _tell_once(self, said: str) -> None:
        if said not in self._told:
            self._told.add(said)
            _log.warning("a heartbeat can't be read: %s", said)
