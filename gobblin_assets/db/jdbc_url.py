"""URLs of Postgres in the form of its JDBC driver and in libpq's, and the parameters of connections at them."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote

from gobblin_assets.db.libpq import neutral_parameters
from gobblin_assets.errors import RejectedError

CONNECT_TIMEOUT_S: Final = 10
"""How long a server may take to accept a connection before the run says that it can't be reached."""

# libpq's names of parameters that pgjdbc takes in its URL; its other parameters concern only the driver.
_PARAMETERS: Final = MappingProxyType({
    "user": "user", "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert", "sslkey": "sslkey",
    "ApplicationName": "application_name", "options": "options", "targetServerType": "target_session_attrs",
})  # fmt: skip
_SERVER_TYPES: Final = MappingProxyType({"primary": "primary", "secondary": "standby", "any": "any"})

_DRIVERS_FORM: Final = "jdbc:postgresql:"
_LIBPQS_FORMS: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
_SERVER: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d+)?")
# What both forms of URLs take, by each form's names. Not ssl=true, which means less to libpq than to the driver.
_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {**{libpqs: drivers for drivers, libpqs in _PARAMETERS.items()}, **{name: name for name in _PARAMETERS}}
    | {"currentSchema": "currentSchema"}
)
_SESSION_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({of: to for to, of in _SERVER_TYPES.items()})

_SECRET_PARAMETER: Final = re.compile(r"(?i)(?:^|[?&;,(\s])[\w.-]*(?:password|passwd|pwd|secret|token)\s*=")
_SECRET_AUTHORITY: Final = re.compile(r"//[^/@?;]*:(?!\d+(?:[/?;,]|$))[^?;]*@")


def holds_password(url: str) -> bool:
    """Whether a password stands in a URL of any database, in a way that drivers have in common."""
    return _SECRET_PARAMETER.search(url) is not None or _SECRET_AUTHORITY.search(url) is not None


def is_postgres_url(url: str) -> bool:
    """Whether the URL is one of Postgres, in the form of its JDBC driver or in libpq's."""
    return url.startswith((_DRIVERS_FORM, *_LIBPQS_FORMS))


def read_postgres_url(url: str, *, field: str, beside: str) -> str | None:
    """The URL of a Postgres in the driver's form, ``jdbc:postgresql://host:port,host:port/database?name=value``.

    In libpq's form it begins with ``postgresql://`` or ``postgres://``, and its options may have libpq's names. None:
    it is no URL of Postgres. RejectedError names ``field`` and never shows the URL: for a user or a password in it,
    which belong ``beside`` it, and for what the driver could not be told.
    """
    if not is_postgres_url(url):
        return None
    place, _, query = url.partition("?")
    servers, _, database = place.partition("//")[2].partition("/")
    if "@" in servers or holds_password(url):
        raise RejectedError(
            "expected a URL without a user and a password",
            field=field,
            hint=f"Take them out, and give them as {beside}: URLs end up in logs.",
        )
    if url.startswith(_DRIVERS_FORM):
        return url
    if not all(_SERVER.fullmatch(server) for server in servers.split(",")):
        raise RejectedError(
            "expected a host, or several with commas between them, found something else",
            field=field,
            hint="Write it like postgresql://host:5432/database. For a server of this machine write localhost.",
        )
    options = [_read_option(each, field) for each in query.split("&") if each]
    written = f"{_DRIVERS_FORM}//{servers}/{quote(unquote(database), safe='')}"
    return f"{written}?{'&'.join(options)}" if options else written


def _read_option(option: str, field: str) -> str:
    """An option of a URL in libpq's form, as the driver has it."""
    name, equals, value = (unquote(each) for each in option.partition("="))
    if name not in _OPTIONS or not equals:
        shown = repr(name) if name.isidentifier() else "another one"
        raise RejectedError(
            f"expected options of {', '.join(sorted(_OPTIONS))}, found {shown}",
            field=field,
            hint="Leave it out, or write one of these; other options of the JDBC driver go into a URL that begins with "
            "jdbc:postgresql://.",
        )
    if name == "target_session_attrs":
        if value not in _SESSION_ATTRIBUTES:
            raise RejectedError(
                f"expected target_session_attrs of {', '.join(_SESSION_ATTRIBUTES)}, found another one",
                field=field,
                hint="Write primary for a server that takes writes, standby for one that does not.",
            )
        value = _SESSION_ATTRIBUTES[value]
    return f"{_OPTIONS[name]}={quote(value, safe='')}"


def plan_libpq(url: str, user: str | None, password: str | None, properties: Mapping[str, str]) -> dict[str, Any]:
    """The parameters of libpq for a URL in the driver's form.

    Every parameter has a value, so that libpq takes none from the environment.
    """
    rest = url.removeprefix(_DRIVERS_FORM)
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
