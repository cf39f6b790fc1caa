"""A worker of Kafka Connect in distributed mode with Debezium: its sources write exactly once.

Only this mode has `exactly.once.source.support`. Connectors come and go by its REST interface.
"""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from benchmarks.cdc_world import PUBLICATION, TABLES, LogSource
from benchmarks.kafka_connect import FILE_SINK, STOP_S_MAX, TEXT_CONVERTER, connect_command
from benchmarks.process_times import tree_s
from benchmarks.world import SOURCE
from demo.kafka.jars import resolve_jars
from demo.kafka.node_files import find_ports, write_properties

DEBEZIUM: Final = "3.6.1.Final"
CONNECT: Final = "4.3.0"
"""Of the client that this Debezium needs: all of Connect has one version."""

_COORDINATES: Final = (
    f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
    f"org.apache.kafka:connect-runtime:{CONNECT}",
    f"org.apache.kafka:connect-file:{CONNECT}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
_START_S_MAX: Final = 180.0
_ANSWER_S_MAX: Final = 90.0
_POLL_S: Final = 0.1
_CONFLICT: Final = 409
"""While the worker gives out its tasks anew it takes no order."""


@dataclass(frozen=True, slots=True)
class ConnectWorker:
    url: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def begin(self, name: str, settings: Mapping[str, str]) -> None:
        self._ask("PUT", f"connectors/{name}/config", settings)

    def end(self, name: str) -> None:
        self._ask("DELETE", f"connectors/{name}")

    def cpu_s(self) -> float:
        return tree_s(self.process.pid)

    def require_running(self, name: str) -> None:
        """RuntimeError if the worker has ended, or if a part of the connector has failed."""
        if self.process.poll() is not None:
            raise RuntimeError(f"Kafka Connect ended with {self.process.returncode}: {self._said()}")
        found = self._ask("GET", f"connectors/{name}/status") or {}
        failed = [each for each in (found.get("connector", {}), *found.get("tasks", ())) if each.get("trace")]
        if failed:
            raise RuntimeError(f"the connector {name} failed: {failed[0]['trace'][:2000]}")

    def await_start(self) -> None:
        until_s = time.monotonic() + _START_S_MAX
        while self.process.poll() is None and time.monotonic() < until_s:
            try:
                # Its server answers before it knows its resources.
                if self._ask("GET", "connectors") is not None:
                    return
            except (URLError, ConnectionError, TimeoutError):
                pass
            time.sleep(_POLL_S)
        raise RuntimeError(f"Kafka Connect did not start: {self._said()}")

    def _said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """None if there is no such thing yet."""
        until_s = time.monotonic() + _ANSWER_S_MAX
        request = Request(
            f"{self.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        while True:
            try:
                with urlopen(request, timeout=_ANSWER_S_MAX) as answer:
                    return json.loads(answer.read() or b"null")
            except HTTPError as error:
                if error.code == 404 and method == "GET":
                    return None
                if error.code != _CONFLICT or time.monotonic() > until_s:
                    raise RuntimeError(f"{method} {path}: {error.read().decode()[:2000]}") from error
            time.sleep(_POLL_S)


@contextmanager
def open_connect(bootstrap: str, work: Path) -> Iterator[ConnectWorker]:
    """A worker that answers. It ends with the block."""
    jars = resolve_jars("debezium", _COORDINATES)
    work.mkdir()
    url = f"http://127.0.0.1:{find_ports().plain}"
    group = f"connect-{uuid.uuid4().hex[:8]}"
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    stored = {
        f"{kind}.storage.{option}": value
        for kind in ("config", "offset", "status")
        for option, value in {"topic": f"{group}-{kind}", "replication.factor": "1", "partitions": "1"}.items()
    }
    del stored["config.storage.partitions"]
    write_properties(
        work / "worker.properties",
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "listeners": url,
            "key.converter": json_converter,
            "key.converter.schemas.enable": "false",
            "value.converter": json_converter,
            "value.converter.schemas.enable": "false",
            "exactly.once.source.support": "enabled",
            "plugin.discovery": "service_load",
            **stored,
        },
    )
    command = connect_command(jars, "ConnectDistributed", work / "worker.properties")
    with (work / "connect.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work)
    try:
        worker = ConnectWorker(url, process, work / "connect.log")
        worker.await_start()
        yield worker
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def name_topics(prefix: str) -> list[str]:
    """As Debezium names them."""
    return [f"{prefix}.public.{table}" for table in TABLES]


def describe_debezium(source: LogSource, slot: str) -> dict[str, str]:
    """From a slot that exists, without a snapshot. The slot's name begins the topics' names."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "exactly.once.support": "required",
        "database.hostname": source.server.host,
        "database.port": str(source.server.port),
        "database.user": source.server.user,
        "database.password": source.server.password(),
        "database.dbname": SOURCE,
        "topic.prefix": slot,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": PUBLICATION,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        # One record for a change, as one row for us: without a second, empty one for a deletion, and without the
        # message that ends the backlog.
        "tombstones.on.delete": "false",
        "message.prefix.exclude.list": ".*",
    }


def describe_file_sink(topics: list[str], file: Path) -> dict[str, str]:
    """Each record is a line of text."""
    return {
        "connector.class": FILE_SINK,
        "tasks.max": "1",
        "topics": ",".join(topics),
        "file": str(file),
        "key.converter": TEXT_CONVERTER,
        "value.converter": TEXT_CONVERTER,
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.auto.offset.reset": "earliest",
    }
