"""A client of the service's REST interface, as a program of somebody else would have one."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import urllib3

from demo.service.places import DEMO

WAIT_S_MAX: Final = 300.0

_LOOK_S: Final = 0.3
_ENDED: Final = frozenset({"COMPLETE", "FAILED", "CANCELLED"})
_BUSY: Final = 409


class ServiceClient:
    """Requests to one service. SystemExit for what it refuses."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False)
        self._said: dict[str, object] = {}

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._pool.request(method, f"{self._url}/api/v1{path}", json=body)
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.data.decode()}")
        return json.loads(answer.data) if answer.data else None

    def start(self, path: str) -> None:
        """Run the flow now; if an execution of it is open, that one goes on."""
        answer = self._pool.request("POST", f"{self._url}/api/v1{path}:run", json={})
        if answer.status >= 400 and answer.status != _BUSY:
            raise SystemExit(f"POST {path}:run: {answer.status} {answer.data.decode()}")

    def is_answered(self) -> bool:
        """Whether the service is up."""
        try:
            return self._pool.request("GET", f"{self._url}/api/v1/health").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def wait(self, path: str, say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The flow's last execution, once it has ended; ``say`` gets each change of it."""
        return self.wait_until(path, has_ended, say)

    def wait_until(
        self, path: str, is_reached: Callable[[dict[str, Any]], bool], say: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        """The flow's last execution, once ``is_reached`` holds of it; ``say`` gets each change since the last wait."""
        until = time.monotonic() + WAIT_S_MAX
        while True:
            status: dict[str, Any] = self.ask("GET", f"{path}/status")
            seen = (status["execution_id"], status["status"], [each["executor"] for each in status["jobs"]])
            if seen != self._said.get(path):
                say(status)
                self._said[path] = seen
            if is_reached(status):
                return status
            if time.monotonic() > until:
                raise SystemExit(f"{path} is {status['status']} after {WAIT_S_MAX:.0f} s. {DEMO} has the logs.")
            time.sleep(_LOOK_S)


def has_ended(status: Mapping[str, Any]) -> bool:
    return status["status"] in _ENDED
