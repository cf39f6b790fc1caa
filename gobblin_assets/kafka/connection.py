"""A Kafka connection as a value that never shows its secrets: one set of fields for both clients.

``read_cluster`` finds a connection by its name in the environment: the variables are those of a Kafka source.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, cast

from gobblin_assets.errors import RejectedError

TIMEOUT_S: Final = 30.0
"""How long one question to the cluster may take."""

CONNECTIONS_SETUP_TRIES: Final = 5
"""A broker that accepts a connection and stays silent is given up in time to ask this many others."""

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

SHARED_OPTIONS: Final = frozenset({
    "client.id", "client.rack", "client.dns.lookup", "metadata.max.age.ms", "reconnect.backoff.ms",
    "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms", "connections.max.idle.ms",
})  # fmt: skip
"""Options that have the same name and meaning in both clients."""

READER_OPTIONS: Final = frozenset({
    "fetch.min.bytes", "fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "max.poll.records",
    "request.timeout.ms", "default.api.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes", "check.crcs",
})  # fmt: skip
"""Options of Java's consumer, for Spark's reads only."""

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SERVER: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """The way to one cluster. ``bootstrap_servers`` is ``host:port,host:port``.

    ``ssl_ca_file`` and ``ssl_client_file`` are PEM files that exist at the same path wherever records are read; the
    latter holds the client's private key (PKCS#8) and its certificates, ``ssl_client_password`` opens the key.
    Raises RejectedError that names the field and the fix.
    """

    bootstrap_servers: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ssl_ca_file: str | None = None
    ssl_client_file: str | None = None
    ssl_client_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_s: float = TIMEOUT_S
    name: str = "kafka"

    def __post_init__(self) -> None:
        self._require_servers()
        if self.security_protocol not in _PROTOCOLS:
            raise self.reject("security_protocol", _one_of(_PROTOCOLS, self.security_protocol), "Correct it.")
        self._require_login()
        self._require_tls()
        unknown = sorted(key for key in self.options if key not in SHARED_OPTIONS | READER_OPTIONS)
        if unknown:
            raise self.reject(
                "options",
                f"{', '.join(unknown)} can't be set here",
                "Logins and certificates have fields of their own; the options are "
                f"{', '.join(sorted(SHARED_OPTIONS | READER_OPTIONS))}.",
            )
        if not self.timeout_s > 0:
            raise self.reject("timeout_s", f"expected more than 0 seconds, found {self.timeout_s}", "Write 30.")

    def admin_settings(self) -> dict[str, str | int | float]:
        """Settings of librdkafka, secrets included: pass them on, never print them."""
        given: dict[str, str | None] = {
            "bootstrap.servers": self._servers(),
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
            "ssl.ca.location": self.ssl_ca_file,
            "ssl.certificate.location": self.ssl_client_file,
            "ssl.key.location": self.ssl_client_file,
            "ssl.key.password": self.ssl_client_password,
        }
        return {
            **{key: value for key, value in self.options.items() if key in SHARED_OPTIONS},
            **{key: value for key, value in given.items() if value is not None},
            **({} if self.ssl_check_hostname else {"ssl.endpoint.identification.algorithm": "none"}),
            "socket.connection.setup.timeout.ms": max(1_000, round(self.timeout_s * 1000 / CONNECTIONS_SETUP_TRIES)),
        }

    def spark_options(self) -> dict[str, str]:
        """Options of Spark's Kafka source, secrets included: pass them on, never print them."""
        given = {
            "bootstrap.servers": self._servers(),
            "security.protocol": self.security_protocol,
            "sasl.mechanism": self.sasl_mechanism,
            "sasl.jaas.config": self._jaas(),
            "ssl.truststore.type": "PEM" if self.ssl_ca_file else None,
            "ssl.truststore.location": self.ssl_ca_file,
            "ssl.keystore.type": "PEM" if self.ssl_client_file else None,
            "ssl.keystore.location": self.ssl_client_file,
            "ssl.key.password": self.ssl_client_password,
            "ssl.endpoint.identification.algorithm": None if self.ssl_check_hostname else "",
        }
        java = {**self.options, **{key: value for key, value in given.items() if value is not None}}
        return {f"kafka.{key}": value for key, value in java.items()}

    def scrub(self, text: str) -> str:
        """``text`` without any secret of this connection."""
        secrets = {s for s in (self.password, self.ssl_client_password) if s}
        spellings = {form for secret in secrets for form in (secret, _quote_java(secret))}
        for spelling in sorted(spellings, key=len, reverse=True):
            text = text.replace(spelling, "***")
        return text

    def reject(self, of: str, message: str, hint: str) -> RejectedError:
        """An error that names a field of this connection."""
        return RejectedError(message, field=f"connections[{self.name}].{of}", hint=hint)

    def _servers(self) -> str:
        return ",".join(server.strip() for server in self.bootstrap_servers.split(","))

    def _jaas(self) -> str | None:
        if self.sasl_mechanism is None:
            return None
        module = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
        login = f"username={_quote_java(self.username or '')} password={_quote_java(self.password or '')}"
        return f"org.apache.kafka.common.security.{module}LoginModule required {login};"

    def _require_servers(self) -> None:
        # The text before an @ may be a login, which is no part of a Kafka address, and may have a comma in it.
        servers = self.bootstrap_servers
        is_shown = "," not in servers.rpartition("@")[0] and not set("?#") & set(servers)
        for server in self._servers().split(","):
            found = _SERVER.fullmatch(server)
            if found is None or not 0 < int(found["port"]) <= _PORT_MAX:
                raise self.reject(
                    "bootstrap_servers",
                    f"expected host:port, found {repr(server.rpartition('@')[2]) if is_shown else 'something else'}",
                    "Write it like broker1:9092,broker2:9092, without a scheme and a login.",
                )

    def _require_login(self) -> None:
        login = {"sasl_mechanism": self.sasl_mechanism, "username": self.username, "password": self.password}
        if not self.security_protocol.startswith("SASL_"):
            given = [key for key, value in login.items() if value is not None]
            if given:
                raise self.reject(
                    "security_protocol",
                    f"{', '.join(given)} given, but {self.security_protocol} has no login",
                    "Write SASL_SSL (or SASL_PLAINTEXT, where the network is trusted), or leave the login out.",
                )
            return
        for key, value in login.items():
            if not value:
                raise self.reject(
                    key,
                    f"{self.security_protocol} needs it, and it is missing",
                    f"Give {_list(_MECHANISMS)}." if key == "sasl_mechanism" else "Give it by an environment variable.",
                )
        if self.sasl_mechanism not in _MECHANISMS:
            raise self.reject("sasl_mechanism", _one_of(_MECHANISMS, str(self.sasl_mechanism)), "Correct it.")

    def _require_tls(self) -> None:
        given = [
            key
            for key, is_set in {
                "ssl_ca_file": self.ssl_ca_file is not None,
                "ssl_client_file": self.ssl_client_file is not None,
                "ssl_client_password": self.ssl_client_password is not None,
                "ssl_check_hostname": not self.ssl_check_hostname,
            }.items()
            if is_set
        ]
        if given and not self.security_protocol.endswith("SSL"):
            raise self.reject(
                "security_protocol",
                f"{', '.join(given)} given, but {self.security_protocol} is not encrypted",
                "Write SSL or SASL_SSL, or leave them out.",
            )
        if self.ssl_client_password is not None and self.ssl_client_file is None:
            raise self.reject(
                "ssl_client_file", "missing beside ssl_client_password", "Give the PEM file that it opens."
            )


def _quote_java(text: str) -> str:
    """Quote a text of JAAS, which Java reads with its StreamTokenizer."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _one_of(known: tuple[str, ...], found: str) -> str:
    return f"expected {_list(known)}, found {found!r}"


def _list(known: tuple[str, ...]) -> str:
    return f"{', '.join(known[:-1])} or {known[-1]}"


_SERVERS: Final = "BOOTSTRAP_SERVERS"


def read_cluster(name: str, environment: Mapping[str, str] | None = None) -> KafkaConnection:
    """RejectedError names the variable or the field that is missing or wrong, and never shows a secret."""
    found = os.environ if environment is None else environment

    def read(field: str) -> str | None:
        return found.get(_variable_of(name, field)) or None

    servers = read(_SERVERS)
    if servers is None:
        raise RejectedError(
            f"expected the brokers of the connection {name!r} in the environment, found none",
            field=servers_variable(name),
            hint="Set it to host:port,host:port, and beside it …_SECURITY_PROTOCOL, …_USERNAME and so on.",
        )
    return KafkaConnection(
        bootstrap_servers=servers,
        security_protocol=cast("SecurityProtocol", read("SECURITY_PROTOCOL") or "PLAINTEXT"),
        sasl_mechanism=cast("SaslMechanism | None", read("SASL_MECHANISM")),
        username=read("USERNAME"),
        password=read("PASSWORD"),
        ssl_ca_file=read("SSL_CA_FILE"),
        ssl_client_file=read("SSL_CLIENT_FILE"),
        ssl_client_password=read("SSL_CLIENT_PASSWORD"),
        timeout_s=_read_seconds(read("TIMEOUT_S"), _variable_of(name, "TIMEOUT_S")),
        name=name,
    )


def servers_variable(name: str) -> str:
    """The variable of the brokers of a connection."""
    return _variable_of(name, _SERVERS)


def _variable_of(name: str, field: str) -> str:
    return f"GOBBLIN_KAFKA_{name.upper()}_{field}"


def _read_seconds(text: str | None, variable: str) -> float:
    if text is None:
        return TIMEOUT_S
    try:
        return float(text)
    except ValueError:
        raise RejectedError(f"expected a number of seconds, found {text!r}", field=variable, hint="Write 30.") from None
