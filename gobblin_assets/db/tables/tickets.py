"""Tickets of executors: jobs that a service sends, who has claimed them, and what is reported of them."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB

from gobblin_assets.db.table_metadata import metadata, moment, states

log_identity = Table(
    "log_identity",
    metadata,
    # There is one row, made when it is first asked for.
    Column("is_only", Boolean, primary_key=True, server_default=text("true")),
    Column("log_id", Uuid, nullable=False),
    CheckConstraint("is_only", name="only"),
)

job_ticket = Table(
    "job_ticket",
    metadata,
    # Made by the sender, so that a ticket that is sent again is the same one.
    Column("ticket_id", Uuid, primary_key=True),
    Column("executor", Text, nullable=False),
    Column("verb", Text, nullable=False),
    # The name of its job, and whether it is a run or a worker; null for what cancels another ticket or only asks.
    Column("job", Text),
    Column("shape", Text),
    Column("cancels", Uuid),
    Column("digest", LargeBinary, nullable=False),
    # The whole ticket, as its digest says: JSON keeps numbers as they were written.
    Column("body", JSON, nullable=False),
    moment("sent_at", nullable=False, default_now=True),
    Column("ended_as", Text),
    moment("ended_at"),
    # Of a ticket that no service sent: the numbers rise in the order of commits.
    Column("own_number", BigInteger, unique=True),
    CheckConstraint(f"verb IN ({states('ADD', 'UPDATE', 'DELETE', 'CANCEL', 'PROBE')})", name="verb"),
    CheckConstraint(f"ended_as IN ({states('COMPLETE', 'FAILED', 'CANCELLED')})", name="ended_as"),
    CheckConstraint("(ended_as IS NULL) = (ended_at IS NULL)", name="ended_at"),
    # Answers are forgotten by their age.
    Index("job_ticket_probe", "ended_at", postgresql_where=text("verb = 'PROBE'")),
    Index("job_ticket_open", "executor", "sent_at", "ticket_id", postgresql_where=text("ended_at IS NULL")),
    # The last ticket of each job, of those that are not forgotten.
    Index(
        "job_ticket_job",
        *("job", text("coalesce(json_typeof(body) = 'null', false)"), "sent_at", "ticket_id"),
        postgresql_where=text("job IS NOT NULL"),
    ),
)

ticket_claim = Table(
    "ticket_claim",
    metadata,
    Column("ticket_id", ForeignKey(job_ticket.c.ticket_id), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # Made by who claims, so that a repetition finds its own claim.
    Column("claim_id", Uuid, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("log_id", Uuid, nullable=False),
    Column("owner", Text, nullable=False),
    # Of the release that claims. A trigger refuses another one than the log's, and all while the log drains.
    Column("schema_version", Text),
    moment("claimed_at", nullable=False, default_now=True),
    moment("expires_at", nullable=False),
    Column("ended_as", Text),
    moment("ended_at"),
    CheckConstraint("attempt > 0", name="attempt"),
    CheckConstraint(f"ended_as IN ({states('COMPLETE', 'FAILED', 'CANCELLED', 'DIED', 'DRAINED')})", name="ended_as"),
    CheckConstraint("(ended_as IS NULL) = (ended_at IS NULL)", name="ended_at"),
)

ticket_report = Table(
    "ticket_report",
    metadata,
    Column("ticket_id", ForeignKey(job_ticket.c.ticket_id), primary_key=True),
    # 0: of a ticket that nobody has claimed.
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # In the order in which they were committed. Of an attempt's reports of progress only the newest one stays.
    Column("number", Integer, primary_key=True, autoincrement=False),
    # Made by who reports, so that a repetition finds its own report.
    Column("report_id", Uuid, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    # The publication that it tells of: each once.
    Column("sequence_id", Uuid),
    Column("details", JSONB, nullable=False),
    moment("at", nullable=False, default_now=True),
    CheckConstraint(f"kind IN ({states('claimed', 'running', 'published', 'progress', 'ended')})", name="kind"),
    CheckConstraint("(kind = 'published') = (sequence_id IS NOT NULL)", name="sequence_id"),
    UniqueConstraint("ticket_id", "sequence_id"),
)

ticket_output = Table(
    "ticket_output",
    metadata,
    # It goes with its ticket.
    Column("ticket_id", ForeignKey(job_ticket.c.ticket_id, ondelete="CASCADE"), primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    # The last lines that the attempt's process said, without secrets.
    Column("lines", Text, nullable=False),
    moment("updated_at", nullable=False, default_now=True),
    CheckConstraint("attempt > 0", name="attempt"),
)

executor_heartbeat = Table(
    "executor_heartbeat",
    metadata,
    # One row for each process that takes tickets: its last heartbeat.
    Column("executor", Text, primary_key=True),
    Column("owner", Text, primary_key=True),
    moment("beaten_at", nullable=False, default_now=True),
    Column("body", JSONB, nullable=False),
)

log_drain = Table(
    "log_drain",
    metadata,
    # Made by who drains, so that a repetition finds its own drain.
    Column("drain_id", Uuid, primary_key=True),
    Column("asked_by", Text, nullable=False),
    moment("begun_at", nullable=False, default_now=True),
    moment("ended_at"),
    # One at a time.
    Index("log_drain_open", text("(ended_at IS NULL)"), unique=True, postgresql_where=text("ended_at IS NULL")),
)
