"""``TicketStore`` in Postgres.

Whoever changes a ticket, its claims or its reports locks the ticket's row first. So reports get their numbers in the
order in which they are committed, and a reader that goes on behind the last one that it saw misses none.
"""

import datetime as dt
import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.db.notices import Channel, notify
from gobblin_assets.db.schema import find_head
from gobblin_assets.db.table_metadata import states
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RejectedError, RetryableError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.job_ticket import (
    JobTicket,
    LogId,
    SentTicket,
    TicketId,
    TicketShape,
    TicketVerb,
    sent_ticket_from_json,
    sent_ticket_to_json,
)
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.state.postgres import waiting_tickets
from gobblin_assets.state.postgres.log_drains import IS_DRAINING, require_drain
from gobblin_assets.state.postgres.ticket_jobs import list_last_tickets, load_ticket_jobs
from gobblin_assets.state.postgres.ticket_reports import ReportTables
from gobblin_assets.state.tickets import (
    LONG_LIFE_S,
    PASSING,
    PROBE_KEPT_S,
    PROBE_LIFE_S,
    PROBES_OPEN_MAX,
    AttemptEnd,
    Claim,
    FoundProbe,
    HeldClaim,
    LastTicket,
    OpenTicket,
    TicketOutput,
    TicketReport,
    TicketReportKind,
    WaitingTicket,
    find_attempts_max,
)

T = TypeVar("T")

_PAUSE_S: Final = 0.5
_PAUSE_S_MAX: Final = 30.0
"""After the first attempt that died, the next comes twice as much later; doubled by each further one."""

_MAKE_LOG_ID = text("INSERT INTO gobblin.log_identity (log_id) VALUES (:log_id) ON CONFLICT (is_only) DO NOTHING")

_LOG_ID = text("SELECT log_id FROM gobblin.log_identity")

_SEND = text("""
    INSERT INTO gobblin.job_ticket (ticket_id, executor, verb, job, shape, cancels, digest, body, own_number)
    VALUES (:ticket_id, :executor, :verb, :job, :shape, :cancels, :digest, CAST(:body AS json),
            CASE WHEN :is_own THEN 1 + coalesce((SELECT max(own_number) FROM gobblin.job_ticket), 0) END)
        ON CONFLICT (ticket_id) DO NOTHING
""")

# Held until the commit: who reads up to a number has seen all numbers before it.
_LOCK_NUMBERS = text("SELECT pg_advisory_xact_lock(hashtextextended('gobblin.job_ticket own_number', 0))")

_DIGEST = text("SELECT digest FROM gobblin.job_ticket WHERE ticket_id = :ticket_id")

_IS_LATE: Final = f"t.sent_at <= clock_timestamp() - make_interval(secs => {PROBE_LIFE_S})"

# Of ``t``, a ticket: its attempts as ``OpenTicket`` counts them.
COUNTED_ATTEMPTS: Final = f"""
    (SELECT count(*) + (t.verb = 'PROBE' AND {_IS_LATE})::int FROM gobblin.ticket_claim c
      WHERE c.ticket_id = t.ticket_id AND t.verb <> 'DELETE'
        AND (c.ended_as IS DISTINCT FROM 'DRAINED' OR t.verb = 'PROBE')
        AND (t.shape = 'run' OR t.verb = 'PROBE'
             OR coalesce(c.ended_at, c.expires_at) < c.claimed_at + make_interval(secs => :long_life_s)
                AND NOT EXISTS (SELECT FROM gobblin.ticket_report r
                                 WHERE r.ticket_id = c.ticket_id AND r.attempt = c.attempt AND r.kind = 'ended'
                                   AND r.details ->> 'family' IN ({states(*PASSING)}))))
"""

LAST_CLAIM: Final = """
    SELECT c.attempt, c.claim_id, c.owner, c.ended_as, c.ended_at,
           c.ended_at IS NULL AND c.expires_at > clock_timestamp() AS is_live
      FROM gobblin.ticket_claim c WHERE c.ticket_id = {}
     ORDER BY c.attempt DESC LIMIT 1
"""

_CLAIMABLE = text(f"""
    SELECT t.ticket_id, t.verb, coalesce(l.attempt, 0) AS last_attempt,
           {COUNTED_ATTEMPTS} AS attempts
      FROM gobblin.job_ticket t LEFT JOIN LATERAL ({LAST_CLAIM.format("t.ticket_id")}) l ON true
     WHERE t.executor = :executor AND t.ended_at IS NULL AND l.is_live IS NOT TRUE
       AND (t.verb = 'CANCEL' OR NOT {IS_DRAINING})
       AND (l.ended_as IS DISTINCT FROM 'DIED' OR t.verb = 'PROBE'
            OR l.ended_at <= clock_timestamp()
                             - make_interval(secs => least(:pause_s_max, :pause_s * 2 ^ least(l.attempt, 20))))
     ORDER BY t.verb <> 'CANCEL', t.verb = 'ADD', t.verb = 'PROBE', t.sent_at, t.ticket_id
     LIMIT :limit
""")

# Those that are late are ended by whoever sees them next.
_COUNT_PROBES = text(f"""
    SELECT count(*) FROM gobblin.job_ticket t
     WHERE t.executor = :executor AND t.ended_at IS NULL AND t.verb = 'PROBE' AND NOT {_IS_LATE}
""")

# Some at a time: there are about as many questions as answers. Rows that another question takes out are passed over.
_FORGET_PROBES = text(f"""
    WITH old AS (
        SELECT ticket_id FROM gobblin.job_ticket
         WHERE verb = 'PROBE' AND ended_at < clock_timestamp() - make_interval(secs => {PROBE_KEPT_S})
         ORDER BY ended_at LIMIT 20 FOR UPDATE SKIP LOCKED),
    reports AS (DELETE FROM gobblin.ticket_report USING old WHERE ticket_report.ticket_id = old.ticket_id),
    claims AS (DELETE FROM gobblin.ticket_claim USING old WHERE ticket_claim.ticket_id = old.ticket_id)
    DELETE FROM gobblin.job_ticket USING old WHERE job_ticket.ticket_id = old.ticket_id
""")

_PROBE = text("""
    SELECT t.body, extract(epoch FROM clock_timestamp() - t.sent_at)::float8 AS age_s, t.ended_as,
           EXISTS (SELECT FROM gobblin.ticket_claim c WHERE c.ticket_id = t.ticket_id) AS is_claimed,
           (SELECT r.details FROM gobblin.ticket_report r
             WHERE r.ticket_id = t.ticket_id AND r.kind = 'ended'
             ORDER BY r.attempt DESC, r.number DESC LIMIT 1) AS details
      FROM gobblin.job_ticket t WHERE t.ticket_id = :ticket_id AND t.verb = 'PROBE'
""")

_LOCK = text("""
    SELECT verb, job, shape, cancels, digest, body, ended_as,
           extract(epoch FROM clock_timestamp() - sent_at)::float8 AS age_s
      FROM gobblin.job_ticket WHERE ticket_id = :ticket_id FOR UPDATE
""")

# A statement of its own behind the lock: it sees what the one before had committed.
_LAST_CLAIM = text(LAST_CLAIM.format(":ticket_id"))

_COUNT_ATTEMPTS = text(f"SELECT {COUNTED_ATTEMPTS} FROM gobblin.job_ticket t WHERE t.ticket_id = :ticket_id")

_OLDER = text("""
    SELECT o.ticket_id FROM gobblin.job_ticket o JOIN gobblin.job_ticket t USING (executor, job)
     WHERE t.ticket_id = :ticket_id AND o.ended_at IS NULL AND o.shape = 'worker'
       AND (o.sent_at, o.ticket_id) < (t.sent_at, t.ticket_id)
     ORDER BY o.ticket_id FOR UPDATE OF o
""")

_CLAIM = text("""
    INSERT INTO gobblin.ticket_claim (ticket_id, attempt, claim_id, digest, log_id, owner, schema_version, expires_at)
    SELECT :ticket_id, :attempt, :claim_id, :digest, i.log_id, :owner, :schema_version,
           clock_timestamp() + make_interval(secs => :ttl_s)
      FROM gobblin.log_identity i
""")

_RENEW = text("""
    UPDATE gobblin.ticket_claim c SET expires_at = clock_timestamp() + make_interval(secs => :ttl_s)
      FROM unnest(CAST(:ticket_ids AS uuid[]), CAST(:attempts AS int[])) AS mine (ticket_id, attempt)
     WHERE c.ticket_id = mine.ticket_id AND c.attempt = mine.attempt AND c.ended_at IS NULL
       AND NOT EXISTS (SELECT FROM gobblin.ticket_claim o
                        WHERE o.ticket_id = c.ticket_id AND o.attempt > c.attempt)
    RETURNING c.ticket_id, c.attempt
""")

_REPORT = text("""
    INSERT INTO gobblin.ticket_report (ticket_id, attempt, number, report_id, kind, sequence_id, details)
    SELECT :ticket_id, :attempt,
           1 + coalesce((SELECT max(number) FROM gobblin.ticket_report
                          WHERE ticket_id = :ticket_id AND attempt = :attempt), 0),
           :report_id, :kind, :sequence_id, CAST(:details AS jsonb)
     WHERE NOT EXISTS (SELECT FROM gobblin.ticket_report WHERE report_id = :report_id)
       AND NOT EXISTS (SELECT FROM gobblin.ticket_report WHERE ticket_id = :ticket_id AND sequence_id = :sequence_id)
""")

# A worker reports how far it is for months. The newest row stays, so that numbers go on rising.
_FORGET_PROGRESS = text("""
    DELETE FROM gobblin.ticket_report
     WHERE ticket_id = :ticket_id AND attempt = :attempt AND kind = 'progress'
       AND number < (SELECT max(number) FROM gobblin.ticket_report
                      WHERE ticket_id = :ticket_id AND attempt = :attempt AND kind = 'progress')
""")

_RUN_OF = text("""
    SELECT CAST(details ->> 'run_id' AS uuid) FROM gobblin.ticket_report
     WHERE ticket_id = :ticket_id AND attempt = :attempt AND kind = 'running' ORDER BY number LIMIT 1
""")

_HAS_REPORT = text("SELECT count(*) FROM gobblin.ticket_report WHERE report_id = :report_id")

_END_CLAIM = text("""
    UPDATE gobblin.ticket_claim SET ended_as = :ended_as, ended_at = clock_timestamp()
     WHERE ticket_id = :ticket_id AND attempt = :attempt AND ended_at IS NULL
""")

_END_TICKET = text("""
    UPDATE gobblin.job_ticket SET ended_as = :ended_as, ended_at = clock_timestamp()
     WHERE ticket_id = :ticket_id AND ended_at IS NULL
""")

_LOCK_ENDED = text("""
    SELECT ticket_id FROM gobblin.job_ticket
     WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND ended_at IS NOT NULL ORDER BY ticket_id FOR UPDATE
""")

_LIST_OPEN = text("""
    SELECT ticket_id FROM gobblin.job_ticket
     WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[])) AND ended_at IS NULL
""")

_FORGET = (
    text("DELETE FROM gobblin.ticket_output WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[]))"),
    text("DELETE FROM gobblin.ticket_report WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[]))"),
    text("DELETE FROM gobblin.ticket_claim WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[]))"),
    text("UPDATE gobblin.job_ticket SET body = 'null' WHERE ticket_id = ANY (CAST(:ticket_ids AS uuid[]))"),
)

_REPORTS = ReportTables("gobblin.job_ticket", "gobblin.ticket_report")

# By the sequences, and not by the ledger, which has no interval of a window without rows.
_PUBLISHED = text("""
    SELECT urn, partition, started_at
      FROM (SELECT DISTINCT ON (d.urn, s.partition) d.urn, s.partition, s.complete, r.started_at
              FROM gobblin.commit_sequence s JOIN gobblin.dataset d USING (dataset_id) JOIN gobblin.run r USING (run_id)
             WHERE d.job = :job AND s.state = 'DONE' AND NOT s.details ? 'compaction'
             ORDER BY d.urn, s.partition, s.result_version DESC) latest
     WHERE complete
""")

# Of ``t``: its id, and those of the tickets that it goes on from.
_WITH_EARLIER: Final = f"""
    ARRAY(SELECT t.ticket_id UNION ALL
          SELECT CAST(e.value AS uuid) FROM json_array_elements_text({waiting_tickets.BODY} -> 'earlier') e)
"""

# By the runs that its attempts told of: whoever else publishes for the job may have been asked for something else.
_DONE_BY_TICKET = text(f"""
    SELECT DISTINCT d.urn, s.partition
      FROM gobblin.job_ticket t
      JOIN gobblin.dataset d USING (job)
      JOIN gobblin.commit_sequence s USING (dataset_id)
     WHERE t.ticket_id = :ticket_id AND s.state = 'DONE' AND s.complete AND NOT s.details ? 'compaction'
       AND s.run_id IN (SELECT CAST(r.details ->> 'run_id' AS uuid) FROM gobblin.ticket_report r
                         WHERE r.ticket_id = ANY ({_WITH_EARLIER}) AND r.kind = 'running')
""")

_UNREPORTED = text(f"""
    SELECT s.sequence_id
      FROM gobblin.job_ticket t
      JOIN gobblin.dataset d USING (job)
      JOIN gobblin.commit_sequence s USING (dataset_id)
     WHERE t.ticket_id = :ticket_id AND t.shape = 'run'
       AND s.state = 'DONE' AND s.folded_at IS NULL AND NOT s.details ? 'compaction'
       AND s.done_at >= (SELECT min(c.claimed_at) FROM gobblin.ticket_claim c
                          WHERE c.ticket_id = ANY ({_WITH_EARLIER}))
       AND NOT EXISTS (SELECT FROM gobblin.ticket_report r
                        WHERE r.ticket_id = ANY ({_WITH_EARLIER}) AND r.sequence_id = s.sequence_id)
     ORDER BY s.done_at, s.sequence_id
""")

# Without the lock of the ticket: these lines say nothing that anybody decides by.
_KEEP_OUTPUT = text("""
    INSERT INTO gobblin.ticket_output AS o (ticket_id, attempt, lines)
    SELECT t.ticket_id, :attempt, :lines FROM gobblin.job_ticket t
     WHERE t.ticket_id = :ticket_id AND t.body::text <> 'null'
        ON CONFLICT (ticket_id, attempt) DO UPDATE SET lines = excluded.lines, updated_at = clock_timestamp()
     WHERE o.lines <> excluded.lines
""")

_OUTPUTS = text("""
    SELECT attempt, lines, updated_at FROM gobblin.ticket_output
     WHERE ticket_id = :ticket_id ORDER BY attempt DESC LIMIT :limit
""")


class PostgresTicketStore:
    """``TicketStore`` over the log's tables of tickets, claims, reports and outputs."""

    def __init__(self, engine: Engine, *, tries: int = TRIES_MAX) -> None:
        self._engine = engine
        self._tries = tries

    def find_log_id(self) -> LogId:
        return self._do("find the log's id", _find_log_id)

    def send(self, sent: SentTicket) -> None:
        self._do("send a ticket", lambda c: put_ticket(c, sent), committed=Failpoint.TICKET_SENT)

    def send_claimed(self, sent: SentTicket, owner: str, *, ttl_s: float) -> Claim | None:
        claim_id, report_id = uuid.uuid4(), uuid.uuid4()

        def body(connection: Connection) -> Claim | None:
            put_ticket(connection, sent)
            return _claim(connection, sent.ticket_id, claim_id, report_id, owner, ttl_s)

        return self._try_claim("send a ticket and claim it", body)

    def list_claimable(self, executor: str, *, limit: int) -> Sequence[OpenTicket]:
        pauses = {"pause_s": _PAUSE_S, "pause_s_max": _PAUSE_S_MAX, "long_life_s": LONG_LIFE_S}
        arguments = {"executor": executor, "limit": limit, **pauses}
        rows = self._do("list tickets", lambda c: c.execute(_CLAIMABLE, arguments).all())
        return [
            OpenTicket(TicketId(row.ticket_id), TicketVerb(row.verb), row.last_attempt, row.attempts) for row in rows
        ]

    def describe_waiting(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, WaitingTicket]:
        return self._do("describe tickets", lambda c: waiting_tickets.describe_waiting(c, ticket_ids))

    def list_held(self, executor: str) -> Sequence[HeldClaim]:
        return self._do("list claims", lambda c: waiting_tickets.list_held(c, executor))

    def claim(self, ticket_id: TicketId, owner: str, *, ttl_s: float) -> Claim | None:
        claim_id, report_id = uuid.uuid4(), uuid.uuid4()
        return self._try_claim("claim a ticket", lambda c: _claim(c, ticket_id, claim_id, report_id, owner, ttl_s))

    def _try_claim(self, name: str, body: Callable[[Connection], Claim | None]) -> Claim | None:
        try:
            return self._do(name, body, committed=Failpoint.TICKET_CLAIMED)
        except DBAPIError as error:
            require_drain(error)
            return None

    def renew(self, claims: Collection[Claim], *, ttl_s: float) -> Collection[Claim]:
        arguments = {
            "ticket_ids": [each.ticket_id for each in claims],
            "attempts": [each.attempt for each in claims],
            "ttl_s": ttl_s,
        }
        rows = self._do(
            "renew claims",
            lambda c: c.execute(_RENEW, arguments).all(),
            committed=Failpoint.CLAIMS_RENEWED,
        )
        return {Claim(TicketId(row.ticket_id), row.attempt) for row in rows}

    def get_claimed(self, claim: Claim) -> SentTicket:
        def body(connection: Connection) -> SentTicket:
            ticket = _lock(connection, claim.ticket_id)
            _require_last(connection, claim)
            sent = sent_ticket_from_json(ticket.body)
            if sent.digest != bytes(ticket.digest):
                raise CorruptionError(
                    f"the ticket {claim.ticket_id} is not what was sent", hint="Somebody changed it in the log."
                )
            return sent

        return self._do("read a ticket", body)

    def report(
        self,
        claim: Claim,
        report_id: uuid.UUID,
        kind: TicketReportKind,
        details: Mapping[str, Any],
        sequence_id: SequenceId | None = None,
    ) -> None:
        def body(connection: Connection) -> None:
            _lock(connection, claim.ticket_id)
            _require_last(connection, claim)
            _append(connection, claim, report_id, kind, details, sequence_id)
            if kind is TicketReportKind.PROGRESS:
                connection.execute(_FORGET_PROGRESS, {"ticket_id": claim.ticket_id, "attempt": claim.attempt})

        self._do("report of a ticket", body, committed=Failpoint.TICKET_REPORTED)

    def end(self, claim: Claim, end: AttemptEnd, details: Mapping[str, Any]) -> bool:
        report_id = uuid.uuid4()

        def body(connection: Connection) -> bool:
            _lock(connection, claim.ticket_id)
            if connection.execute(_HAS_REPORT, {"report_id": report_id}).scalar_one():
                return True
            if _find_fault(connection, claim) is not None:
                return False
            _end(connection, claim, report_id, end, details)
            return True

        return self._do("end an attempt", body, committed=Failpoint.TICKET_ENDED)

    def find_run(self, claim: Claim) -> RunId | None:
        where = {"ticket_id": claim.ticket_id, "attempt": claim.attempt}
        found = self._do("find an attempt's run", lambda c: c.execute(_RUN_OF, where).scalar())
        return None if found is None else RunId(found)

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        report_id = uuid.uuid4()
        counted = {"ticket_id": ticket_id, "long_life_s": LONG_LIFE_S}

        def body(connection: Connection) -> bool:
            ticket = _lock(connection, ticket_id)
            if connection.execute(_HAS_REPORT, {"report_id": report_id}).scalar_one():
                return True
            last = connection.execute(_LAST_CLAIM, {"ticket_id": ticket_id}).one_or_none()
            if ticket.ended_as is not None or (last is not None and last.is_live):
                return False
            if last is None and not connection.execute(_COUNT_ATTEMPTS, counted).scalar_one():
                return False
            attempt = Claim(ticket_id, 0 if last is None else last.attempt)
            _end(connection, attempt, report_id, AttemptEnd.FAILED, details)
            return True

        return self._do("give a ticket up", body, committed=Failpoint.TICKET_ENDED)

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        found = self._do("find a probe", lambda c: c.execute(_PROBE, {"ticket_id": ticket_id}).one_or_none())
        if found is None:
            return None
        end = None if found.ended_as is None else found.details
        return FoundProbe(sent_ticket_from_json(found.body), found.age_s, found.is_claimed, end)

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:
        report_id = uuid.uuid4()

        def body(connection: Connection) -> TicketId | None:
            ticket = _lock(connection, ticket_id)
            if ticket.ended_as is not None:
                return None
            return _settle(connection, ticket_id, TicketId(ticket.cancels), report_id)

        return self._do("cancel a ticket", body, committed=Failpoint.TICKET_ENDED)

    def list_cancels(self, ticket_id: TicketId) -> Sequence[TicketId]:
        return self._do("list who cancels", lambda c: waiting_tickets.list_cancels(c, ticket_id))

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        def body(connection: Connection) -> bool:
            found = connection.execute(_LOCK, {"ticket_id": ticket_id}).one_or_none()
            if found is None:
                raise RejectedError(
                    f"the log has no ticket {ticket_id}", field="ticket", hint="The job of an execution has its id."
                )
            is_worker = found.shape == TicketShape.WORKER.value
            return found.ended_as is not None or _end_idle(
                connection, ticket_id, message, ends_live=is_lost and is_worker
            )

        return self._do("end a ticket that nobody works on", body, committed=Failpoint.TICKET_ENDED)

    def supersede(self, ticket_id: TicketId) -> int:
        def body(connection: Connection) -> int:
            older = [TicketId(each) for each in connection.execute(_OLDER, {"ticket_id": ticket_id}).scalars()]
            return sum(not _end_idle(connection, each, f"superseded by the ticket {ticket_id}") for each in older)

        return self._do("supersede tickets", body, committed=Failpoint.TICKET_ENDED)

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        return self._do("list reports", lambda c: _REPORTS.list_behind(c, ticket_ids, after, limit))

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        return self._do("find ends of tickets", lambda c: _REPORTS.find_ends(c, ticket_ids))

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        def body(connection: Connection) -> frozenset[TicketId]:
            ended = connection.execute(_LOCK_ENDED, {"ticket_ids": list(ticket_ids)}).scalars().all()
            for statement in _FORGET:
                connection.execute(statement, {"ticket_ids": list(ended)})
            open_ones = connection.execute(_LIST_OPEN, {"ticket_ids": list(ticket_ids)}).scalars()
            return frozenset(TicketId(each) for each in open_ones)

        return self._do("forget tickets", body, committed=Failpoint.TICKETS_FORGOTTEN)

    def list_published(self, job: JobName) -> Mapping[DatasetUrn, Mapping[str, dt.datetime]]:
        rows = self._do("list published", lambda c: c.execute(_PUBLISHED, {"job": job}).all())
        found: dict[DatasetUrn, dict[str, dt.datetime]] = defaultdict(dict)
        for row in rows:
            found[DatasetUrn(row.urn)][row.partition] = row.started_at
        return found

    def list_done(self, ticket_id: TicketId) -> Collection[tuple[DatasetUrn, str]]:
        rows = self._do(
            "list what a ticket published", lambda c: c.execute(_DONE_BY_TICKET, {"ticket_id": ticket_id}).all()
        )
        return {(DatasetUrn(row.urn), row.partition) for row in rows}

    def list_unreported(self, ticket_id: TicketId) -> Sequence[SequenceId]:
        found = self._do(
            "list unreported publications",
            lambda c: c.execute(_UNREPORTED, {"ticket_id": ticket_id}).scalars().all(),
        )
        return [SequenceId(each) for each in found]

    def keep_output(self, claim: Claim, lines: str) -> None:
        arguments = {"ticket_id": claim.ticket_id, "attempt": claim.attempt, "lines": lines}
        self._do("keep what a process said", lambda c: c.execute(_KEEP_OUTPUT, arguments))

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        arguments = {"ticket_id": ticket_id, "limit": limit}
        rows = self._do("read what processes said", lambda c: c.execute(_OUTPUTS, arguments).all())
        return [TicketOutput(row.attempt, row.lines, row.updated_at) for row in rows]

    def list_last_tickets(self) -> Mapping[JobName, LastTicket | None]:
        return self._do("list the last tickets", list_last_tickets)

    def load_jobs(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, JobTicket]:
        return self._do("load the jobs of tickets", lambda c: load_ticket_jobs(c, ticket_ids))

    def _do(self, name: str, body: Callable[[Connection], T], committed: Failpoint | None = None) -> T:
        return transact(self._engine, name, body, committed=committed, tries=self._tries)


def put_ticket(connection: Connection, sent: SentTicket) -> None:
    """``TicketStore.send`` within a transaction. Errors as there."""
    # A question of a job is none of its tickets: nothing that is told of the job is told of it.
    ticket = None if sent.question is not None else sent.ticket
    arguments = {
        "ticket_id": sent.ticket_id,
        "executor": sent.executor,
        "verb": sent.verb.value,
        "job": None if ticket is None else ticket.job_name,
        "shape": None if ticket is None else ticket.shape.value,
        "cancels": sent.cancels,
        "digest": sent.digest,
        "body": json.dumps(sent_ticket_to_json(sent)),
        "is_own": bool(sent.asked_by),
    }
    log_id = _find_log_id(connection)
    if sent.log_id not in (None, log_id):
        raise ConflictError(
            f"the ticket {sent.ticket_id} is meant for the log {sent.log_id}, and this is {log_id}",
            hint="Look at the log that the executor has now, and at the one that it had before.",
        )
    if sent.asked_by:
        connection.execute(_LOCK_NUMBERS)
    if connection.execute(_SEND, arguments).rowcount:
        if sent.question is not None:
            _require_room(connection, sent)
            connection.execute(_FORGET_PROBES)
        notify(connection, Channel.TICKETS, sent.executor)
        return
    known = connection.execute(_DIGEST, {"ticket_id": sent.ticket_id}).scalar_one()
    if bytes(known) != sent.digest:
        raise ConflictError(f"another ticket has the id {sent.ticket_id}", hint="Send a changed ticket under a new id.")


def _find_log_id(connection: Connection) -> LogId:
    found = connection.execute(_LOG_ID).scalar()
    if found is None:
        connection.execute(_MAKE_LOG_ID, {"log_id": uuid.uuid4()})
        found = connection.execute(_LOG_ID).scalar_one()
    return LogId(found)


def _claim(
    connection: Connection, ticket_id: TicketId, claim_id: uuid.UUID, report_id: uuid.UUID, owner: str, ttl_s: float
) -> Claim | None:
    counted = {"ticket_id": ticket_id, "long_life_s": LONG_LIFE_S}
    ticket = _lock(connection, ticket_id)
    last = connection.execute(_LAST_CLAIM, {"ticket_id": ticket_id}).one_or_none()
    if last is not None and last.claim_id == claim_id:
        return Claim(ticket_id, last.attempt)
    if ticket.ended_as is not None or (last is not None and last.is_live):
        return None
    if connection.execute(_COUNT_ATTEMPTS, counted).scalar_one() >= find_attempts_max(TicketVerb(ticket.verb)):
        return None
    if last is None and (said := _find_expiry(ticket)):
        _end(connection, Claim(ticket_id, 0), report_id, AttemptEnd.CANCELLED, _said(said))
        return None
    _find_log_id(connection)
    made = Claim(ticket_id, 1 if last is None else last.attempt + 1)
    arguments = {"attempt": made.attempt, "claim_id": claim_id, "digest": ticket.digest, "owner": owner}
    arguments["schema_version"] = find_head()
    connection.execute(_CLAIM, {"ticket_id": ticket_id, "ttl_s": ttl_s, **arguments})
    _append(connection, made, report_id, TicketReportKind.CLAIMED, {"owner": owner})
    return made


def _require_room(connection: Connection, sent: SentTicket) -> None:
    """RetryableError if this question is one too many; then it was not sent."""
    if connection.execute(_COUNT_PROBES, {"executor": sent.executor}).scalar_one() > PROBES_OPEN_MAX:
        raise RetryableError(
            f"{PROBES_OPEN_MAX} questions wait for the executor {sent.executor}",
            passes=True,
            hint="Ask again once they are answered. Does the executor run?",
        )


def _lock(connection: Connection, ticket_id: TicketId) -> Row[Any]:
    found = connection.execute(_LOCK, {"ticket_id": ticket_id}).one_or_none()
    if found is None:
        raise RejectedError(f"the log has no ticket {ticket_id}", field="ticket_id", hint="Send it first.")
    return found


def _find_expiry(ticket: Row[Any]) -> str:
    """Why nobody may begin the ticket any more, as a sentence; empty: somebody may."""
    after_s = ticket.body.get("expires_after_s")
    # Of another type: a ticket that who reads it refuses.
    if not isinstance(after_s, int | float) or ticket.age_s < after_s:
        return ""
    return f"it has expired: nobody began it within {after_s:g} s"


def _find_fault(connection: Connection, claim: Claim) -> str | None:
    """Why the attempt may report no more."""
    last = connection.execute(_LAST_CLAIM, {"ticket_id": claim.ticket_id}).one_or_none()
    if last is None or last.attempt < claim.attempt:
        return "was never claimed"
    if last.attempt > claim.attempt:
        return f"was followed by attempt {last.attempt}"
    return None if last.ended_as is None else f"has ended as {last.ended_as}"


def _require_last(connection: Connection, claim: Claim) -> None:
    fault = _find_fault(connection, claim)
    if fault is not None:
        raise FencedError(f"attempt {claim.attempt} at the ticket {claim.ticket_id} {fault}", hint="Stop.")


def _append(
    connection: Connection,
    claim: Claim,
    report_id: uuid.UUID,
    kind: TicketReportKind,
    details: Mapping[str, Any],
    sequence_id: SequenceId | None = None,
) -> None:
    arguments = {"report_id": report_id, "kind": kind.value, "sequence_id": sequence_id}
    where = {"ticket_id": claim.ticket_id, "attempt": claim.attempt}
    connection.execute(_REPORT, {**where, **arguments, "details": json.dumps(details)})
    notify(connection, Channel.REPORTS)


def _end(
    connection: Connection, claim: Claim, report_id: uuid.UUID, end: AttemptEnd, details: Mapping[str, Any]
) -> None:
    """Of an attempt, and of the ticket if this end is its end. Attempt 0: there was none."""
    where = {"ticket_id": claim.ticket_id, "ended_as": end.value}
    _append(connection, claim, report_id, TicketReportKind.ENDED, {"state": end.value, **details})
    connection.execute(_END_CLAIM, {**where, "attempt": claim.attempt})
    if end.ends_ticket:
        connection.execute(_END_TICKET, where)


def _settle(connection: Connection, ticket_id: TicketId, other: TicketId, report_id: uuid.UUID) -> TicketId | None:
    found = connection.execute(_LOCK, {"ticket_id": other}).one_or_none()
    if found is None:
        said = _said(f"the log has no ticket {other}", "Send it before the one that cancels it.")
        _end(connection, Claim(ticket_id, 0), report_id, AttemptEnd.FAILED, said)
        return None
    if found.ended_as is None and not _end_idle(connection, other, "nobody worked on it"):
        return other
    _end(connection, Claim(ticket_id, 0), report_id, AttemptEnd.COMPLETE, _said())
    return None


def _end_idle(connection: Connection, ticket_id: TicketId, message: str, *, ends_live: bool = False) -> bool:
    """End a locked ticket as cancelled, and its last attempt, unless that lives and ``ends_live`` is not said."""
    last = connection.execute(_LAST_CLAIM, {"ticket_id": ticket_id}).one_or_none()
    if last is not None and last.is_live and not ends_live:
        return False
    attempt = Claim(ticket_id, 0 if last is None else last.attempt)
    _end(connection, attempt, uuid.uuid4(), AttemptEnd.CANCELLED, _said(message))
    return True


def _said(message: str = "", hint: str = "") -> dict[str, Any]:
    return {"family": None, "message": message, "hint": hint}
