"""Parameters that libpq takes from the environment and from files, and how our connections prevent this.

libpq fills every parameter that a program leaves out from an environment variable (``PGPASSWORD``, ``PGHOSTADDR``, …)
and from ``~/.pgpass``. It has no switch against that, but it does not fill a given parameter, even an empty one. So our
connections give all parameters. Empty means the default; where libpq refuses an empty text, the default itself is
written out.

Four variables act whatever a program gives (``settings.UNASKED_VARIABLES``): libpq looks up the name of a service in
the user's files before the parameters, and sends three settings to the server. The programs of this package remove
these variables from their own environment when they start (``forget_unasked_variables``). Other programs' processes
keep their environment: there the variables take effect, or, if one of them breaks a connection, the error names it.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from psycopg import pq

# A name below a file can't exist. libpq reads an empty name as ~/.pgpass, and warns about /dev/null.
NO_PASSWORD_FILE: Final = "/dev/null/none"  # noqa: S105  the name of a file that is not there

NEUTRAL: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(
        (
            *("host", "hostaddr", "port", "dbname", "user", "password"),
            *("client_encoding", "options", "application_name", "requirepeer", "gsslib"),
            *("sslcert", "sslkey", "sslrootcert", "sslcrl", "sslcrldir", "ssl_max_protocol_version"),
        ),
        "",
    )
    | {
        "passfile": NO_PASSWORD_FILE,
        "connect_timeout": "0",
        "channel_binding": "prefer",
        # An empty list allows nothing. This list allows all methods except the one that only Windows has.
        "require_auth": "!sspi",
        "sslmode": "prefer",
        "sslnegotiation": "postgres",
        "sslcompression": "0",
        "sslcertmode": "allow",
        "sslsni": "1",
        "ssl_min_protocol_version": "TLSv1.2",
        "min_protocol_version": "3.0",
        "max_protocol_version": "3.0",
        "gssencmode": "prefer",
        "krbsrvname": "postgres",
        "gssdelegation": "0",
        "target_session_attrs": "any",
        "load_balance_hosts": "disable",
    }
)
"""Neutral values by libpq's names of its parameters; the service is not among them."""


def list_variables() -> dict[str, str]:
    """The parameters of psycopg's libpq that a variable fills, with the variable's name."""
    found = pq.Conninfo.get_defaults()
    return {option.keyword.decode(): option.envvar.decode() for option in found if option.envvar is not None}


def neutral_parameters(given: Collection[str], known: Collection[str] | None = None) -> dict[str, str]:
    """Parameters to add to ``given``, so that libpq fills no parameter from elsewhere.

    ``known``: the parameters of the libpq in use; by default psycopg's. A connection that names a service wants the
    service's file, so nothing is added: for libpq, parameters take precedence over the file.
    """
    if "service" in given:
        return {}
    neutral = {**NEUTRAL, **_list_compiled()} if known is None else NEUTRAL
    names = list_variables() if known is None else known
    return {name: value for name, value in neutral.items() if name in names and name not in given}


def _list_compiled() -> dict[str, str]:
    """The compiled defaults of psycopg's libpq, as far as libpq reports them."""
    found = pq.Conninfo.get_defaults()
    return {option.keyword.decode(): option.compiled.decode() for option in found if option.compiled is not None}


def blamed_variable(message: str, environment: Mapping[str, str]) -> str | None:
    """The variable of ``UNASKED_VARIABLES`` that made a connection fail, by the message of libpq or the server."""
    signs = {
        "PGSERVICE": ("definition of service", "service file", "nested service", "LDAP"),
        "PGTZ": ('parameter "TimeZone"',),
        "PGDATESTYLE": ('parameter "DateStyle"', "conflicting datestyle"),
        "PGGEQO": ('parameter "geqo"',),
    }
    lowered = message.lower()
    for variable, texts in signs.items():
        if environment.get(variable) and any(text.lower() in lowered for text in texts):
            return variable
    return None
