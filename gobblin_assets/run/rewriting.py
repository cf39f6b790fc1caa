"""The port of compaction: what writes published rows anew. Spark implements it (``jobs.ingest.rewriter``)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gobblin_assets.commit.published.port import PublishedSegment
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.extraction import OutputDirectory, SessionFacts


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """Write the rows of ``segments``, all of one role and schema, below ``directory``, which does not exist yet.

    ``tag`` names the work to who interrupts it.
    """

    job: JobName
    urn: DatasetUrn
    role: Role
    segments: Sequence[PublishedSegment]
    directory: str
    file_bytes: int
    compression: str
    tag: str


class Rewriter(Protocol):
    """What reads published files and writes the same rows into fewer ones; Spark implements it."""

    def session_facts(self) -> SessionFacts: ...

    def rewrite(self, order: RewriteOrder) -> Sequence[OutputDirectory]:
        """The directories that were written, complete and not yet durable; whatever was raised, they may hold anything.

        CorruptionError if the rows that were written are not those that were read.
        """
        ...
