"""Reloads of the code location ``flows``, which its code server asks for by itself when tickets have brought new jobs.

Dagster has code servers that can be reloaded (`dagster code-server start`, and what `dagster dev` starts): a process
that passes questions on to another one, which has loaded the code. A reload starts a new one of these, and ends the old
one once its runs have ended. So a run is never in the way of a reload, nor a reload in that of a run. Web server and
daemon notice a new one by themselves.

The process with the code looks at the log, and asks its parent for a reload. A server of another kind is reloaded by a
person.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from dagster._grpc.client import DagsterGrpcClient

from gobblin_assets.errors import GobblinError
from gobblin_assets.model.job_ticket import JobTicket, TicketId
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.log import open_log
from gobblin_assets.state.tickets import LastTicket, TicketStore

LOOK_EVERY_S: Final = 10.0
RELOAD_EVERY_S: Final = 60.0
"""The shortest time between two loads. Where a load takes long, LOAD_SHARE_MAX makes it longer."""

LOAD_SHARE_MAX: Final = 0.2

RELOAD_S_MAX: Final = 600
_DEFAULT_HOST: Final = "localhost"
_LOG: Final = logging.getLogger("gobblin_assets")


LoadedTickets = Mapping[JobName, tuple[TicketId, JobTicket | None]]
"""The tickets by which jobs were loaded; None: of one that could not be read."""


class FlowsWatch:
    """Says whether the jobs that ``choose`` gives, by name, are others than those that were loaded.

    ``loaded`` None: the log was away, so that any answer of it is news.
    """

    def __init__(
        self, loaded: LoadedTickets | None, choose: Callable[[TicketStore], Mapping[JobName, LastTicket]]
    ) -> None:
        self._known = None if loaded is None else dict(loaded)
        self._choose = choose

    def has_news(self, tickets: TicketStore) -> bool:
        """A new ticket of a job that is as it was is none. Reads the tickets that are new since the last look."""
        chosen, known = self._choose(tickets), self._known
        if known is None or chosen.keys() != known.keys():
            return True
        other = {name: each.ticket_id for name, each in chosen.items() if known[name][0] != each.ticket_id}
        found = tickets.load_jobs(list(other.values())) if other else {}
        for name, ticket_id in other.items():
            ticket = known[name][1]
            if found.get(ticket_id) != ticket:
                return True
            known[name] = ticket_id, ticket
        return False


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The address of a code server: a port of a host, or a socket's path."""

    host: str
    port: int | None
    socket: str | None


def find_reloadable(command: Sequence[str]) -> ServerAddress | None:
    """The address in the command of a code server that can be reloaded; None for another program."""
    if ("code-server", "start") not in pairwise(command):
        return None
    socket, port = _find_option(command, "--socket", "-s"), _find_option(command, "--port", "-p")
    if socket is None and (port is None or not port.isdecimal()):
        return None
    host = _find_option(command, "--host", "-h") or _DEFAULT_HOST
    return ServerAddress(host, None if port is None else int(port), socket)


def _find_option(command: Sequence[str], *names: str) -> str | None:
    for place, word in enumerate(command):
        name, separator, value = word.partition("=")
        if name in names:
            return value if separator else command[place + 1] if place + 1 < len(command) else None
    return None


def start_reloading(watch: FlowsWatch, *, load_s: float) -> None:
    """From now on, ask for a reload when there is news. ``load_s``: so long the last load took."""
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        words = []
    address = find_reloadable(words)
    if address is None:
        return
    pause_s = max(RELOAD_EVERY_S, load_s / LOAD_SHARE_MAX)

    client = DagsterGrpcClient(port=address.port, socket=address.socket, host=address.host)

    def reload() -> bool:
        before = client.get_server_id()
        client.reload_code(timeout=RELOAD_S_MAX)
        return client.get_server_id() != before

    threading.Thread(target=watch_flows, args=(watch, reload, pause_s), name="flows-reloading", daemon=True).start()


def watch_flows(watch: FlowsWatch, reload: Callable[[], bool], pause_s: float) -> None:
    """Ask for reloads until another process has loaded the code, which watches from then on.

    ``reload``: True if another one answers now. This process lives on while runs of it do.
    """
    time.sleep(pause_s)
    while True:
        try:
            with open_log() as log:
                while not watch.has_news(log.stores.tickets):
                    time.sleep(min(LOOK_EVERY_S, pause_s))
            _LOG.info("Tickets have brought other jobs: the code location is loaded again.")
            if reload():
                return
        except GobblinError as error:
            _LOG.warning("Whether there are other jobs can't be seen: %s", error)
        except Exception:  # noqa: BLE001  whatever it is, the server goes on with what it has
            _LOG.exception("the code location could not be loaded again")
        time.sleep(pause_s)
