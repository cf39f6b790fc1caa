"""A schema registry on this machine: the protocol over real HTTP, with schemas in memory and failures on demand.

The process that started it registers its schemas, without any check of compatibility.
"""

import base64
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

HANG_S_MAX = 120.0
"""Longer than any client waits. A server that stops ends all hanging answers at once."""


@dataclass(frozen=True, slots=True)
class _Entry:
    id: int
    text: str
    type: str
    references: tuple[dict[str, object], ...]

    def as_answer(self) -> dict[str, object]:
        answer: dict[str, object] = {"schema": self.text}
        # Like the original: the type Avro is not named, and an empty list of references is left out.
        if self.type != "AVRO":
            answer["schemaType"] = self.type
        if self.references:
            answer["references"] = list(self.references)
        return answer


@dataclass(slots=True)
class RegistryServer:
    """``failure``: the status of the next ``failures_left`` answers. ``hanging``: no answer comes."""

    url: str = ""
    authorization: str | None = None
    failure: int | None = None
    failures_left: int | None = None
    garbage: bytes | None = None
    hanging: bool = False
    first_id: int = 1
    requests: list[str] = field(default_factory=list)
    let_go: threading.Event = field(default_factory=threading.Event)
    _entries: dict[int, _Entry] = field(default_factory=dict)
    _subjects: dict[str, list[int]] = field(default_factory=dict)

    def require_basic(self, user: str, password: str) -> None:
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def require_bearer(self, token: str) -> None:
        self.authorization = f"Bearer {token}"

    def register(
        self,
        subject: str | None,
        schema: object,
        *,
        type_: str = "AVRO",
        references: Sequence[tuple[str, str, int]] = (),
    ) -> int:
        """The schema's id; equal schemas have one id. ``subject`` None: known by id alone, as after a delete."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        listed = tuple({"name": name, "subject": of, "version": version} for name, of, version in references)
        known = [each.id for each in self._entries.values() if (each.text, each.references) == (text, listed)]
        schema_id = known[0] if known else self.first_id + len(self._entries)
        self._entries[schema_id] = _Entry(schema_id, text, type_, listed)
        if subject is not None and schema_id not in self._subjects.setdefault(subject, []):
            self._subjects[subject].append(schema_id)
        return schema_id

    def answer(self, path: str, authorization: str | None) -> tuple[int, object]:
        self.requests.append(path)
        if self.failure is not None and self.failures_left != 0:
            self.failures_left = None if self.failures_left is None else self.failures_left - 1
            return self.failure, {"error_code": self.failure * 100 + 1, "message": "injected"}
        if self.authorization is not None and authorization != self.authorization:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match [unquote(part) for part in path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                found = self._entries.get(int(number))
                if found is None:
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, found.as_answer()
            case ["subjects", subject, "versions", *version]:
                ids = self._subjects.get(subject)
                if ids is None:
                    return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
                if not version:
                    return 200, list(range(1, len(ids) + 1))
                wanted = len(ids) if version[0] == "latest" else int(version[0])
                if not 1 <= wanted <= len(ids):
                    return 404, {"error_code": 40402, "message": f"Version {wanted} not found."}
                entry = self._entries[ids[wanted - 1]]
                return 200, {"subject": subject, "version": wanted, "id": entry.id, **entry.as_answer()}
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def serve_registry() -> Iterator[RegistryServer]:
    """Listens on a free port of this machine until the block ends."""
    registry = RegistryServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if registry.hanging:
                registry.requests.append(self.path)
                registry.let_go.wait(HANG_S_MAX)
                self.close_connection = True
                return
            status, answer = registry.answer(self.path, self.headers.get("authorization"))
            content = json.dumps(answer).encode() if registry.garbage is None else registry.garbage
            self.send_response(status)
            self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  http.server's own name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        registry.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
