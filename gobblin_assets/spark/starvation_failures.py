"""Actions of Spark that a watch (``starvation``) cancelled, because the cluster ran none of their tasks."""

import re
from typing import Final

from gobblin_assets.errors import RejectedError

_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|OPERATION_CANCELED|[Jj]ob \d+ cancelled")


class _GivenUp:
    """Why the last watch of this process cancelled its session's work; None since tasks ran again."""

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
