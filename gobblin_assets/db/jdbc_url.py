"""Postgres' JDBC URLs, for connections of libpq."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, unquote

from gobblin_assets.db.libpq import neutral_parameters

CONNECT_TIMEOUT_S: Final = 10
"""How long a server may take to accept a connection before the run says that it can't be reached."""

# libpq's names of parameters that pgjdbc takes in its URL; its other parameters concern only the driver.
_PARAMETERS: Final = MappingProxyType({
    "user": "user", "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert", "sslkey": "sslkey",
    "ApplicationName": "application_name", "options": "options", "targetServerType": "target_session_attrs",
})  # fmt: skip
_SERVER_TYPES: Final = MappingProxyType({"primary": "primary", "secondary": "standby", "any": "any"})


def plan_libpq(url: str, user: str | None, password: str | None, properties: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of libpq for pgjdbc's URL ``jdbc:postgresql://host:port,host:port/database?name=value``.

    Every parameter has a value, so that libpq takes none from the environment.
    """
    rest = url.removeprefix("jdbc:postgresql:")
    rest, _, query = rest.partition("?")
    given = dict(parse_qsl(query)) | dict(properties)
    authority, _, database = rest[2:].partition("/") if rest.startswith("//") else ("localhost", "", rest)
    hosts, ports = [], []
    for server in (authority or "localhost").split(","):
        host, _, port = server.rpartition(":") if server.rpartition(":")[2].isdigit() else (server, "", "")
        hosts.append(host.strip("[]") or "localhost")
        ports.append(port or "5432")
    parameters: dict[str, Any] = {_PARAMETERS[key]: value for key, value in given.items() if key in _PARAMETERS}
    if given.get("ssl", "false").lower() in {"true", ""} and "sslmode" not in parameters:
        parameters["sslmode"] = "verify-full"
    if "target_session_attrs" in parameters:
        parameters["target_session_attrs"] = _SERVER_TYPES.get(parameters["target_session_attrs"], "any")
    if "currentSchema" in given:
        options = f"{parameters.get('options', '')} -c search_path={given['currentSchema'].replace(' ', chr(92) + ' ')}"
        parameters["options"] = options.strip()
    user = user or parameters.get("user")
    if user:
        parameters["user"] = user
    if password is not None:
        parameters["password"] = password
    name = unquote(database.strip("/")) or user
    asked = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        # The session is idle while readers work; probes keep firewalls from forgetting it.
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        **parameters,
        "host": ",".join(hosts),
        "port": ",".join(ports),
        **({"dbname": name} if name else {}),
    }
    return asked | neutral_parameters(asked)
