"""Names of datasets and jobs, and the roles of a dataset's files.

A name is kept exactly as a person wrote it; ``path_names`` derives paths and asset keys from it, and can reverse this.
"""

import re
from enum import StrEnum
from typing import Final, NewType

from gobblin_assets.errors import RejectedError

DatasetUrn = NewType("DatasetUrn", str)
"""Any text that ``parse_urn`` lets through; unique within its job."""

JobName = NewType("JobName", str)
"""Letters, digits and underscores: what Dagster takes as the name of an op."""

URN_BYTES_MAX: Final = 1_024
"""Percent-encoded three to one, and with the dataset's root before it, this still fits Linux's 4,096-byte paths."""

JOB_NAME_LENGTH_MAX: Final = 100

_JOB_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class Role(StrEnum):
    """The role of a file in its dataset. All roles share the dataset's lease, version and sequences."""

    DATA = "data"
    QUARANTINE = "quarantine"
    DEAD_LETTER = "dead_letter"


def parse_urn(text: str) -> DatasetUrn:
    """Accept 1 to 1,024 UTF-8 bytes of any text without NUL. Raises RejectedError."""
    if not text:
        raise RejectedError("expected a dataset's name, found an empty text", field="urn", hint="Give it a name.")
    shown = ascii(text[:80])
    try:
        size_bytes = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise RejectedError(
            f"expected valid Unicode, found a lone surrogate at position {error.start} of {shown}",
            field="urn",
            hint="Decode the name with the encoding that it was written in.",
        ) from error
    if "\0" in text:
        raise RejectedError(
            f"expected text without NUL characters, found one in {shown}",
            field="urn",
            hint="Remove it: neither Postgres nor a file system can store it.",
        )
    if size_bytes > URN_BYTES_MAX:
        raise RejectedError(
            f"expected at most {URN_BYTES_MAX} bytes of UTF-8, found {size_bytes} in {shown}…",
            field="urn",
            hint="Give the dataset a shorter name.",
        )
    return DatasetUrn(text)


def parse_job_name(text: str) -> JobName:
    """Accept 1 to 100 ASCII letters, digits and underscores. Raises RejectedError."""
    if not _JOB_NAME.fullmatch(text) or len(text) > JOB_NAME_LENGTH_MAX:
        raise RejectedError(
            f"expected 1 to {JOB_NAME_LENGTH_MAX} letters, digits or underscores, found {text[:120]!a}",
            field="job",
            hint="Dagster names an op after the job and takes nothing else.",
        )
    return JobName(text)
