"""Names of jobs and datasets, stored exactly as given."""

import re
from enum import StrEnum
from typing import NewType

from gobblin_assets.errors import RejectedError

DatasetUrn = NewType("DatasetUrn", str)
JobName = NewType("JobName", str)

# Postgres' unique index holds rows of at most about 2,700 bytes; a path and an asset key must fit as well.
URN_BYTES_MAX = 1024
# A job's name becomes part of a Dagster op's name, which allows nothing else.
_JOB_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")


class Role(StrEnum):
    """What a dataset's files are. Roles share the lease, the version and the sequence, never a directory."""

    DATA = "data"
    QUARANTINE = "quarantine"
    DEAD_LETTER = "dead_letter"


def parse_urn(text: str) -> DatasetUrn:
    """Accept any text of 1 to 1,024 UTF-8 bytes without NUL; RejectedError otherwise."""
    hint = f"A URN is any text of 1 to {URN_BYTES_MAX} bytes in UTF-8, without NUL."
    try:
        length = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise RejectedError("the URN is not valid Unicode text", field="urn", hint=hint) from None
    if not 1 <= length <= URN_BYTES_MAX:
        raise RejectedError(f"the URN has {length} bytes", field="urn", hint=hint)
    if "\x00" in text:
        raise RejectedError("the URN holds a NUL character", field="urn", hint=hint)
    return DatasetUrn(text)


def parse_job_name(text: str) -> JobName:
    """Accept what Dagster accepts as an op's name; RejectedError otherwise."""
    if not _JOB_NAME.fullmatch(text):
        raise RejectedError(
            f"{text!r} is not a job name",
            field="job",
            hint="Use 1 to 100 letters, digits and underscores.",
        )
    return JobName(text)
