"""The user of this process, for servers that are told no other one."""

import getpass

from gobblin_assets.errors import RejectedError


def find_own_name(variable: str) -> str:
    """RejectedError names ``variable``, which would name another user: containers run as numbers without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise RejectedError(
            "the user of this process has no name", field=variable, hint="Name the user of the server."
        ) from None
