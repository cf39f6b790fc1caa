"""Real Kafka brokers on free ports of 127.0.0.1: one broker, or several of which some can be lost.

A broker never outlives the process that started it: a guard holds the reading end of a pipe, and kills the broker's
process group when the writing end closes, however the starter ended. A broker stores its data in its folder, so that
``restart`` finds the data again, also after ``kill``.
"""

import base64
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from demo.kafka.jars import resolve_jars
from demo.kafka.node_files import Ports, Security, find_ports, make_certificate, plan_properties, write_properties
from gobblin_assets.errors import RetryableError

COORDINATES: Final = (
    "org.apache.kafka:kafka_2.13:4.1.0",
    "org.apache.kafka:kafka-tools:4.1.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)

START_S_MAX: Final = 120.0
"""A start takes some 3 s, and several times that on a busy machine."""

STOP_S_MAX: Final = 30.0
KILL_S_MAX: Final = 10.0
POLL_S: Final = 0.05

PORT_TRIES_MAX: Final = 3
"""Another process may take a free port between the look at the port and the broker's start."""

HEAP_MB: Final = 384

_STARTED: Final = "Kafka Server started"
_TAKEN: Final = "Address already in use"
_LOG_CHARACTERS_MAX: Final = 3_000
_GUARD: Final = 'read -r _; kill -s KILL -- "-$1" 2>/dev/null'
_LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    guard: subprocess.Popen[bytes]


class KafkaBroker:
    """One node. ``bootstrap`` needs no login; ``sasl_bootstrap`` and ``tls_bootstrap`` exist if they were asked for."""

    def __init__(self, folder: Path, node_id: int, ports: Ports, *, heap_mb: int) -> None:
        self.folder = folder
        self.node_id = node_id
        self.bootstrap = f"127.0.0.1:{ports.plain}"
        self.sasl_bootstrap = f"127.0.0.1:{ports.sasl}"
        self.tls_bootstrap = f"127.0.0.1:{ports.tls}"
        self.log_path = folder / "server.log"
        self._heap_mb = heap_mb
        self._running: _Running | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """None while the broker does not run."""
        return self._running.process.pid if self._running and self._running.process.poll() is None else None

    def stop(self) -> None:
        """In order: its partitions' leaders move first, and all data is on disk. Does nothing if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it like ``kill -9``."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start it on the same ports with the same data; stop it first if it runs."""
        self.stop()
        self.launch()
        self.wait()

    def pause(self) -> None:
        """It keeps its connections and answers nothing, like a machine that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def launch(self) -> None:
        """Start the process; ``wait`` returns when it answers."""
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  our own command, as separate words
                java("kafka.Kafka", str(self.folder / "server.properties"), heap_mb=self._heap_mb),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        # In a session of its own: otherwise Ctrl-C at the starter's terminal would end the guard first.
        guard = subprocess.Popen(  # noqa: S603  our own script; the argument is a number
            ["/bin/sh", "-c", _GUARD, "sh", str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._running = _Running(process, guard)

    def wait(self) -> None:
        """Wait until it takes requests. If it does not: kill it, and raise RetryableError with the log's end."""
        end = time.monotonic() + START_S_MAX
        while time.monotonic() < end:
            # Checked before the log: the log of an ended process is complete.
            is_alive = self.pid is not None
            if _STARTED in self._log():
                return
            if not is_alive:
                break
            time.sleep(POLL_S)
        self.kill()
        raise RetryableError(f"the Kafka broker in {self.folder} did not start:\n{self._log()[-_LOG_CHARACTERS_MAX:]}")

    def found_its_ports_taken(self) -> bool:
        return _TAKEN in self._log()

    def _log(self) -> str:
        """The log of this start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise RetryableError(f"the Kafka broker in {self.folder} does not run")
        os.kill(self.pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._running is None:
            return
        process = self._running.process
        if process.poll() is None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a paused process would not handle SIGTERM
            try:
                process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(KILL_S_MAX)
        # Only now: while the process existed, it needed its guard.
        self._running.guard.kill()
        self._running.guard.communicate()
        self._running = None


class KafkaCluster:
    """Several brokers. ``bootstrap`` names all of them."""

    def __init__(self, brokers: Sequence[KafkaBroker]) -> None:
        self.brokers = tuple(brokers)
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def get(self, node_id: int) -> KafkaBroker:
        return next(broker for broker in self.brokers if broker.node_id == node_id)

    def stop(self) -> None:
        """All at once: the quorum is lost with the first, so an orderly stop has no use."""
        for broker in self.brokers:
            broker.kill()


def start_broker(
    folder: Path,
    *,
    settings: Mapping[str, str] | None = None,
    users: Mapping[str, str] | None = None,
    tls: bool = False,
    heap_mb: int = HEAP_MB,
) -> KafkaBroker:
    """One broker that is its own controller, with empty logs.

    ``settings`` override those of ``server.properties``. ``users`` (name → password) opens a SASL_PLAINTEXT listener
    with PLAIN and SCRAM-SHA-256; ``tls`` an SSL listener, whose certificate is ``folder/ca.pem``.
    RetryableError with the log's end when it does not start.
    """
    return _start(folder, 1, settings or {}, Security(users or {}, tls=tls), heap_mb).brokers[0]


def start_cluster(
    folder: Path, count: int, *, settings: Mapping[str, str] | None = None, heap_mb: int = HEAP_MB
) -> KafkaCluster:
    """Brokers with the ids 1 to ``count``. Of three or more, any one can be lost; of two, only the second."""
    return _start(folder, count, settings or {}, Security(), heap_mb)


def java(main_class: str, *arguments: str, heap_mb: int = 256) -> list[str]:
    """The command that runs a class of Kafka's."""
    return [
        *("java", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"),
        f"-Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}",
        *("-cp", f"{resolve_jars('kafka', COORDINATES)}/*", main_class, *arguments),
    ]


def _start(folder: Path, count: int, settings: Mapping[str, str], security: Security, heap_mb: int) -> KafkaCluster:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    security = make_certificate(folder, security) if security.tls else security
    for tries in range(1, PORT_TRIES_MAX + 1):
        nodes = {node_id: find_ports() for node_id in range(1, count + 1)}
        brokers = [
            KafkaBroker(folder / f"try-{tries}" / f"node-{node_id}", node_id, ports, heap_mb=heap_mb)
            for node_id, ports in nodes.items()
        ]
        cluster = KafkaCluster(brokers)
        for broker in brokers:
            broker.folder.mkdir(parents=True)
            planned = plan_properties(broker.folder, broker.node_id, nodes, security)
            write_properties(broker.folder / "server.properties", {**planned, **settings})
        try:
            _format(brokers, security)
            for broker in brokers:
                broker.launch()
            for broker in brokers:
                broker.wait()
        except BaseException:
            was_taken = any(broker.log_path.exists() and broker.found_its_ports_taken() for broker in brokers)
            cluster.stop()
            if tries == PORT_TRIES_MAX or not was_taken:
                raise
        else:
            return cluster
    raise AssertionError("the last try returns or raises")


def _format(brokers: Sequence[KafkaBroker], security: Security) -> None:
    """Prepare the empty logs. A cluster's id is 16 bytes; ours never begins with a dash, which would mark an option."""
    cluster_id = base64.urlsafe_b64encode(b"gobblin" + secrets.token_bytes(9)).rstrip(b"=").decode()
    scram = [
        word
        for user, password in security.users.items()
        for word in ("--add-scram", f"SCRAM-SHA-256=[name={user},password={password}]")
    ]
    for broker in brokers:
        answer = subprocess.run(  # noqa: S603  our own command, as separate words
            java(
                *("kafka.tools.StorageTool", "format", "--cluster-id", cluster_id),
                *("--config", str(broker.folder / "server.properties"), *scram),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_S_MAX,
            check=False,
        )
        if answer.returncode != 0:
            raise RetryableError(f"Kafka's storage tool failed:\n{answer.stdout[-_LOG_CHARACTERS_MAX:]}")
