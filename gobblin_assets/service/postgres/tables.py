"""The tables of the service. The database's clock is the only one."""

from typing import Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    Uuid,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

from gobblin_assets.db.table_metadata import NAMING, moment, states
from gobblin_assets.model.job_ticket import TicketVerb
from gobblin_assets.service.flow_store import FlowState
from gobblin_assets.service.slots import FlowSlotState
from gobblin_assets.service.statuses import ENDED, UNSENT, ExecutionStatus

SERVICE_SCHEMA: Final = "gobblin_service"

service_metadata = MetaData(schema=SERVICE_SCHEMA, naming_convention=NAMING)

event.listen(service_metadata, "before_create", DDL(f"CREATE SCHEMA IF NOT EXISTS {SERVICE_SCHEMA}"))  # type: ignore[no-untyped-call]  # SQLAlchemy leaves DDL untyped

_STATUSES: Final = states(*ExecutionStatus)
IS_ENDED: Final = f"status IN ({states(*sorted(ENDED))})"

flow = Table(
    "flow",
    service_metadata,
    Column("flow_id", Uuid, primary_key=True),
    Column("flow_group", Text(collation="C"), nullable=False),
    Column("flow_name", Text(collation="C"), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    # Why it is PENDING: sentences.
    Column("reasons", JSONB, nullable=False),
    Column("runs_when_able", Boolean, nullable=False),
    # How many times its jobs got new names.
    Column("generation", Integer, nullable=False, server_default=text("0")),
    # Its workers were ended for a new version: it is run again once they have ended.
    Column("restarts", Boolean, nullable=False, server_default=text("false")),
    Column("owner", Text, nullable=False),
    Column("owner_groups", JSONB, nullable=False),
    # The number of the catalog's change that made it what it is.
    Column("change", BigInteger, nullable=False),
    moment("created_at", nullable=False, default_now=True),
    moment("updated_at", nullable=False, default_now=True),
    moment("deleted_at"),
    # Of a flow with a schedule: the first slot that is not accounted, and when it is to be looked at, which a
    # maintenance window makes later.
    moment("next_fire_at"),
    moment("due_at"),
    moment("paused_at"),
    moment("resumed_at"),
    # It has no slots: its workers always run.
    Column("is_continuous", Boolean, nullable=False, server_default=text("false")),
    CheckConstraint(f"state IN ({states(*FlowState)})", name="state"),
    CheckConstraint("(next_fire_at IS NULL) = (due_at IS NULL)", name="due_at"),
    CheckConstraint("version > 0", name="version"),
    # One flow of a name at a time; pages of the list.
    Index(
        "flow_live",
        "flow_group",
        "flow_name",
        unique=True,
        postgresql_where=text("deleted_at IS NULL"),
    ),
    Index("flow_change", "change"),
    Index("flow_restarting", "flow_id", postgresql_where=text("restarts")),
    Index("flow_pending", "created_at", "flow_id", postgresql_where=text("state = 'PENDING' AND deleted_at IS NULL")),
    Index(
        "flow_due",
        "due_at",
        postgresql_where=text("due_at IS NOT NULL AND deleted_at IS NULL AND state <> 'PAUSED'"),
    ),
    Index("flow_continuous", "flow_id", postgresql_where=text("is_continuous AND deleted_at IS NULL")),
)

flow_version = Table(
    "flow_version",
    service_metadata,
    Column("flow_id", ForeignKey(flow.c.flow_id), primary_key=True),
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    # Made by who writes, so that a repetition finds its own version.
    Column("request_id", Uuid, nullable=False, unique=True),
    Column("config", JSONB, nullable=False),
    Column("made_by", Text, nullable=False),
    moment("made_at", nullable=False, default_now=True),
    # The versions of packs that it was compiled with, by packs.
    Column("pins", JSONB, nullable=False, server_default=text("'{}'")),
)

flow_job = Table(
    "flow_job",
    service_metadata,
    Column("job_name", Text, primary_key=True),
    Column("flow_id", ForeignKey(flow.c.flow_id), nullable=False),
    # The node that it publishes to.
    Column("node", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("log_id", Uuid, nullable=False),
    # Without a version.
    Column("template_uri", Text, nullable=False),
    Column("source_node", Text, nullable=False),
    # The connection and the root of a node.
    Column("source_place", Text, nullable=False),
    Column("root", Text, nullable=False),
    moment("bound_at", nullable=False, default_now=True),
    # Of a worker, since a version without it was launched: the name is never used again.
    moment("retired_at"),
    Index(
        "flow_job_in_use",
        "flow_id",
        "node",
        "generation",
        unique=True,
        postgresql_where=text("retired_at IS NULL"),
    ),
    CheckConstraint("job_name ~ '^[a-z][a-z0-9_]{0,47}$'", name="job_name"),
)

flow_execution = Table(
    "flow_execution",
    service_metadata,
    Column("execution_id", BigInteger, Identity(always=True), primary_key=True),
    # Made by who launches, so that a repetition finds its own execution.
    Column("request_id", Uuid, nullable=False, unique=True),
    Column("flow_id", Uuid, nullable=False),
    Column("flow_version", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False, server_default=text("''")),
    Column("asked_by", Text, nullable=False),
    Column("selection", JSONB, nullable=False),
    moment("started_at", nullable=False, default_now=True),
    moment("cancel_asked_at"),
    moment("ended_at"),
    # The slot of the schedule that it is of.
    moment("fire_at"),
    # Of one that is not compiled yet: when it is tried next.
    moment("launch_at"),
    # The executor that has enough to begin, as of the last try to launch it.
    Column("waits_for", Text, nullable=False, server_default=text("''")),
    # Others of its flow may be open beside it.
    Column("may_overlap", Boolean, nullable=False, server_default=text("false")),
    # By the options of the flow's version: it is cancelled if it has not begun, or not ended.
    moment("start_by"),
    moment("finish_by"),
    # Of the request that had it go on after its end.
    Column("resume_id", Uuid),
    # An executor began it by itself: it is beside what the service starts, and neither keeps the other out.
    Column("is_adopted", Boolean, nullable=False, server_default=text("false")),
    ForeignKeyConstraint(("flow_id", "flow_version"), (flow_version.c.flow_id, flow_version.c.version)),
    CheckConstraint(f"status IN ({_STATUSES})", name="status"),
    CheckConstraint(f"({IS_ENDED}) = (ended_at IS NOT NULL)", name="ended_at"),
    Index("flow_execution_of_flow", "flow_id", "execution_id"),
    CheckConstraint("launch_at IS NULL OR status = 'PENDING'", name="launch_at"),
    # At most one of a flow at a time, but for those that overlap.
    Index(
        "flow_execution_alone",
        "flow_id",
        unique=True,
        postgresql_where=text("ended_at IS NULL AND NOT may_overlap"),
    ),
    Index("flow_execution_open", "flow_id", postgresql_where=text("ended_at IS NULL")),
    # One of each slot.
    Index("flow_execution_fire", "flow_id", "fire_at", unique=True, postgresql_where=text("fire_at IS NOT NULL")),
    Index("flow_execution_to_launch", "execution_id", postgresql_where=text("launch_at IS NOT NULL")),
    Index(
        "flow_execution_late",
        text("least(start_by, finish_by)"),
        postgresql_where=text("ended_at IS NULL AND cancel_asked_at IS NULL"),
    ),
)

flow_slot = Table(
    "flow_slot",
    service_metadata,
    Column("flow_id", Uuid, primary_key=True),
    # Of a range of slots that were treated alike: the first one, the last one and how many there are.
    Column("slot_at", DateTime(timezone=True), primary_key=True),
    moment("until_at", nullable=False),
    Column("count", Integer, nullable=False),
    Column("state", Text, nullable=False),
    # A sentence, where it does not run.
    Column("reason", Text, nullable=False, server_default=text("''")),
    # The execution that it is run by.
    Column("execution_id", BigInteger),
    moment("accounted_at", nullable=False, default_now=True),
    CheckConstraint(f"state IN ({states(*FlowSlotState)})", name="state"),
    CheckConstraint("count >= 1 AND (count = 1) = (slot_at = until_at)", name="count"),
    CheckConstraint("state <> 'RUN' OR execution_id IS NOT NULL", name="execution_id"),
    Index("flow_slot_waiting", "flow_id", "slot_at", postgresql_where=text("state = 'WAITING'")),
    Index("flow_slot_old", "accounted_at", postgresql_where=text("state <> 'WAITING'")),
)

job_execution = Table(
    "job_execution",
    service_metadata,
    Column("execution_id", ForeignKey(flow_execution.c.execution_id), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job_name", ForeignKey(flow_job.c.job_name), nullable=False),
    Column("executor", Text, nullable=False),
    # The name of the log that the executor works with, in the topology of the launch.
    Column("log", Text, nullable=False),
    # Decided with the row: however often it is sent, it is this ticket.
    Column("ticket_id", Uuid, nullable=False, unique=True),
    # JSON keeps numbers as they were written: the ticket's digest is of them.
    Column("ticket", JSON, nullable=False),
    # The numbers of jobs whose output it reads.
    Column("after", JSONB, nullable=False),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False, server_default=text("''")),
    # From here on the ticket may be in the executor's log.
    moment("send_begun_at"),
    # Decided when the end is asked for: the ticket that cancels this one, or deletes what the source keeps for its job.
    Column("cancel_ticket_id", Uuid, unique=True),
    Column("cancel_verb", Text),
    moment("cancel_sent_at"),
    moment("started_at"),
    moment("ended_at"),
    Column("processed_count", BigInteger, nullable=False, server_default=text("0")),
    # By key, the first low and the last high of what was published.
    Column("low_watermarks", JSONB, nullable=False, server_default=text("'{}'")),
    Column("high_watermarks", JSONB, nullable=False, server_default=text("'{}'")),
    # Up to which report it was read.
    Column("read_attempt", Integer, nullable=False, server_default=text("-1")),
    Column("read_number", Integer, nullable=False, server_default=text("0")),
    # What became of the ticket that deletes what the source keeps: "waits" while it is sent and open, a sentence if it
    # failed.
    Column("deletion", Text, nullable=False, server_default=text("''")),
    # Since when the log of its executor has only the ids of its tickets.
    moment("forgotten_at"),
    # Its tickets are counted from 1; those before this one are in job_attempt.
    Column("attempt", Integer, nullable=False, server_default=text("1")),
    # Tickets that failed and were followed by another one, as the flow's retries count.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    # Its ticket is not sent earlier: a retry waits, and so does a send that another node has begun.
    moment("send_at"),
    Column("send_tries", Integer, nullable=False, server_default=text("0")),
    moment("sent_at"),
    # Since when its ticket is to end, so that another executor gets one.
    moment("moving_at"),
    # What was counted of its ticket's reports, and from which of them the watermarks and the message are.
    Column("places", JSONB, nullable=False, server_default=text("'{}'")),
    CheckConstraint(f"status IN ({_STATUSES})", name="status"),
    CheckConstraint(f"({IS_ENDED}) = (ended_at IS NOT NULL)", name="ended_at"),
    CheckConstraint(f"cancel_verb IN ({states(TicketVerb.CANCEL, TicketVerb.DELETE)})", name="cancel_verb"),
    CheckConstraint("(cancel_verb IS NULL) = (cancel_ticket_id IS NULL)", name="cancel_ticket_id"),
    Index("job_execution_of_job", "job_name", "execution_id"),
    # What the orchestrator looks at, and not at workers, which run for months; what the monitor does.
    Index(
        "job_execution_to_send",
        "execution_id",
        "number",
        postgresql_where=text(f"status IN ({states(*UNSENT)})"),
    ),
    Index("job_execution_open", "execution_id", "number", postgresql_where=text("ended_at IS NULL")),
    Index(
        "job_execution_undeleted",
        "execution_id",
        "number",
        postgresql_where=text("deletion NOT IN ('', 'waits') AND forgotten_at IS NULL"),
    ),
    Index("job_execution_deleting", "execution_id", "number", postgresql_where=text("deletion = 'waits'")),
    Index(
        "job_execution_to_forget",
        "ended_at",
        "execution_id",
        "number",
        postgresql_where=text(
            "ended_at IS NOT NULL AND forgotten_at IS NULL AND (send_begun_at IS NOT NULL OR attempt > 1)"
        ),
    ),
    Index(
        "job_execution_of_executor",
        "executor",
        "status",
        postgresql_where=text("ended_at IS NULL AND send_begun_at IS NOT NULL"),
    ),
    Index(
        "job_execution_to_cancel",
        "execution_id",
        "number",
        postgresql_where=text("cancel_ticket_id IS NOT NULL AND cancel_sent_at IS NULL"),
    ),
)

# Tickets of a job before its last one.
job_attempt = Table(
    "job_attempt",
    service_metadata,
    Column("execution_id", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("executor", Text, nullable=False),
    Column("log", Text, nullable=False),
    Column("ticket_id", Uuid, nullable=False, unique=True),
    Column("cancel_ticket_id", Uuid),
    Column("status", Text, nullable=False),
    Column("message", Text, nullable=False),
    moment("ended_at", nullable=False, default_now=True),
    ForeignKeyConstraint(("execution_id", "number"), (job_execution.c.execution_id, job_execution.c.number)),
)

# Up to which of the tickets that a log's executors began by themselves the service has looked.
adopted_log = Table(
    "adopted_log",
    service_metadata,
    Column("log_id", Uuid, primary_key=True),
    Column("number", BigInteger, nullable=False),
)

request = Table(
    "request",
    service_metadata,
    Column("request_key", Text, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("flow_id", ForeignKey(flow.c.flow_id), nullable=False),
    moment("made_at", nullable=False, default_now=True),
)

topology_entry = Table(
    "topology_entry",
    service_metadata,
    Column("kind", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    # As in a file.
    Column("options", JSONB, nullable=False),
    moment("changed_at", nullable=False, default_now=True),
    CheckConstraint(f"kind IN ({states('executors', 'nodes')})", name="kind"),
)

template_pack = Table(
    "template_pack",
    service_metadata,
    Column("pack", Text(collation="C"), primary_key=True),
    Column("version", Text(collation="C"), primary_key=True),
    Column("description", Text, nullable=False),
    # Of the files in it: two zip files of the same files differ in their times.
    Column("digest", Text, nullable=False),
    # A zip file. A version is inserted, and never changed.
    Column("content", LargeBinary, nullable=False),
    Column("published_by", Text, nullable=False),
    moment("published_at", nullable=False, default_now=True),
    CheckConstraint("digest ~ '^[0-9a-f]{64}$'", name="digest"),
)

catalog_change = Table(
    "catalog_change",
    service_metadata,
    Column("catalog", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),
    moment("changed_at", nullable=False, default_now=True),
)

way_ticket = Table(
    "way_ticket",
    service_metadata,
    # A ticket that was sent over a way of messages.
    Column("ticket_id", Uuid, primary_key=True),
    Column("way", Text, nullable=False),
    Column("verb", Text, nullable=False),
    # What orders it among others: the name of its job.
    Column("key", Text, nullable=False),
    Column("log_id", Uuid),
    Column("digest", LargeBinary, nullable=False),
    Column("body", JSON, nullable=False),
    moment("entered_at", nullable=False, default_now=True),
    # When it was handed to the way last, how often again, and when the executor said that its log has it.
    moment("produced_at"),
    Column("resends", Integer, nullable=False, server_default=text("0")),
    moment("received_at"),
    moment("withdrawn_at"),
    moment("ended_at"),
    Index("way_ticket_open", "way", "entered_at", postgresql_where=text("ended_at IS NULL")),
)

way_report = Table(
    "way_report",
    service_metadata,
    # Of each ticket, those before it are here: a report behind a gap is not taken.
    Column("ticket_id", Uuid, ForeignKey(way_ticket.c.ticket_id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("details", JSONB, nullable=False),
    # By the clock of the executor's log.
    moment("at", nullable=False),
)

way_output = Table(
    "way_output",
    service_metadata,
    Column("ticket_id", Uuid, ForeignKey(way_ticket.c.ticket_id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("lines", Text, nullable=False),
    moment("updated_at", nullable=False),
)

way_heartbeat = Table(
    "way_heartbeat",
    service_metadata,
    Column("way", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
    Column("body", JSONB, nullable=False),
    Column("waiting", Integer, nullable=False),
    Column("working", Integer, nullable=False),
    moment("beaten_at", nullable=False),
)

way_place = Table(
    "way_place",
    service_metadata,
    # Up to where an executor's topic of reports was read. A topic that was made anew has another id.
    Column("way", Text, primary_key=True),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
)
