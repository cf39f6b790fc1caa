"""Who of a cluster is killed, stopped or cut off, when and for how long: a plan by a seed, and who carries it out."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import psutil

from demo.kafka.broker import KafkaBroker
from tests.torture.cluster_machines import BESIDE, CODE_SERVER, DAEMON, ClusterMachines
from tests.torture.cluster_places import AIRPORT, OFFICE, WAREHOUSE
from tests.torture.cluster_programs import Program, send


class ClusterVictim(StrEnum):
    """Whom a fault meets. ATTEMPT: a process of an executor, which works on a ticket; RUN: a run of Dagster's.

    WIRE: the process beside a Dagster, which has its wires and answers questions.
    """

    NODE = "node"
    EXECUTOR = "executor"
    ATTEMPT = "attempt"
    DAGSTER = "all of a Dagster"
    DAEMON = "Dagster's daemon"
    CODE_SERVER = "Dagster's code server"
    RUN = "Dagster's run"
    WIRE = "wire"
    BROKER = "Kafka broker"
    CONNECTIONS = "connections to Postgres"


class Fault(StrEnum):
    """What happens to a victim. LONG_STOP: past its leases and claims."""

    KILL = "SIGKILL"
    STOP = "SIGSTOP"
    LONG_STOP = "SIGSTOP past its leases"
    CUT = "cut"


OF_DAGSTER: Final = frozenset(
    {
        *(ClusterVictim.DAGSTER, ClusterVictim.DAEMON, ClusterVictim.CODE_SERVER),
        *(ClusterVictim.RUN, ClusterVictim.WIRE),
    }
)
_WHOLE: Final = frozenset({ClusterVictim.NODE, ClusterVictim.EXECUTOR, ClusterVictim.DAGSTER})
"""Killed with all that they have started."""


# By how much work it is to come back: processes of a Dagster start for a long time.
_WEIGHTS: Final[Mapping[ClusterVictim, int]] = {
    ClusterVictim.NODE: 20,
    ClusterVictim.EXECUTOR: 9,
    ClusterVictim.ATTEMPT: 34,
    ClusterVictim.DAGSTER: 2,
    ClusterVictim.DAEMON: 1,
    ClusterVictim.CODE_SERVER: 2,
    ClusterVictim.RUN: 12,
    ClusterVictim.WIRE: 6,
    ClusterVictim.BROKER: 4,
    ClusterVictim.CONNECTIONS: 10,
}
_STOPPED: Final = 0.12
_LONG: Final = 0.4
_REST_S: Final = (0.5, 5.0)
_DOWN_S: Final = (0.3, 6.0)
_STOP_S: Final = (0.5, 4.0)
_LONG_STOP_S: Final = {ClusterVictim.RUN: 35.0}
_LONG_STOP_S_DEFAULT: Final = 14.0
_CUT_S: Final = (0.2, 3.0)
_PART_S: Final = 20.0
"""So long a Dagster has to replace a part of it by itself."""

_RUN_COMMAND: Final = ("api", "execute_run")
_ATTEMPT_COMMAND: Final = "executor run"
_TICK_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """``rest_s``: before it; ``down_s``: until what was met is as before; ``which``: of several, from 0 to 1."""

    rest_s: float
    victim: ClusterVictim
    fault: Fault
    which: float
    down_s: float


def plan_faults(seed: str, victims: "frozenset[ClusterVictim]") -> Iterator[PlannedFault]:
    """Without an end. The same seed gives the same plan."""
    chance = random.Random(f"{seed}/faults")
    among = sorted(victims)
    while True:
        victim = chance.choices(among, [_WEIGHTS[each] for each in among])[0]
        fault = _choose_fault(victim, chance.random(), chance.random())
        if fault is Fault.LONG_STOP:
            down_s = _LONG_STOP_S.get(victim, _LONG_STOP_S_DEFAULT)
        else:
            down_s = chance.uniform(*{Fault.KILL: _DOWN_S, Fault.STOP: _STOP_S, Fault.CUT: _CUT_S}[fault])
        yield PlannedFault(chance.uniform(*_REST_S), victim, fault, chance.random(), down_s)


def _choose_fault(victim: ClusterVictim, first: float, second: float) -> Fault:
    if victim is ClusterVictim.CONNECTIONS:
        return Fault.CUT
    if victim is ClusterVictim.DAGSTER or first >= _STOPPED:
        return Fault.KILL
    return Fault.LONG_STOP if second < _LONG else Fault.STOP


@dataclass
class ClusterDisturber:
    """``met``: how often what happened to whom. ``said``: each fault, with its second."""

    machines: ClusterMachines
    broker: KafkaBroker
    met: Counter[tuple[ClusterVictim, Fault]] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)
    _repairs: list[tuple[float, Callable[[], object]]] = field(default_factory=list)
    _is_broker_down: bool = False

    @property
    def kills(self) -> int:
        return sum(times for (_victim, fault), times in self.met.items() if fault is Fault.KILL)

    def disturb(self, plan: Iterator[PlannedFault], kills: int, until: float) -> None:
        """Until so many were killed, or the clock says ``until``."""
        for planned in plan:
            self._live_on(planned.rest_s)
            if self.kills >= kills or time.monotonic() > until:
                return
            if self._strike(planned):
                self.met[planned.victim, planned.fault] += 1
                second = time.monotonic() - self._begun
                self.said.append(f"{second:6.1f} s  {planned.victim}: {planned.fault}, {planned.down_s:.1f} s")

    def heal(self) -> None:
        """Whatever is down is started, and nothing is stopped or cut off any more."""
        while self._repairs:
            self._repairs.pop(0)[1]()
        self._restart_the_ended()

    def _live_on(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._restart_the_ended()
            now = time.monotonic()
            due = [each for each in self._repairs if each[0] <= now]
            self._repairs = [each for each in self._repairs if each[0] > now]
            for _at, repair in due:
                repair()
            if now >= until:
                return
            time.sleep(_TICK_S)

    def _restart_the_ended(self) -> None:
        for each in self.machines.programs:
            if each.notice_end():
                each.start()

    def _after(self, seconds: float, repair: Callable[[], object]) -> None:
        self._repairs.append((time.monotonic() + seconds, repair))

    def _strike(self, planned: PlannedFault) -> bool:
        """Whether there was somebody to meet."""
        if planned.victim is ClusterVictim.CONNECTIONS:
            return self._cut(planned)
        if planned.victim is ClusterVictim.BROKER:
            return self._strike_broker(planned)
        programs = [each for each in self._list_programs(planned.victim) if each.is_alive]
        if not programs:
            return False
        program = programs[int(planned.which * len(programs))]
        if planned.fault is Fault.KILL and planned.victim in _WHOLE:
            program.kill()
            self._after(planned.down_s, program.start)
            return True
        parts = self._list_parts(planned.victim, program)
        if not parts:
            return False
        part = parts[int(planned.which * 7919 % 1 * len(parts))]
        if planned.fault is Fault.KILL:
            program.kill_part(part)
            if planned.victim in OF_DAGSTER - {ClusterVictim.RUN}:
                self._after(_PART_S, lambda: _make_whole(program))
        else:
            send(part, signal.SIGSTOP)
            self._after(planned.down_s, lambda: send(part, signal.SIGCONT))
        return True

    def _list_programs(self, victim: ClusterVictim) -> list[Program]:
        executors = self.machines.executors
        if victim is ClusterVictim.NODE:
            return self.machines.nodes
        if victim in OF_DAGSTER:
            return [executors[name] for name in (WAREHOUSE, AIRPORT) if name in executors]
        return [executors[OFFICE]]

    @staticmethod
    def _list_parts(victim: ClusterVictim, program: Program) -> list[psutil.Process]:
        match victim:
            case ClusterVictim.NODE | ClusterVictim.EXECUTOR:
                main = program.main
                return [] if main is None else [main]
            case ClusterVictim.ATTEMPT:
                return program.find(_ATTEMPT_COMMAND)
            case ClusterVictim.DAEMON:
                return program.find(*DAEMON)
            case ClusterVictim.CODE_SERVER:
                return program.find(*CODE_SERVER)
            case ClusterVictim.RUN:
                return program.find(*_RUN_COMMAND)
            case ClusterVictim.WIRE:
                return program.find(*BESIDE)
            case _:
                raise ValueError(victim)

    def _cut(self, planned: PlannedFault) -> bool:
        proxies = sorted(self.machines.places.proxies.items())
        _name, proxy = proxies[int(planned.which * len(proxies))]
        if proxy.cut_after is not None:
            return False
        proxy.cut_after = 0

        def repair() -> None:
            proxy.cut_after = None

        self._after(planned.down_s, repair)
        return True

    def _strike_broker(self, planned: PlannedFault) -> bool:
        if self._is_broker_down:
            return False
        self._is_broker_down = True
        if planned.fault is Fault.KILL:
            self.broker.kill()
        else:
            self.broker.pause()

        def repair() -> None:
            if planned.fault is Fault.KILL:
                self.broker.restart()
            else:
                self.broker.resume()
            self._is_broker_down = False

        self._after(planned.down_s, repair)
        return True


def _make_whole(program: Program) -> None:
    """What an administrator does who sees that a Dagster lacks a part."""
    if program.is_alive and not program.is_whole():
        program.kill()
        program.start()
