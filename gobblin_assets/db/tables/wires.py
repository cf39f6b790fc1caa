"""Tickets that come by topics, and up to where their reports are told."""

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from gobblin_assets.db.table_metadata import metadata, moment

wire_holder = Table(
    "wire_holder",
    metadata,
    # Which process of an executor reads its topic of tickets, and writes reports. Two at once are harmless.
    Column("executor", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    moment("expires_at", nullable=False),
)

wire_place = Table(
    "wire_place",
    metadata,
    # Up to where the topic of an executor's tickets is in this log. A topic that was made anew has another id.
    Column("executor", Text, primary_key=True),
    Column("topic", Text, primary_key=True),
    Column("topic_id", Text, primary_key=True),
    Column("partition", Integer, primary_key=True, autoincrement=False),
    Column("next_offset", BigInteger, nullable=False),
)

wired_ticket = Table(
    "wired_ticket",
    metadata,
    # A ticket whose reports are told by a topic, until all are told. It may be none of this log, if it was refused.
    Column("ticket_id", Uuid, primary_key=True),
    Column("executor", Text, nullable=False),
    # Whether its sender was told that it is here, and the last report that was told.
    Column("is_received_told", Boolean, nullable=False, server_default=text("false")),
    Column("attempt", Integer, nullable=False, server_default=text("-1")),
    Column("number", Integer, nullable=False, server_default=text("0")),
    # Why a ticket of this id was refused, until that is told.
    Column("refusal", JSONB),
    Index("wired_ticket_executor", "executor"),
)
