"""Clients that outlive one publication: to make one and to fence off others takes longer than a small publication.

A caller takes a client, and gives it back if the client is still usable. A client that nobody has used for a while is
closed. None survives a fork.
"""

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from gobblin_assets.kafka.connection import KafkaConnection

IDLE_S_MAX: Final = 120.0
IDLE_MAX: Final = 128


class Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closes)
ClientKey = tuple[Any, ...]


def make_client_key(connection: KafkaConnection, kind: type[Any], name: str) -> ClientKey:
    """Clients of different logins or processes are different ones."""
    settings = tuple(sorted((key, str(value)) for key, value in connection.admin_settings().items()))
    return (os.getpid(), kind, name, settings)


@dataclass(slots=True)
class SharedClients:
    """Any thread may use it."""

    _idle: dict[ClientKey, tuple[float, Closes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, key: ClientKey, kind: type[C]) -> C | None:
        """The idle client of this key, which is nobody else's from now on."""
        with self._lock:
            _since, found = self._idle.pop(key, (0.0, None))
        return found if isinstance(found, kind) else None

    def give_back(self, key: ClientKey, client: Closes) -> None:
        now = time.monotonic()
        with self._lock:
            replaced = self._idle.pop(key, None)
            self._idle[key] = (now, client)
            # In the order in which they were given back; those of the process that was forked are left alone.
            mine = [each for each in self._idle if each[0] == key[0]]
            spare = len(mine) - IDLE_MAX
            late = [each for n, each in enumerate(mine) if n < spare or self._idle[each][0] < now - IDLE_S_MAX]
            closing = [self._idle.pop(each) for each in late]
        for _since, each in [*closing, *([] if replaced is None else [replaced])]:
            each.close()


CLIENTS: Final = SharedClients()
"""Of this process."""
