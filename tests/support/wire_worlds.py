"""Ways to an executor, from both of their ends: one world for each kind of communication."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from sqlalchemy import Engine

from gobblin_assets.run.postgres import open_stores
from gobblin_assets.service.postgres.logs import PostgresTicketLogs
from gobblin_assets.service.ticket_logs import TicketWire
from gobblin_assets.state.postgres.heartbeats import PostgresHeartbeatStore
from gobblin_assets.state.postgres.tickets import PostgresTicketStore
from tests.support.wires import Authority, make_rest, open_kafka_ends, serve_rest

NAME: Final = "local"


@dataclass(frozen=True, slots=True)
class WireWorld:
    """The way to the executor NAME. ``wire``: the service's end; ``tickets`` and ``heartbeats``: of the executor's log.

    ``pass_on`` returns when nothing is under way any more, in either direction.
    """

    kind: str
    wire: TicketWire
    tickets: PostgresTicketStore
    heartbeats: PostgresHeartbeatStore
    pass_on: Callable[[], None]


@contextmanager
def _open_log(engine: Engine, _request: pytest.FixtureRequest) -> Iterator[WireWorld]:
    logs = PostgresTicketLogs(engine, {})
    tickets, heartbeats = PostgresTicketStore(engine), PostgresHeartbeatStore(engine)
    yield WireWorld("log", logs.get_store(""), tickets, heartbeats, lambda: None)


@contextmanager
def _open_kafka(engine: Engine, request: pytest.FixtureRequest) -> Iterator[WireWorld]:
    bootstrap = request.getfixturevalue("kafka_broker").bootstrap
    service: Engine = request.getfixturevalue("service_engine")
    with open_kafka_ends(bootstrap, service, engine, NAME) as ends:
        yield WireWorld("kafka", ends.wire, PostgresTicketStore(engine), PostgresHeartbeatStore(engine), ends.pass_on)


@contextmanager
def _open_rest(engine: Engine, request: pytest.FixtureRequest) -> Iterator[WireWorld]:
    authority = Authority(request.getfixturevalue("tmp_path"))
    with serve_rest(NAME, open_stores(engine), authority) as port:
        wire = make_rest(NAME, port, authority)
        yield WireWorld("rest", wire, PostgresTicketStore(engine), PostgresHeartbeatStore(engine), lambda: None)
        wire.close()


WORLDS: Final[Mapping[str, Callable[[Engine, pytest.FixtureRequest], AbstractContextManager[WireWorld]]]] = {
    "log": _open_log,
    "kafka": _open_kafka,
    "rest": _open_rest,
}
"""By communication. Each takes an engine on an empty log, which is the executor's."""
