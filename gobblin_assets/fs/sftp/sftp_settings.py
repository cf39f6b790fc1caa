"""Settings of the environment for SFTP servers. No secret appears in a repr, in errors or in pickles."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gobblin_assets.errors import RejectedError

PREFIX: Final = "GOBBLIN_SFTP_"
AGENT_VARIABLE: Final = "SSH_AUTH_SOCK"


@dataclass(frozen=True, slots=True)
class SftpSettings:
    """``user``: where a URI names none; None: the user of the process. ``known_hosts``: the file of trusted host keys.

    ``agent``: the socket of an ssh-agent, which is asked where there is no ``key_file``.
    """

    known_hosts: str
    user: str | None = None
    key_file: str | None = None
    key_passphrase: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    agent: str | None = None


def read_sftp_settings(environment: Mapping[str, str], home: Path) -> SftpSettings:
    """From ``GOBBLIN_SFTP_USER``, ``…_KNOWN_HOSTS``, ``…_KEY_FILE`` and so on; empty values count as missing.

    ``home``: in it lies the user's own file of known hosts. RejectedError names the variable.
    """
    names = ("user", "known_hosts", "key_file", "key_passphrase", "password")
    given = {name: environment.get(PREFIX + name.upper()) or None for name in names}
    for name in ("known_hosts", "key_file"):
        path = given[name]
        if path is not None and not Path(path).is_file():
            # A key itself may be written in place of its file.
            where = "there" if name == "key_file" else f"at {path!a}"
            raise _refuse(name, f"expected a file, found none {where}", "Correct the path.")
    if given["key_passphrase"] is not None and given["key_file"] is None:
        raise _refuse("key_file", "expected the key of the passphrase, found none", "Name its file, or unset both.")
    return SftpSettings(
        given["known_hosts"] or str(home / ".ssh" / "known_hosts"),
        given["user"],
        given["key_file"],
        given["key_passphrase"],
        given["password"],
        environment.get(AGENT_VARIABLE) or None,
    )


def _refuse(name: str, message: str, fix: str) -> RejectedError:
    return RejectedError(message, field=PREFIX + name.upper(), hint=fix)
