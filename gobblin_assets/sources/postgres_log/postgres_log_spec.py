"""A job's options for the change log of a Postgres database."""

import hashlib
import re
from typing import Final, Literal

from pydantic import Field

from gobblin_assets.spec.job_spec import DatasetSpec
from gobblin_assets.spec.source_spec import LogSourceSpec
from gobblin_assets.spec.spec_model import SpecModel

_SLOT_LENGTH_MAX: Final = 63
_DIGITS: Final = 8


class PostgresLogSourceSpec(LogSourceSpec):
    """The changes of the tables of one publication, as one replication slot gives them."""

    type: Literal["postgres_log"] = "postgres_log"
    connection: str = Field(description="Name of a connection resource to the database that has the publication.")
    include: tuple[str, ...] = Field((), description="Patterns of the publication's tables, from discovery.")
    publication: str = Field(min_length=1, description="CREATE PUBLICATION … made it: it says which tables are read.")
    slot: str | None = Field(
        None,
        pattern=r"^[a-z0-9_]{1,63}$",
        description="The replication slot, which no other program may read. Default: gobblin_ and the job's name.",
    )
    first_copy: bool = Field(
        True, description="Begin with a copy of what each table holds already. false: only what changes from now on."
    )

    copy_rows: int = Field(
        10_000_000,
        ge=1,
        description="A copy of a table with more rows is published in ranges of about so many, by its integer key.",
    )

    @property
    def is_one_stream(self) -> bool:
        return True

    def slot_of(self, job: str) -> str:
        """The slot's name. Letters that slots can't have are replaced, and then a digest tells jobs apart."""
        if self.slot is not None:
            return self.slot
        plain = re.sub(r"[^a-z0-9_]", "_", job.lower())
        name = f"gobblin_{plain}"
        if plain == job and len(name) <= _SLOT_LENGTH_MAX:
            return name
        digest = hashlib.sha256(job.encode()).hexdigest()[:_DIGITS]
        return f"{name[: _SLOT_LENGTH_MAX - _DIGITS - 1]}_{digest}"


class LoggedOptions(SpecModel):
    """Further options of a dataset of a change log."""

    message: str | None = Field(
        None,
        min_length=1,
        description="The prefix of messages that somebody writes by pg_logical_emit_message; instead of a table.",
    )


def message_of(dataset: DatasetSpec) -> str | None:
    """The prefix of the dataset's messages; None: it is a table."""
    found = (dataset.model_extra or {}).get("message")
    return found if isinstance(found, str) else None
