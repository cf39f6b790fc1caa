"""A process of the simulated world: all of its calls of ports go through here, where faults happen.

The product's code runs unchanged. Its ports are ``Watched`` wrappers of the fakes, which count a process's calls in
order; a ``Fault`` is planned for the n-th call. A killed process raises ``KilledError`` out of that call, and again out
of every later call: what its ``finally`` blocks still try has no effect, as if the process were dead.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from io import IOBase
from typing import Any, Final, NoReturn

from gobblin_assets.errors import ConflictError, FencedError, OutcomeUnknownError, RetryableError
from gobblin_assets.state.leases import LeaseKeeper

HANDOVER_S_MAX: Final = 60.0
"""Only a world that hangs waits so long."""


class Fault(StrEnum):
    """What happens at one call."""

    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    ERROR = "error, nothing happened"
    UNKNOWN = "took effect, reported an error"
    REPEATED = "took effect, acknowledgement lost, sent again"

    @property
    def kills(self) -> bool:
        return self in (Fault.KILLED_BEFORE, Fault.KILLED_AFTER)


@dataclass(frozen=True)
class Raised:
    """A fault as well: the call raises what is of no family, before its effect or behind it."""

    error: Exception
    has_effect: bool


Faults = Mapping[int, Fault | Raised]
"""By the numbers of calls."""
NO_FAULTS: Final[Faults] = {}


class KilledError(BaseException):
    """The process is dead. No ``except Exception`` of the product catches it."""


@dataclass
class Pause:
    """The process stops before its n-th call, from 0, until it is woken up. ``label``: only such calls count."""

    call: int
    label: str | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    woken: threading.Event = field(default_factory=threading.Event)

    def is_due(self, calls: Sequence[str]) -> bool:
        """Whether the process stops before the last of ``calls``."""
        if self.label is None:
            return len(calls) - 1 == self.call
        return calls[-1] == self.label and calls.count(self.label) - 1 == self.call


@dataclass
class Process:
    """``faults`` maps the number of a call, from 0, to its fault.

    ``on_call`` runs between calls: the world's heartbeats, which are calls themselves, and the checker's looks.
    ``refusals`` are the calls that ended with FencedError or ConflictError.
    """

    name: str
    faults: Faults = field(default_factory=dict)
    pause: Pause | None = None
    on_call: Callable[["Process"], None] | None = None
    calls: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    keepers: list[LeaseKeeper] = field(default_factory=list)
    dead: bool = False
    _in_hook: bool = False

    def call(self, label: str, effect: Callable[[], Any]) -> Any:
        """Make one call of a port, with the fault that is planned for it."""
        self._require_alive()
        if self.on_call is not None and not self._in_hook:
            self._in_hook = True
            try:
                self.on_call(self)
            finally:
                self._in_hook = False
        number = len(self.calls)
        self.calls.append(label)
        # Whoever hears that it is reached may give the process its next pause at once.
        pause = self.pause
        if pause is not None and pause.is_due(self.calls):
            pause.reached.set()
            if not pause.woken.wait(HANDOVER_S_MAX):
                raise AssertionError(f"{self.name} was never woken up")
            self._require_alive()
        fault = self.faults.get(number)
        if fault is Fault.KILLED_BEFORE:
            self._die()
        if fault is Fault.ERROR:
            raise RetryableError(f"injected at {label}")
        if isinstance(fault, Raised):
            if fault.has_effect:
                self._carry_out(label, effect)
            raise fault.error
        result = self._carry_out(label, effect)
        if fault is Fault.KILLED_AFTER:
            self._die()
        if fault is Fault.UNKNOWN:
            raise OutcomeUnknownError(f"injected at {label}")
        return self._carry_out(label, effect) if fault is Fault.REPEATED else result

    def _carry_out(self, label: str, effect: Callable[[], Any]) -> Any:
        try:
            return effect()
        except (FencedError, ConflictError) as error:
            self.refusals.append(f"{label}: {error}")
            raise

    def kill(self) -> None:
        """Kill it from outside: every later call finds the process dead."""
        self.dead = True
        if self.pause is not None:
            self.pause.woken.set()

    def _die(self) -> NoReturn:
        self.dead = True
        raise KilledError(self.name)

    def _require_alive(self) -> None:
        if self.dead:
            raise KilledError(self.name)


class Watched:
    """A port whose calls are the process's. Attributes in ``free`` are no calls: they look at nothing outside."""

    def __init__(self, process: Process, prefix: str, port: object, free: frozenset[str] = frozenset()) -> None:
        self.watching = process
        self._prefix = prefix
        self._port = port
        self._free = free

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if name in self._free or not callable(attribute):
            return attribute

        def call(*arguments: Any, **options: Any) -> Any:
            # An iterator could be used up by the first of two tries.
            given = [list(each) if isinstance(each, Iterator) else each for each in arguments]
            result = self.watching.call(f"{self._prefix}.{name}", lambda: _settled(attribute(*given, **options)))
            return iter(result) if isinstance(result, _Settled) else result

        return call


class WatchedFileSystem(Watched):
    """Files that are made together are made one by one, so that faults fall between them."""

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        made: frozenset[str] = frozenset()
        for path, content in contents.items():
            made |= self.__getattr__("write_new")({path: content})
        return made


class _Settled(list[Any]):
    """A generator's results, read inside of the call."""


def _settled(result: Any) -> Any:
    return _Settled(result) if isinstance(result, Iterator) and not isinstance(result, IOBase) else result
