"""What an executor says of itself: what its packages can do, and what its environment has, by name and with no value.

Any process that takes tickets makes its heartbeats here, whatever its technology.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets import __version__
from gobblin_assets.destinations.iceberg.catalog_address import catalog_variable
from gobblin_assets.errors import OutcomeUnknownError, RetryableError
from gobblin_assets.fs.registry import FILE_SYSTEMS, OBJECT_STORES, SOURCE_TREES
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.executor_heartbeat import HEARTBEAT_EVERY_S, ExecutorHeartbeat, ExecutorPhase
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.sources.environment import connection_class
from gobblin_assets.spec.capabilities import list_known_capabilities
from gobblin_assets.spec.destination_kind import DESTINATION_KINDS
from gobblin_assets.spec.source_kind import SourceKind
from gobblin_assets.spec.source_spec import SOURCES
from gobblin_assets.state.heartbeats import HeartbeatStore

ADDRESS_OF: Final[Mapping[str, str]] = {"jdbc": "URL", "postgres_log": "URL", "kafka": "BOOTSTRAP_SERVERS"}
"""The ends of the variables of our own kinds' addresses: their classes, which say the same, import their clients."""

_ICEBERG: Final = "iceberg"
_NAME: Final = "NAME"


def describe_executor(
    executor: str, owner: str, log_id: LogId, slots: int, environment: Mapping[str, str]
) -> ExecutorHeartbeat:
    """The heartbeat of a process with this environment. A technology of its own replaces what differs."""
    return ExecutorHeartbeat(
        executor=executor,
        owner=owner,
        log_id=log_id,
        release=__version__,
        slots=slots,
        capabilities=frozenset(list_known_capabilities()),
        connections=find_connections(environment),
        file_systems=frozenset(
            {*FILE_SYSTEMS.list_names(), *OBJECT_STORES.list_names(), *SOURCE_TREES.list_names()},
        ),
    )


def find_connections(environment: Mapping[str, str]) -> frozenset[str] | None:
    """The connections whose addresses are in the environment, such as jdbc.shop, in small letters.

    None: a package loads into places of its own, and only it knows the variables of these.
    """
    if any(name not in DESTINATION_KINDS.built_in for name in DESTINATION_KINDS.list_names()):
        return None
    return frozenset(_list_connections(environment))


def _list_connections(environment: Mapping[str, str]) -> Iterator[str]:
    given = [name for name, value in environment.items() if value]
    for kind, begin, end in _list_variables():
        for name in given:
            connection = name.removeprefix(begin).removesuffix(end)
            if name == f"{begin}{connection}{end}" and connection:
                yield f"{kind}.{connection.lower()}"


def _list_variables() -> Iterator[tuple[str, str, str]]:
    """Of each kind of connection, the begin and the end of the variables of addresses."""
    for name in SOURCES.list_names():
        address = ADDRESS_OF.get(name)
        if address is None:
            kind = SOURCES.get(name)
            if not isinstance(kind, SourceKind) or kind.connection is None:
                continue
            address = connection_class(kind).ADDRESS.upper()
        yield name, f"GOBBLIN_{name.upper()}_", f"_{address}"
    begin, _, end = catalog_variable(_NAME, "URL").partition(_NAME)
    yield _ICEBERG, begin, end


@dataclass(slots=True)
class Heart:
    """Beats for one process. ``describe`` makes a heartbeat; it may ask the log, and raise as that does."""

    store: HeartbeatStore
    describe: Callable[[], ExecutorHeartbeat]
    clock: Clock
    _phase: ExecutorPhase | None = None
    _beat_at_s: float = 0.0

    def beat(self, phase: ExecutorPhase) -> None:
        """Beat if it is time, or if the phase is a new one.

        RetryableError or OutcomeUnknownError: the log is away; the next call beats. After any other error, the next
        heartbeat comes when it is time.
        """
        now_s = self.clock.monotonic()
        if phase is self._phase and now_s < self._beat_at_s:
            return
        self._phase, self._beat_at_s = phase, now_s + HEARTBEAT_EVERY_S
        try:
            self.store.beat(replace(self.describe(), phase=phase))
        except (RetryableError, OutcomeUnknownError):
            self._beat_at_s = now_s
            raise
