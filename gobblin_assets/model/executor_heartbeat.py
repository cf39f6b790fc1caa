"""Heartbeats of executors as values: what a process that takes tickets can do, and how much of it is free."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import LogId

HEARTBEAT_EVERY_S: Final = 10.0
SILENT_AFTER_S: Final = 30.0
"""An executor that was heard once, and then for so long no more, is taken for dead."""

_NAME_LENGTH_MAX: Final = 300
_LIST_MAX: Final = 2_000
_NUMBER_MAX: Final = 1_000_000_000


class ExecutorPhase(StrEnum):
    """DRAINING: it takes no further tickets. ENDED: its last heartbeat, when nothing of it runs any more."""

    WORKING = "WORKING"
    DRAINING = "DRAINING"
    ENDED = "ENDED"


@dataclass(frozen=True, slots=True)
class ExecutorHeartbeat:
    """A heartbeat of one process (``owner``) of the executor of a name.

    ``slots``: tickets at once; ``workers_max``: of these or beside these, workers at once; None: a worker is a ticket
    like others. ``pack_max``: so many small tickets are run in one slot. ``capabilities``: words such as ingest.jdbc.

    ``connections``: such as jdbc.shop, and ``file_systems``: schemes such as s3, that the process has in its
    environment, by name alone; None: it does not say. ``daemons``: the age of the last heartbeat of each daemon of
    Dagster, in seconds.
    """

    executor: str
    owner: str
    log_id: LogId
    release: str
    slots: int
    capabilities: frozenset[str]
    technology: str = "process"
    phase: ExecutorPhase = ExecutorPhase.WORKING
    workers_max: int | None = None
    pack_max: int = 1
    connections: frozenset[str] | None = None
    file_systems: frozenset[str] | None = None
    daemons: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeardHeartbeat:
    """The last heartbeat of a process, and the inbox of the executor's name when it came.

    ``heard_ago_s``: by the clock of whatever keeps it. ``waiting``: tickets that nobody works on; ``working``: those
    that somebody works on; of both, no questions.
    """

    beat: ExecutorHeartbeat
    heard_ago_s: float
    waiting: int
    working: int


def heartbeat_to_json(beat: ExecutorHeartbeat) -> dict[str, object]:
    return {
        "executor": beat.executor,
        "owner": beat.owner,
        "log_id": str(beat.log_id),
        "release": beat.release,
        "technology": beat.technology,
        "phase": beat.phase.value,
        "slots": beat.slots,
        "workers_max": beat.workers_max,
        "pack_max": beat.pack_max,
        "capabilities": sorted(beat.capabilities),
        "connections": None if beat.connections is None else sorted(beat.connections),
        "file_systems": None if beat.file_systems is None else sorted(beat.file_systems),
        "daemons": dict(beat.daemons),
    }


def heartbeat_from_json(data: object) -> ExecutorHeartbeat:
    """The same, back. What a newer release adds is left out. RejectedError names the field."""
    if not isinstance(data, Mapping):
        raise RejectedError(f"expected an object, found {type(data).__name__}", field="heartbeat")
    workers_max = data.get("workers_max")
    return ExecutorHeartbeat(
        executor=_text(data, "executor"),
        owner=_text(data, "owner"),
        log_id=_log_id(data.get("log_id")),
        release=_text(data, "release"),
        technology=_text(data, "technology", "process"),
        phase=_phase(data.get("phase", ExecutorPhase.WORKING)),
        slots=_number(data.get("slots"), "slots"),
        workers_max=None if workers_max is None else _number(workers_max, "workers_max"),
        pack_max=_number(data.get("pack_max", 1), "pack_max"),
        capabilities=_names(data, "capabilities") or frozenset(),
        connections=_names(data, "connections"),
        file_systems=_names(data, "file_systems"),
        daemons=_daemons(data.get("daemons", {})),
    )


def _refuse(name: str, expected: str, found: object) -> RejectedError:
    return RejectedError(
        f"expected {expected}, found {found!r:.80}",
        field=f"heartbeat.{name}",
        hint="Install one release of the executor and the service.",
    )


def _text(data: Mapping[Any, Any], name: str, default: str | None = None) -> str:
    return _check_text(data.get(name, default), name)


def _check_text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _NAME_LENGTH_MAX or not value.isprintable():
        raise _refuse(name, f"a text of 1 to {_NAME_LENGTH_MAX} characters", value)
    return value


def _log_id(value: object) -> LogId:
    try:
        return LogId(uuid.UUID(str(value)))
    except ValueError:
        raise _refuse("log_id", "a UUID", value) from None


def _phase(value: object) -> ExecutorPhase:
    try:
        return ExecutorPhase(str(value))
    except ValueError:
        raise _refuse("phase", f"one of {', '.join(ExecutorPhase)}", value) from None


def _number(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _NUMBER_MAX:
        raise _refuse(name, f"a number from 0 to {_NUMBER_MAX:,}", value)
    return value


def _names(data: Mapping[Any, Any], name: str) -> frozenset[str] | None:
    values = data.get(name)
    if values is None:
        return None
    if not isinstance(values, Iterable) or isinstance(values, str) or len(listed := list(values)) > _LIST_MAX:
        raise _refuse(name, f"a list of at most {_LIST_MAX:,} names", values)
    return frozenset(_check_text(each, name) for each in listed)


def _daemons(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping) or len(values) > _LIST_MAX:
        raise _refuse("daemons", "an object", values)
    return {_check_text(name, "daemons"): _age(age_s) for name, age_s in values.items()}


def _age(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
        raise _refuse("daemons", "an age in seconds", value)
    return float(value)
