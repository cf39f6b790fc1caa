"""``TicketLogs`` of Postgres: the service's own database, and others by variables of the environment."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlalchemy import Engine

from gobblin_assets.db.engine import open_external
from gobblin_assets.db.transactions import TRIES_MAX
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId
from gobblin_assets.state.log_drains import LogDrainStore
from gobblin_assets.state.overview import Overview
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.log_drains import PostgresLogDrainStore
from gobblin_assets.state.postgres.overview import PostgresOverview
from gobblin_assets.state.postgres.tickets import PostgresTicketStore

OWN_LOG: Final = ""
_TRIES: Final = 2
"""Of a transaction in another log: who sends and reads repeats all of it anyway, and others wait meanwhile."""


def log_variable(log: str) -> str:
    """The variable that has the URL of the log of this name."""
    return f"GOBBLIN_LOG_{log.upper().replace('-', '_').replace('.', '_')}_URL"


class LogWire(PostgresTicketStore):
    """``TicketWire`` to the executors of one log: a ticket is a row there, and so are reports and heartbeats."""

    def __init__(self, engine: Engine, *, tries: int = TRIES_MAX) -> None:
        super().__init__(engine, tries=tries)
        self._heartbeats = PostgresHeartbeatStore(engine)

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        return self._heartbeats.list_heartbeats()


class PostgresTicketLogs:
    """The logs that this process has URLs for. Each is opened when it is first needed."""

    def __init__(
        self, own: Engine, environment: Mapping[str, str], open_engine: Callable[[str], Engine] = open_external
    ) -> None:
        self._environment = environment
        self._open_engine = open_engine
        self._lock = threading.Lock()
        self._engines: dict[str, Engine] = {}
        self._stores: dict[str, LogWire] = {OWN_LOG: LogWire(own)}
        self._overviews: dict[str, Overview] = {OWN_LOG: PostgresOverview(own, tries=_TRIES)}
        self._drains: dict[str, LogDrainStore] = {OWN_LOG: PostgresLogDrainStore(own, tries=_TRIES)}

    def get_store(self, log: str) -> LogWire:
        self._open(log)
        return self._stores[log]

    def get_overview(self, log: str) -> Overview:
        self._open(log)
        return self._overviews[log]

    def get_drains(self, log: str) -> LogDrainStore:
        self._open(log)
        return self._drains[log]

    def _open(self, log: str) -> None:
        with self._lock:
            if log not in self._stores:
                url = self._environment.get(variable := log_variable(log))
                if not url:
                    raise RejectedError(
                        f"the topology names the log {log!a}, and nothing says where it is",
                        field=variable,
                        hint="Set it to the URL of that log's Postgres, and start the service again.",
                    )
                self._engines[log] = self._open_engine(url)
                self._overviews[log] = PostgresOverview(self._engines[log], tries=_TRIES)
                self._drains[log] = PostgresLogDrainStore(self._engines[log], tries=_TRIES)
                self._stores[log] = LogWire(self._engines[log], tries=_TRIES)

    def get_log_id(self, log: str) -> LogId:
        return self.get_store(log).find_log_id()

    def close(self) -> None:
        with self._lock:
            for engine in self._engines.values():
                engine.dispose()
