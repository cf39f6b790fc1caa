"""The cluster of a connection by its name, from the environment: the variables are those of a Kafka source."""

import os
from collections.abc import Mapping
from typing import Final, cast

from gobblin_assets.errors import RejectedError
from gobblin_assets.kafka.connection import TIMEOUT_S, KafkaConnection, SaslMechanism, SecurityProtocol

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
