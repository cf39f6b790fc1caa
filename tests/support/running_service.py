"""A service in a process of its own, and requests of it as clients send them."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from gobblin_assets.db import schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from tests.support import postgres
from tests.support.database_pool import DatabasePool

_STOP_WAIT_S_MAX = 150
_LOOK_EVERY_S = 0.05

TOPOLOGY: Mapping[str, Any] = {
    "nodes": {
        "shop": {"kind": "database", "connection": "shop", "description": "Orders"},
        "lake": {"kind": "files", "root": "/lake"},
        "mirror": {"kind": "files", "root": "/mirror"},
        "vault": {"kind": "files", "root": "/vault", "groups": ["auditors"]},
        "island": {"kind": "files", "root": "/island"},
    },
    "executors": {
        "here": {"capabilities": ["ingest.jdbc", "distcp"], "nodes": ["shop", "lake", "mirror", "vault"]},
    },
}

# The template of the seed's requests names its nodes, and takes prop1.
PACK: Mapping[str, str] = {
    "pack.yaml": "pack: default\nversion: '9'\n",
    "mytemplate.template": """
        capability: ingest.jdbc
        shape: run
        from: {kind: database, format: table, node: shop}
        to: {kind: files, format: dataset, node: lake}
        parameters:
          type: object
          required: [prop1]
          properties:
            prop1: {type: string, pattern: '^[a-z0-9]{1,20}$', description: The table.}
            rows: {type: integer, minimum: 1, default: 5}
            columns: {type: array, items: {type: string, pattern: '^[a-z]{1,20}$'}}
        job:
          source: {type: jdbc, connection: "${from.connection}"}
          destination: ${to.root}
          parallelism: ${rows}
          datasets: [{table: "${prop1}", columns: "${columns}", extract: snapshot_only}]
    """,
    "tables.template": """
        capability: ingest.jdbc
        shape: run
        from: {kind: database, format: table}
        to: {kind: files, format: dataset}
        parameters:
          type: object
          required: [tables]
          properties:
            tables:
              type: array
              maxItems: 3
              items:
                type: object
                required: [table]
                properties:
                  table: {type: string, pattern: '^[a-z.]{1,40}$'}
                  primary_key: {type: array, items: {type: string, pattern: '^[a-z]{1,20}$'}}
        job:
          source: {type: jdbc, connection: "${from.connection}"}
          destination: ${to.root}
          datasets:
            - for_each: tables
              make: {table: "${each.table}", primary_key: "${each.primary_key}", extract: snapshot_only}
    """,
}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class RunningService:
    """``url``: without a slash at its end; "" of a node that answers no requests.

    ``environment``: of commands that are its clients.
    """

    url: str
    folder: Path
    process: "subprocess.Popen[str]"
    environment: dict[str, str]
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | None = None,
    ) -> Answer:
        """A request with the path as it is, whatever it has. ``body``: as JSON; ``data``: as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = data if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, body=sent, headers={**self.headers, **(headers or {})})
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def send_form(self, path: str, fields: Mapping[str, str] | list[tuple[str, str]], **headers: str) -> Answer:
        data = urlencode(fields).encode()
        return self.ask("POST", path, data=data, headers={"Origin": self.url, **headers})

    def delete_flows(self) -> None:
        """Of one page: what a test leaves."""
        for flow in self.ask("GET", "/api/v1/flows?limit=500").json["flows"]:
            answer = self.ask("DELETE", f"/api/v1/flows/{flow['uri'].partition(':/')[2]}")
            assert answer.status < 300, answer.text

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(_STOP_WAIT_S_MAX)


def prepare_database(url: str) -> None:
    """The schema of the service, in a database that has the log's."""
    engine = open_external(url)
    schema.upgrade(engine, history=SERVICE_HISTORY)
    engine.dispose()


@pytest.fixture(scope="session")
def shared_service(
    server: EmbeddedServer, service_pool: DatabasePool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    """The session's service. Tests that change more than its flows start their own."""
    with run_own_service(server, service_pool, tmp_path_factory.mktemp("service")) as running:
        yield running


@pytest.fixture
def service(shared_service: RunningService) -> Iterator[RunningService]:
    """The session's service without a flow, and without log-ins. The flows of the test are deleted after it."""
    yield shared_service
    shared_service.delete_flows()


@contextmanager
def run_own_service(
    server: EmbeddedServer, pool: DatabasePool, folder: Path, *options: str, **settings: Any
) -> Iterator[RunningService]:
    """A service on a new database. ``options`` and ``settings``: of ``run_service``; without options, no log-ins."""
    with postgres.migrated_database(server, pool) as name:
        prepare_database(server.url(name))
        with run_service(folder, server.url(name), *(options or ("--no-auth",)), **settings) as running:
            yield running


@contextmanager
def run_service(
    folder: Path,
    database_url: str,
    *options: str,
    topology: Mapping[str, Any] = TOPOLOGY,
    pack: Mapping[str, str] = PACK,
    port: int = 0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RunningService]:
    """Serve with the test's topology and templates, on a free port unless one is given. ``variables``: of its process.

    ``pack``: the texts of its files; without one, the templates are those that are shipped.
    """
    (folder / "topology.yaml").write_text(yaml.safe_dump(dict(topology)), encoding="utf-8")
    templates = folder / "pack"
    templates.mkdir(exist_ok=True)
    for name, text in pack.items():
        (templates / name).write_text(text, encoding="utf-8")
    environment = {**os.environ, "GOBBLIN_DATABASE_URL": database_url, "GOBBLIN_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "gobblin_assets.cli", "service", "serve", "--port", str(port)]
    command += ["--topology", str(folder / "topology.yaml"), *(["--pack", str(templates)] if pack else []), *options]
    said = folder / "service.stderr"
    with (folder / "service.log").open("w", encoding="utf-8") as log, said.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(command, env={**environment, **variables}, stdout=log, stderr=errors, text=True)
    try:
        url = _await_url(process, said)
        yield RunningService(url, folder, process, {**environment, "GOBBLIN_SERVICE_URL": url})
    finally:
        process.terminate()
        try:
            process.wait(_STOP_WAIT_S_MAX)
        finally:
            process.kill()


def _await_url(process: "subprocess.Popen[str]", said: Path) -> str:
    while process.poll() is None:
        found = re.search(r"answers (?:on (http://\S+?)/?|no requests\.)\n", said.read_text(encoding="utf-8"))
        if found:
            return found[1] or ""
        time.sleep(_LOOK_EVERY_S)
    raise AssertionError(f"the service did not start: {said.read_text(encoding='utf-8')}")
