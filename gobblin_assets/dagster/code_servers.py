"""Code servers of `dagster dev` whose code has died: they are asked to load it again.

A code server is two processes: one passes questions on to the other one, which has loaded the code. `dagster dev`
starts the first one again if it dies, and nobody the other one. Without it no sensor of the location looks, so that an
executor would stay silent, while its web server and its daemon are well. Runs are processes of their own, and go on.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._grpc.client import DagsterGrpcClient

from gobblin_assets.dagster.flows_reloading import RELOAD_S_MAX, ServerAddress, find_reloadable

LOOK_EVERY_S: Final = 5.0

SILENT_LOOKS_MAX: Final = 2
"""After so many looks in a row without an answer, the code is loaded again: one may be lost by a reload."""


def keep_code_servers(say: Callable[[str], None]) -> None:
    """From now on, look after the code servers that this process has started."""
    watch, rest = CodeServersWatch(list_code_servers, say), threading.Event()

    def look_for_ever() -> None:
        while not rest.wait(LOOK_EVERY_S):
            watch.look()

    threading.Thread(target=look_for_ever, name="code-servers", daemon=True).start()


@dataclass(slots=True)
class CodeServersWatch:
    """``find``: the servers to look after. ``say`` gets a line for each that is loaded again."""

    find: Callable[[], Collection[ServerAddress]]
    say: Callable[[str], None]
    _silent: dict[ServerAddress, int] = field(default_factory=dict)

    def look(self) -> None:
        """Ask each server, and reload those that have not answered for some looks."""
        found = self.find()
        self._silent = {each: count for each, count in self._silent.items() if each in found}
        for address in found:
            client = DagsterGrpcClient(port=address.port, socket=address.socket, host=address.host)
            if not _is_code_gone(client):
                self._silent.pop(address, None)
                continue
            self._silent[address] = self._silent.get(address, 0) + 1
            if self._silent[address] >= SILENT_LOOKS_MAX:
                self.say("the process with the code of a code location does not answer; it is loaded again")
                # Dagster then bids farewell to the process that is gone, which raises the error. The next look asks.
                with suppress(DagsterUserCodeUnreachableError):
                    client.reload_code(timeout=RELOAD_S_MAX)
                del self._silent[address]


def _is_code_gone(client: DagsterGrpcClient) -> bool:
    """Whether the server answers, and the process behind it does not."""
    try:
        client.heartbeat()
    except DagsterUserCodeUnreachableError:
        # It starts, or `dagster dev` starts another one.
        return False
    try:
        client.ping("")
    except DagsterUserCodeUnreachableError:
        return True
    return False


def list_code_servers() -> Collection[ServerAddress]:
    """Those that this process has started; none where the system has no /proc."""
    return [address for words in _list_commands() if (address := find_reloadable(words)) is not None]


def _list_commands() -> Iterator[list[str]]:
    """The commands of this process's children."""
    for path in Path("/proc/self/task").glob("*/children"):
        # A process may end meanwhile.
        with suppress(OSError):
            for pid in path.read_text(encoding="ascii").split():
                with suppress(OSError):
                    yield Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
