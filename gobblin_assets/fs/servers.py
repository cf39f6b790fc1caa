"""Clients of servers: how often a request is sent again, after which waits, at which URL, and as which user."""

import getpass
import random
from typing import Final
from urllib.parse import urlsplit

from gobblin_assets.errors import RejectedError

TRIES_MAX: Final = 5
BUSY_TRIES_MAX: Final = 12
"""Of a store that says that it is busy, and so will be there again."""

BACK_OFF_S: Final = 0.1
BACK_OFF_S_MAX: Final = 10.0


def back_off_s(number: int) -> float:
    """The wait behind a try: three times as long behind each, with chance; 4 s in all, or about 60 s."""
    longest_s = min(BACK_OFF_S * 3.0 ** (number - 1), BACK_OFF_S_MAX)
    return longest_s * random.uniform(0.5, 1.0)  # noqa: S311  only spreads the tries of many processes


def reason_of(error: Exception) -> str:
    """The kind of failure of a client of HTTP. urllib3's text names the host and the whole path besides."""
    cause = error.__cause__ or (error.args[-1] if error.args and isinstance(error.args[-1], Exception) else None)
    inner = f" ({type(cause).__name__}: {cause})" if isinstance(cause, OSError) else ""
    return f"{type(error).__name__}{inner}"


def check_server_url(url: str, variable: str, *, example: str, credentials: str) -> None:
    """RejectedError for anything but http:// or https://, a host and a port: it names ``variable``, and not the URL.

    The URL may hold a secret. ``credentials``: the hint where it does.
    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise RejectedError("expected a URL, found something else", field=variable, hint=f"Write {example}.") from None
    if parts.username is not None or parts.password is not None:
        raise RejectedError("the URL holds credentials", field=variable, hint=credentials)
    if parts.scheme not in {"http", "https"} or not has_host or parts.path.strip("/") or parts.query or parts.fragment:
        said = "expected http:// or https://, a host and a port, found something else"
        raise RejectedError(said, field=variable, hint="Correct it.")


def find_own_name(variable: str) -> str:
    """The user of this process, for servers for which no other one is given.

    RejectedError names ``variable``, which would name another user: containers run as numbers without a name.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise RejectedError(
            "the user of this process has no name", field=variable, hint="Name the user of the server."
        ) from None
