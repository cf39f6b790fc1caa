"""Ends runs that follow logs: when their time is over, or when somebody terminates them."""

import time

from gobblin_assets.run.stop_signals import StopRequest
from gobblin_assets.run.streaming import WaitForStop


def say_nothing(_line: str) -> None:
    """Nothing is said from inside a signal's handler, which may have come between any two steps of a log."""


def wait_until_over(stop: StopRequest, seconds: float) -> WaitForStop:
    """Until the time is over, or the run's termination asks for it."""
    end_s = time.monotonic() + seconds

    def wait(wait_s: float) -> bool:
        left_s = end_s - time.monotonic()
        return left_s <= 0 or stop.wait(min(wait_s, left_s)) or time.monotonic() >= end_s

    return wait
