"""A client of the service's REST interface, as a program of somebody else would have one."""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import urllib3

WAIT_S_MAX: Final = 180.0

_LOOK_S: Final = 0.3
_ENDED: Final = frozenset({"COMPLETE", "FAILED", "CANCELLED"})


class ServiceClient:
    """Requests to one service. SystemExit for what it refuses."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = urllib3.PoolManager(retries=False)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._pool.request(method, f"{self._url}/api/v1{path}", json=body)
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {answer.data.decode()}")
        return json.loads(answer.data) if answer.data else None

    def is_answered(self) -> bool:
        """Whether the service is up."""
        try:
            return self._pool.request("GET", f"{self._url}/api/v1/health").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def wait(self, path: str, say: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The flow's last execution, once it has ended; ``say`` gets each change of it."""
        until, shown = time.monotonic() + WAIT_S_MAX, ""
        while True:
            status: dict[str, Any] = self.ask("GET", f"{path}/status")
            if status["status"] != shown:
                say(status)
                shown = status["status"]
            if shown in _ENDED:
                return status
            if time.monotonic() > until:
                raise SystemExit(f"{path} is {shown} after {WAIT_S_MAX:.0f} s")
            time.sleep(_LOOK_S)
