"""Turns Spark's errors into the error families, with one line of their text; the driver's log has all of it.

A library that nobody has imported raises nothing, and to import these takes long: a run without Spark never does.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.s3.s3_settings import PREFIX
from gobblin_assets.run.job_kind import SessionLostError
from gobblin_assets.spark.python_workers import explain_python_failure
from gobblin_assets.spark.spark_settings import hide_tokens

# `java.nio.file.AccessDeniedException: s3://b/a: open s3://…`, and on Connect `(java.nio.file.Access…) s3://b/a: …`.
_DENIED: Final = re.compile(r"\bAccessDeniedException[:)] `?(s3a?://.*?)'?: ")
_NO_KEYS: Final = re.compile(r"\b(?:NoAuthWithAWSException|NoAwsCredentialsException)\b")
_NO_BUCKET: Final = re.compile(r"\bUnknownStoreException[:)] `?s3a?://([^/'\s]+)")

_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|[Jj]ob \d+ cancelled")

LINE_LENGTH_MAX: Final = 400
"""Enough characters for the error's sentence, without the query plan that may follow it."""

_REFUSALS: Final = ("AnalysisException", "IllegalArgumentException", "PySparkValueError")
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )(.*)", re.MULTILINE)


def explain_s3_failure(text: str, *, action: str) -> RejectedError | None:
    """The refusal of a store, in the words of Hadoop's S3A. None: ``text``, of an error of Spark's, says else."""
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


class _GivenUp:
    """The reason why the last watch (``starvation``) of this process cancelled work; None since tasks ran again."""

    reason: str | None = None


GIVEN_UP: Final = _GivenUp()


def explain_starvation(text: str, *, action: str) -> RejectedError | None:
    """The refusal for an action that a watch cancelled; None: ``text``, of an error of Spark's, has another cause."""
    reason = GIVEN_UP.reason
    if reason is None or not _CANCELLED.search(text):
        return None
    return RejectedError(
        f"Spark can't {action}: {reason}",
        field="spark.master",
        hint="Start workers there, or free cores: the master's page shows which applications have them, and "
        "--conf spark.cores.max=N limits one. A master that was started anew wants the application to be started anew. "
        "GOBBLIN_SPARK_WAIT_S gives it longer.",
    )


def spark_raises() -> tuple[type[Exception], ...]:
    """The exceptions that Spark's API may raise; a ConnectionError if the JVM of this process is gone."""
    return (
        *_imported("pyspark.errors", "PySparkException"),
        *_imported("py4j.protocol", "Py4JError"),
        *_imported("grpc", "RpcError"),
        ConnectionError,
    )


def first_cause(error: Exception) -> str:
    """The sentence of the innermost cause that the JVM gave, else the first line of the error."""
    text = str(error).strip() or type(error).__name__
    causes = _CAUSE.findall(text)
    return hide_tokens(str(causes[-1] if causes else text.splitlines()[0]).strip())[:LINE_LENGTH_MAX]


def shown_cause(error: Exception) -> Exception | None:
    """The error, to raise another one from; None for one with a token in its text, which Dagster would show."""
    return error if hide_tokens(str(error)) == str(error) else None


def family_of_spark(error: Exception, *, action: str) -> GobblinError:
    """The family to raise instead: a query that Spark refuses is rejected, all else may be tried again."""
    for explain in (explain_s3_failure, explain_starvation, explain_python_failure):
        if (explained := explain(str(error), action=action)) is not None:
            return explained
    message = f"Spark can't {action}: {first_cause(error)}"
    known = _imported("pyspark.errors", "PySparkException")
    if isinstance(error, known) and cast("Any", error).getCondition() == "PATH_ALREADY_EXISTS":
        return ConflictError(message, hint="Paths of attempts are never used twice: find out what made this one.")
    if isinstance(error, _imported("pyspark.errors", *_REFUSALS)):
        return RejectedError(message, field="spark", hint="Correct the expression, column or setting that it names.")
    return RetryableError(message, hint="Spark's log in the work folder has the complete error.")


def session_failure(error: Exception) -> SessionLostError:
    """The error for a session whose server or JVM died: it never comes back, and its settings are gone with it."""
    return SessionLostError(
        f"Spark failed: {first_cause(error)}",
        hint="If its server or JVM is gone, start that again, then repeat this command: it goes on where it ended.",
    )


def is_server_gone(error: BaseException | None) -> bool:
    """Whether the error, or a cause of it, is that a Connect server did not answer within the retries."""
    # An error that was raised from itself is its own cause.
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _imported("pyspark.errors", "RetriesExceeded")):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def spark_families(action: str) -> Iterator[None]:
    """Raise Spark's errors in the block as one of the families."""
    try:
        yield
    except spark_raises() as error:
        raise family_of_spark(error, action=action) from shown_cause(error)


def _imported(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Classes of a module, if it is imported."""
    found = sys.modules.get(module)
    return () if found is None else tuple(getattr(found, name) for name in names)
