"""Threads of which one runs at a time: each goes on for so many calls of its ports, and waits for its next turn.

A history of several processes is then a function of the order of their turns.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.errors import GobblinError
from tests.simulation.process import KilledError, Process

_CALLS_PER_BEAT = 20


@dataclass
class SeenProcess(Process):
    """``look`` is called after each effect, whether it succeeded or was refused. ``next_call``: the one it waits at."""

    look: Callable[[], None] = lambda: None
    next_call: str = ""

    def call(self, label: str, effect: Callable[[], Any]) -> Any:
        if not self._in_hook:
            self.next_call = label
        return super().call(label, effect)

    def _carry_out(self, label: str, effect: Callable[[], Any]) -> Any:
        try:
            return super()._carry_out(label, effect)
        finally:
            self.look()


@dataclass(eq=False)
class Actor:
    """A process of its own thread, which does ``work`` and ends. ``lines``: what it said.

    ``failure`` is what ended it, unless that was an ``error`` of the product's families, or it was killed.
    """

    process: SeenProcess
    work: Callable[[], None]
    lines: list[str] = field(default_factory=list)
    is_over: bool = False
    error: GobblinError | None = None
    failure: BaseException | None = None
    _calls_left: int = 0
    _thread: threading.Thread = field(init=False)
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.process.on_call = self._between_calls
        self._thread = threading.Thread(target=self._run, name=self.process.name, daemon=True)
        self._thread.start()

    def go_on(self, calls: int) -> None:
        """Let it make so many calls, or end. Raises what ended it."""
        self._take_turn(calls)
        if self.failure is not None:
            raise self.failure

    def kill(self) -> None:
        """None of its calls has an effect any more."""
        self.process.kill()
        self._take_turn(1)

    def beat(self) -> None:
        """The heartbeat of its leases, while its other thread waits between two calls."""
        for keeper in self.process.keepers:
            try:
                keeper.beat()
            except AssertionError:
                # Of the world; all else the product's thread of heartbeats outlives as well.
                raise
            except Exception as error:  # noqa: BLE001  as that thread does
                self.lines.append(str(error))

    def _take_turn(self, calls: int) -> None:
        if not self.is_over:
            self._calls_left = calls
            self._go.release()
            self._back.acquire()
            if self.is_over:
                self._thread.join()

    def _between_calls(self, process: Process) -> None:
        """A heartbeat's own call comes here no second time."""
        if len(process.calls) % _CALLS_PER_BEAT == _CALLS_PER_BEAT - 1:
            self.beat()
        if self._calls_left == 0:
            self._back.release()
            self._go.acquire()
        if process.dead:
            raise KilledError(process.name)
        self._calls_left -= 1

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.work()
        except KilledError:
            pass
        except GobblinError as error:
            self.error = error
            self.lines.append(f"{type(error).__name__}: {error}")
        except BaseException as failure:  # noqa: BLE001  the test's own thread raises it
            self.failure = failure
        finally:
            self.is_over = True
            self._back.release()
