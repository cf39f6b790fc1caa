"""A process that is paused: it has its own thread, and stops where it was told to until it is woken up.

Only one of them runs at a time: a thread that starts or wakes it waits until it stops again or has ended.
"""

import threading
from collections.abc import Callable

from tests.simulation.process import HANDOVER_S_MAX, Pause
from tests.simulation.world import Runner


class Sleeper:
    """``runner`` does ``act`` up to ``pause``, or to its end if it never reaches ``pause``."""

    def __init__(self, runner: Runner, act: Callable[[Runner], object], pause: Pause) -> None:
        self.runner = runner
        self._error: BaseException | None = None
        self._ended = threading.Event()
        runner.process.pause = pause
        self._thread = threading.Thread(target=self._work, args=(act,), daemon=True)
        self._thread.start()
        self._wait()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def holds_a_lease(self) -> bool:
        """Whether it took a lease before it was paused, and has not given it back."""
        made = self.runner.process.calls[:-1]
        return not self.has_ended and made.count("leases.take") > made.count("leases.release")

    def wake(self, until: Pause | None = None) -> None:
        """Let it go on, to its end or to the next pause. Does nothing if it has ended."""
        if self.has_ended:
            return
        before, self.runner.process.pause = self._pause, until or _never()
        before.woken.set()
        self._wait()

    def step(self) -> None:
        """Let it make the call that it was paused before, and stop before the next one."""
        self.wake(Pause(len(self.runner.process.calls)))

    def kill(self) -> None:
        """End its thread; its later calls have no effect."""
        self.runner.process.kill()
        self._thread.join(HANDOVER_S_MAX)

    @property
    def _pause(self) -> Pause:
        pause = self.runner.process.pause
        assert pause is not None
        return pause

    def _work(self, act: Callable[[Runner], object]) -> None:
        try:
            act(self.runner)
        except BaseException as error:  # noqa: BLE001  raised where somebody waits for it
            self._error = error
        self._ended.set()
        self._pause.reached.set()

    def _wait(self) -> None:
        if not self._pause.reached.wait(HANDOVER_S_MAX):
            raise AssertionError(f"{self.runner.process.name} neither stops nor ends")
        if self.has_ended:
            self._thread.join(HANDOVER_S_MAX)
        if self._error is not None:
            error, self._error = self._error, None
            raise error


def _never() -> Pause:
    return Pause(-1)
