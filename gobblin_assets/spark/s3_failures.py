"""Refusals of a store to Spark, in the words of Hadoop's S3A, which classic sessions and Connect write differently."""

import re
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.s3.s3_settings import PREFIX

# `java.nio.file.AccessDeniedException: s3://b/a: open s3://…`, and on Connect `(java.nio.file.Access…) s3://b/a: …`.
_DENIED: Final = re.compile(r"\bAccessDeniedException[:)] `?(s3a?://.*?)'?: ")
_NO_KEYS: Final = re.compile(r"\b(?:NoAuthWithAWSException|NoAwsCredentialsException)\b")
_NO_BUCKET: Final = re.compile(r"\bUnknownStoreException[:)] `?s3a?://([^/'\s]+)")


def explain_s3_failure(text: str, *, action: str) -> RejectedError | None:
    """The refusal that ``text``, of an error of Spark's, tells of. None: it tells of none, or of something else."""
    if missing := _NO_BUCKET.search(text):
        return RejectedError(
            f"Spark can't {action}: there is no bucket {missing[1]}",
            field="destination",
            hint=f"Correct the name, or {PREFIX}ENDPOINT_URL.",
        )
    denied = _DENIED.search(text)
    if denied is None:
        return None
    found = "Spark's processes have no keys for" if _NO_KEYS.search(text) else "the store denies access to"
    return RejectedError(
        f"Spark can't {action}: {found} {denied[1]}",
        field=f"{PREFIX}ACCESS_KEY_ID",
        hint="Correct the keys in the environment of Spark's processes: the driver, and each machine's executors. "
        "They have none of this command's (docs/STORES_REFERENCE.md). "
        "Or give them the rights to list the bucket and read it.",
    )
