"""The files of one node of a cluster: its settings, its ports, its logins, its certificate."""

import random
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

PORTS: Final = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections: a stopped broker finds its own port free again."""

PORT_DRAWS_MAX: Final = 200
QUORUM_MIN: Final = 3
KEYTOOL_S_MAX: Final = 60.0
STORE_PASSWORD: Final = "gobblin-assets"  # noqa: S105  guards a certificate that is made for one test or demo

SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Records may have any time; a topic that loses its old records has its own setting.
        "log.retention.ms": "-1",
        # Retention, compaction and expired transactions are checked at once, and not after minutes.
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.segment.delete.delay.ms": "500",
        "log.cleaner.backoff.ms": "500",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        # The defaults are for machines that run nothing else: 128 MiB and a thread for each directory.
        "log.cleaner.dedupe.buffer.size": "8388608",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "2",
    }
)

CLUSTER_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # A lost node is noticed in seconds; this is still enough for a busy machine.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "5000",
    }
)


@dataclass(frozen=True, slots=True)
class Ports:
    plain: int
    controller: int
    sasl: int
    tls: int


@dataclass(frozen=True, slots=True)
class Security:
    """``users``: name → password. ``key_store`` is set once the certificate was made."""

    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: bool = False
    key_store: Path | None = None


def find_ports() -> Ports:
    """Four ports that were free a moment ago."""
    found: list[int] = []
    for port in random.sample(PORTS, PORT_DRAWS_MAX):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == 4:
            return Ports(*found)
    raise AssertionError(f"{PORT_DRAWS_MAX} ports were drawn, and fewer than four are free")


def plan_properties(folder: Path, node_id: int, nodes: Mapping[int, Ports], security: Security) -> dict[str, str]:
    """``server.properties`` of one node. With three nodes or more, all vote; with fewer, only the first."""
    voters = list(nodes) if len(nodes) >= QUORUM_MIN else [1]
    ports = nodes[node_id]
    listeners = {"PLAINTEXT": ports.plain}
    if security.users:
        listeners["SASL_PLAINTEXT"] = ports.sasl
    if security.key_store:
        listeners["SSL"] = ports.tls
    own = {"CONTROLLER": ports.controller} if node_id in voters else {}
    protocols = {"CONTROLLER": "PLAINTEXT", **{name: name for name in listeners}}
    return {
        **SETTINGS,
        **(CLUSTER_SETTINGS if len(nodes) > 1 else {}),
        "process.roles": "broker,controller" if node_id in voters else "broker",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{nodes[voter].controller}" for voter in voters),
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in {**listeners, **own}.items()),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "log.dirs": str(folder / "data"),
        **_plan_logins(security.users),
        **_plan_tls(security.key_store),
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()), encoding="utf-8")


def make_certificate(folder: Path, security: Security) -> Security:
    """A key with a certificate for 127.0.0.1 and localhost; the certificate is in ``folder/ca.pem`` as well."""
    store = folder / "server.p12"
    common = ("-alias", "broker", "-keystore", str(store), "-storepass", STORE_PASSWORD)
    _keytool(
        "-genkeypair",
        *common,
        *("-storetype", "PKCS12", "-keyalg", "RSA", "-keysize", "2048", "-validity", "3650", "-dname", "CN=localhost"),
        *("-ext", "SAN=dns:localhost,ip:127.0.0.1", "-ext", "bc:c"),
    )
    _keytool("-exportcert", "-rfc", *common, "-file", str(folder / "ca.pem"))
    return Security(security.users, tls=True, key_store=store)


def _keytool(*arguments: str) -> None:
    subprocess.run(  # noqa: S603  our own command, as separate words
        ["keytool", *arguments],  # noqa: S607  it stands beside java, which is found in the same way
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=KEYTOOL_S_MAX,
        check=True,
    )


def _plan_logins(users: Mapping[str, str]) -> dict[str, str]:
    if not users:
        return {}
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    login = "listener.name.sasl_plaintext"
    module = "org.apache.kafka.common.security"
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{login}.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required {known};",
        f"{login}.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
    }


def _plan_tls(key_store: Path | None) -> dict[str, str]:
    if key_store is None:
        return {}
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(key_store),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
    }
