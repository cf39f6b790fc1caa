"""Single calls to a Spark Connect server, without a session of PySpark's and its minutes of retries."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import grpc
from pyspark.sql.connect import proto
from pyspark.sql.connect.client import DefaultChannelBuilder

from gobblin_assets.errors import RetryableError
from gobblin_assets.ingest.spark.settings import hide_parameters

ANSWER_S_MAX: Final = 10.0
"""For one call to a server that may be busy."""

INTERRUPT_TRIES_MAX: Final = 50
INTERRUPT_PAUSE_S: Final = 0.2
"""An interrupted operation needs a moment to end; after ten seconds the caller is told that it did not."""

_CLIENT: Final = "gobblin_assets"
_SESSION_GONE: Final = ("SESSION_CLOSED", "SESSION_NOT_FOUND", "SESSION_CHANGED")


def answers(url: str) -> bool:
    """Whether an authenticated call for the server's version comes back."""
    ours: dict[str, Any] = {
        "session_id": str(uuid4()),
        "client_type": _CLIENT,
        "user_context": proto.UserContext(user_id=_CLIENT),
    }
    request = proto.AnalyzePlanRequest(**ours, spark_version=proto.AnalyzePlanRequest.SparkVersion())
    try:
        with _calls(url) as (stub, options):
            stub.AnalyzePlan(request, **options)
            stub.ReleaseSession(proto.ReleaseSessionRequest(**ours), **options)
    except grpc.RpcError:
        return False
    return True


def interrupt(url: str, *, session_id: str, user_id: str, tag: str) -> int:
    """Interrupt what runs under ``tag`` in that session, whoever opened it, and ask until nothing runs.

    The number of operations that were found at first. A session that the server has closed or forgotten runs
    nothing. RetryableError where the server does not answer or an operation does not end.
    """
    request = proto.InterruptRequest(
        session_id=session_id,
        user_context=proto.UserContext(user_id=user_id),
        client_type=_CLIENT,
        interrupt_type=proto.InterruptRequest.INTERRUPT_TYPE_TAG,
        operation_tag=tag,
    )
    found: set[str] = set()
    try:
        with _calls(url) as (stub, options):
            for _ in range(INTERRUPT_TRIES_MAX):
                running = set(stub.Interrupt(request, **options).interrupted_ids)
                if not running:
                    return len(found)
                found |= running
                time.sleep(INTERRUPT_PAUSE_S)
    except grpc.RpcError as error:
        if any(code in str(error) for code in _SESSION_GONE):
            return len(found)
        raise RetryableError(f"can't interrupt {tag} at {hide_parameters(url)}: {_code(error)}") from error
    raise RetryableError(f"what runs under {tag} at {hide_parameters(url)} does not end", operations=sorted(found))


@contextmanager
def _calls(url: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        stub = proto.SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
        yield stub, {"metadata": builder.metadata(), "timeout": ANSWER_S_MAX}


def _code(error: grpc.RpcError) -> str:
    return str(error.code().name) if isinstance(error, grpc.Call) else type(error).__name__
