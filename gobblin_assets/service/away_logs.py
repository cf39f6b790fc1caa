"""Logs that do not answer, which hold up nobody: each is asked by a thread of its own whether it answers again."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from gobblin_assets.service.ticket_logs import TicketLogs

ASKED_AFTER_S: Final = 1.0

_log = logging.getLogger(__name__)


class AwayLogs:
    """The logs that are away, by their names in the topology. Any thread may call the methods."""

    def __init__(self, logs: TicketLogs, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._logs = logs
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._ask_at_s: dict[str, float] = {}
        self._asked: set[str] = set()

    @property
    def names(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._ask_at_s)

    def add(self, log: str) -> None:
        with self._lock:
            self._ask_at_s[log] = self._monotonic() + ASKED_AFTER_S

    def ask(self) -> None:
        """Have those asked that were not asked for a second. Waits for no answer."""
        with self._lock:
            now_s = self._monotonic()
            due = [log for log, at_s in self._ask_at_s.items() if at_s <= now_s and log not in self._asked]
            self._asked.update(due)
        for log in due:
            threading.Thread(target=self._ask, args=(log,), name=f"log {log}", daemon=True).start()

    def _ask(self, log: str) -> None:
        answers = False
        try:
            self._logs.get_log_id(log)
            answers = True
        except Exception:  # noqa: BLE001  of a driver, too: who uses the log says what is wrong with it
            _log.debug("the log %r does not answer", log, exc_info=True)
        finally:
            with self._lock:
                self._asked.discard(log)
                if answers:
                    self._ask_at_s.pop(log, None)
                else:
                    self._ask_at_s[log] = self._monotonic() + ASKED_AFTER_S
