"""Which answers of a Connect server are asked for again."""

import grpc
import pytest

from gobblin_assets.spark.session import ConnectPatience


class Answer(grpc.RpcError):
    """An error of a call, as gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


@pytest.mark.parametrize(
    ("answer", "is_repeated"),
    [
        (Answer(grpc.StatusCode.UNAVAILABLE, "connection refused"), True),
        (Answer(grpc.StatusCode.INTERNAL, "INTERNAL: Encountered end-of-stream mid-frame"), True),
        (Answer(grpc.StatusCode.INTERNAL, "a NullPointerException"), False),
        (Answer(grpc.StatusCode.INVALID_ARGUMENT, "no such column"), False),
    ],
)
def test_what_was_not_done_is_asked_for_again(answer: Answer, *, is_repeated: bool) -> None:
    assert ConnectPatience().can_retry(answer) is is_repeated
