"""Kafka Connect with its file sink: one standalone worker, as its quickstart starts it, which writes lines of text."""

import socket
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kafka_world import Topic
from demo.kafka import broker
from demo.kafka.jars import resolve_jars
from demo.kafka.node_files import write_properties

COORDINATES = (
    "org.apache.kafka:connect-runtime:4.1.0",
    "org.apache.kafka:connect-file:4.1.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TEXT_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
COPY_S_MAX = 600.0
STOP_S_MAX = 30.0
POLL_S = 0.01

_LOG_CHARACTERS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Copied:
    """``whole_s`` is from the start of the worker's process, ``copying_s`` from the first line in the file."""

    whole_s: float
    copying_s: float


def resolve() -> Path:
    """The jars, fetched once into the user's cache."""
    return resolve_jars("connect", COORDINATES)


def copy(bootstrap: str, topic: Topic, work: Path) -> Copied:
    """Copy until every record is in the file. RuntimeError with the worker's log if records are missing at the end."""
    work.mkdir(parents=True)
    target = work / "lines.txt"
    _write_settings(work, bootstrap, topic, target)
    begun = time.monotonic()
    with (work / "connect.log").open("wb") as log:
        command = connect_command(resolve(), "ConnectStandalone", work / "worker.properties", work / "sink.properties")
        worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=work)
        try:
            first = last = 0.0
            while time.monotonic() - begun < COPY_S_MAX and worker.poll() is None:
                size = target.stat().st_size if target.exists() else 0
                last = time.monotonic()
                first = first or (last if size else 0.0)
                if size >= topic.line_bytes:
                    return Copied(last - begun, last - first)
                time.sleep(POLL_S)
        finally:
            worker.terminate()
            try:
                worker.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
    said = (work / "connect.log").read_text(errors="replace")[-_LOG_CHARACTERS_MAX:]
    raise RuntimeError(f"Kafka Connect wrote less than all of {topic.name}:\n{said}")


def connect_command(jars: Path, program: str, *settings: Path) -> list[str]:
    """A program of Connect with the heap and the collector of Kafka's own script."""
    log_settings = Path(broker.__file__).with_name("log4j2.properties").as_uri()
    return [
        *("java", "-Xms256m", "-Xmx2g", "-XX:+UseG1GC", "-Djava.awt.headless=true"),
        *(f"-Dlog4j2.configurationFile={log_settings}", "-cp", f"{jars}/*"),
        *(f"org.apache.kafka.connect.cli.{program}", *(str(file) for file in settings)),
    ]


def _write_settings(work: Path, bootstrap: str, topic: Topic, target: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    write_properties(
        work / "worker.properties",
        {
            "bootstrap.servers": bootstrap,
            "key.converter": TEXT_CONVERTER,
            "value.converter": TEXT_CONVERTER,
            "offset.storage.file.filename": str(work / "offsets"),
            "listeners": f"http://127.0.0.1:{port}",
        },
    )
    write_properties(
        work / "sink.properties",
        {
            "name": f"sink-{uuid.uuid4().hex[:8]}",
            "connector.class": FILE_SINK,
            "tasks.max": "1",
            "topics": topic.name,
            "file": str(target),
        },
    )
