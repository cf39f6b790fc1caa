"""SIGTERM and SIGINT as a request: the first one is noted, the second one acts as without our handler."""

import os
import signal
import threading
from types import FrameType

import pytest

from gobblin_assets.run.own_process import StopRequest, heed_stop_signals

BOTH = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])


@BOTH
def test_the_first_signal_is_a_request_and_the_second_one_interrupts(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    lines: list[str] = []

    def be_told_twice(request: StopRequest) -> None:
        os.kill(os.getpid(), number)
        assert request.wait(30.0)
        assert lines == [f"{number.name}: stopping after the publication under way; once more stops at once"]
        os.kill(os.getpid(), number)
        request.wait(30.0)

    request = StopRequest()
    with heed_stop_signals(lines.append, request):
        assert not request.wait(0)
        with pytest.raises(KeyboardInterrupt):
            be_told_twice(request)
    assert {each: signal.getsignal(each) for each in before} == before


def test_the_second_signal_goes_to_whoever_took_it_before() -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        request = StopRequest()
        with heed_stop_signals(lambda _line: None, request):
            request.make()
            with pytest.raises(Interrupted):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_beside_the_main_thread_no_signal_is_taken() -> None:
    before = signal.getsignal(signal.SIGTERM)
    found: list[bool] = []

    def run() -> None:
        request = StopRequest()
        with heed_stop_signals(lambda _line: None, request):
            found.append(signal.getsignal(signal.SIGTERM) is before)
            found.append(request.wait(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True, False]
