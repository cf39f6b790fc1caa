"""Shares of rates that several drivers keep together."""

from sqlalchemy import UUID, CheckConstraint, Column, Integer, Table, Text

from gobblin_assets.db.table_metadata import metadata, moment

rate_share = Table(
    "rate_share",
    metadata,
    Column("name", Text, primary_key=True),
    Column("share", Integer, primary_key=True, autoincrement=False),
    # One copy of one file set, by an id of its own.
    Column("holder", UUID, nullable=False),
    # The whole rate as the holder was told; live holders of one name agree.
    Column("definition", Text, nullable=False),
    # A share that ran out is free; its row gives way to the next holder's.
    moment("expires_at", nullable=False),
    CheckConstraint("share > 0", name="share"),
)
