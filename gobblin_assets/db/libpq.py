"""What libpq takes from its surroundings, and how a connection of ours takes none of it.

libpq fills every parameter that a program leaves out from a variable of the environment (``PGPASSWORD``,
``PGHOSTADDR``, …) and from ``~/.pgpass``. It has no switch against that, but a parameter that is given, be it empty,
is not filled: so a connection of ours gives all of them. Empty means the default, except where libpq refuses an empty
text; there the default itself is written out.

Four variables act whatever a program gives (``UNASKED_VARIABLES``): the name of a service is looked up in the user's
files before the parameters are, and three settings are sent to the server. The programs of this package take them
out of their own environment when they start (``forget_unasked_variables``). A process that is somebody else's keeps
its environment: there they take effect, or are refused by name where they break a connection.
"""

from collections.abc import Collection, Mapping, MutableMapping
from types import MappingProxyType
from typing import Final

from psycopg import pq

UNASKED_VARIABLES: Final = ("PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO")

# A name below a file can't exist. Of an empty name libpq makes ~/.pgpass, and /dev/null it warns about.
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
        # An empty list allows nothing. This one allows all but what is Windows' alone.
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
"""What stands for "nothing was asked for", by libpq's names of its parameters; the service is not among them."""


def list_variables() -> dict[str, str]:
    """The parameters of psycopg's libpq that a variable fills, with the variable's name."""
    found = pq.Conninfo.get_defaults()
    return {option.keyword.decode(): option.envvar.decode() for option in found if option.envvar is not None}


def neutral_parameters(given: Collection[str], known: Collection[str] | None = None) -> dict[str, str]:
    """What to add to the parameters ``given``, so that libpq takes nothing for the rest from anywhere.

    ``known`` are the parameters of the libpq that gets them; without it, psycopg's. A connection that names a service
    asks for the service's file and gets nothing added: libpq lets parameters win over the file.
    """
    if "service" in given:
        return {}
    neutral = {**NEUTRAL, **_list_compiled()} if known is None else NEUTRAL
    names = list_variables() if known is None else known
    return {name: value for name, value in neutral.items() if name in names and name not in given}


def _list_compiled() -> dict[str, str]:
    """What psycopg's libpq was built to do where nobody says anything, as far as it tells."""
    found = pq.Conninfo.get_defaults()
    return {option.keyword.decode(): option.compiled.decode() for option in found if option.compiled is not None}


def forget_unasked_variables(environment: MutableMapping[str, str]) -> None:
    """Take the variables that no parameter outdoes out of a process's environment, before any thread runs in it."""
    for name in UNASKED_VARIABLES:
        environment.pop(name, None)


def blamed_variable(message: str, environment: Mapping[str, str]) -> str | None:
    """Which of ``UNASKED_VARIABLES`` made a connection fail, by what libpq or the server said of it."""
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
