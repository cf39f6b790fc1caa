"""Single calls to a Spark Connect server, without a PySpark session and its minutes of retries."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from uuid import uuid4

import grpc
from pyspark.sql.connect import proto
from pyspark.sql.connect.client import DefaultChannelBuilder

from gobblin_assets.errors import RetryableError
from gobblin_assets.spark.spark_settings import hide_parameters

ANSWER_S_MAX: Final = 10.0
"""The time for one call to a server that may be busy."""

END_S_MAX: Final = 60.0
"""An interrupted operation ends within a second, unless it swallowed the interrupt: then it goes on to its end."""

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
    """Interrupt what runs under ``tag`` in that session, also another client's, and wait until it has ended.

    Returns the number of operations that this call interrupted: a server interrupts each operation once, and does not
    name it again. A session that the server has closed or forgotten runs nothing. RetryableError where the
    server does not answer or an operation does not end.
    """
    ours: dict[str, Any] = {
        "session_id": session_id,
        "client_type": _CLIENT,
        "user_context": proto.UserContext(user_id=user_id),
    }
    request = proto.InterruptRequest(
        **ours, interrupt_type=proto.InterruptRequest.INTERRUPT_TYPE_TAG, operation_tag=tag
    )
    try:
        with _calls(url) as (stub, options):
            found = list(stub.Interrupt(request, **options).interrupted_ids)
            for operation_id in found:
                reattach = proto.ReattachExecuteRequest(**ours, operation_id=operation_id)
                if not _ends(stub.ReattachExecute(reattach, metadata=options["metadata"], timeout=END_S_MAX)):
                    raise RetryableError(f"what runs under {tag} at {hide_parameters(url)} does not end")
    except grpc.RpcError as error:
        if any(code in str(error) for code in _SESSION_GONE):
            return 0
        raise RetryableError(f"can't interrupt {tag} at {hide_parameters(url)}: {_code(error)}") from error
    return len(found)


def _ends(responses: Iterable[object]) -> bool:
    """Follow an operation's responses; False if they are still coming when the call's time is over."""
    try:
        for _ in responses:
            continue
    except grpc.RpcError as error:
        # Any refusal is an end: the operation was cancelled, or the server has dropped it already.
        return _code(error) not in {"DEADLINE_EXCEEDED", "UNAVAILABLE"}
    return True


@contextmanager
def _calls(url: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    builder = DefaultChannelBuilder(url)
    with builder.toChannel() as channel:
        stub = proto.SparkConnectServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code has no types
        yield stub, {"metadata": builder.metadata(), "timeout": ANSWER_S_MAX}


def _code(error: grpc.RpcError) -> str:
    return str(error.code().name) if isinstance(error, grpc.Call) else type(error).__name__
