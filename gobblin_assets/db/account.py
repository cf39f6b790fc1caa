"""The operating-system user of the embedded Postgres, and the check that this user can reach its files.

Postgres refuses to run as root. Started by root, the server runs as the user that ``GOBBLIN_POSTGRES_USER``
names, else as ``postgres`` if that user exists, else as ``nobody``. Folders above ours keep their modes: if this
user can't pass through a folder, the error names the folder and the setting to change.
"""

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gobblin_assets.errors import RejectedError

USER_VARIABLE = "GOBBLIN_POSTGRES_USER"
DEFAULT_USERS = ("postgres", "nobody")

_SHELL = "/bin/sh"
_REACH_WAIT_S_MAX = 30


@dataclass(frozen=True, slots=True)
class Account:
    """The server's user. ``switched``: this process is root, and every server program must change to that user."""

    name: str
    uid: int
    gid: int
    switched: bool

    def process_arguments(self) -> dict[str, Any]:
        """Arguments of ``subprocess``, so that the child runs as this user, with a clean environment."""
        # The caller's locale, TZ and PG* variables would otherwise reach the cluster.
        arguments: dict[str, Any] = {
            "env": {"PATH": os.defpath, "LC_ALL": "C", "LANG": "C"},
            "stdin": subprocess.DEVNULL,
            "umask": 0o077,
        }
        if self.switched:
            groups = os.getgrouplist(self.name, self.gid)
            arguments |= {"user": self.uid, "group": self.gid, "extra_groups": groups}
        return arguments

    def own(self, path: Path) -> None:
        """Hand ``path``, which we made, to this user. Nothing to do unless we are root."""
        if self.switched:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def find_account(data_directory: Path, environment: Mapping[str, str] | None = None) -> Account:
    """The user for a cluster in ``data_directory``: its owner where it exists already.

    Raises:
        RejectedError: no such user, no name for our own uid, or the cluster belongs to somebody else.

    """
    variables = os.environ if environment is None else environment
    wanted = variables.get(USER_VARIABLE) or None
    owner_uid = data_directory.stat().st_uid if data_directory.exists() else None
    if os.geteuid() != 0:
        return _own_account(data_directory, owner_uid)
    if owner_uid:
        return _owner_account(data_directory, owner_uid, wanted)
    for name in (wanted,) if wanted else DEFAULT_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid == 0:
            break
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=True)
    raise RejectedError(
        f"Postgres does not run as root, and {wanted or ' or '.join(DEFAULT_USERS)!r} is no ordinary user here.",
        field=USER_VARIABLE,
        hint=f"Set {USER_VARIABLE} to the name of an existing unprivileged user.",
    )


def _own_account(data_directory: Path, owner_uid: int | None) -> Account:
    if owner_uid not in (None, os.geteuid()):
        raise RejectedError(
            f"{str(data_directory)!r} belongs to uid {owner_uid}, this process runs as uid {os.geteuid()}.",
            field="home",
            hint="Run as that user, or set GOBBLIN_HOME to a folder of your own.",
        )
    try:
        entry = pwd.getpwuid(os.geteuid())
    except KeyError:
        raise RejectedError(
            f"uid {os.geteuid()} has no name on this system, and Postgres's initdb wants one.",
            field="user",
            hint="Add the uid to /etc/passwd, or set GOBBLIN_DATABASE_URL to a Postgres server of your own.",
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=False)


def _owner_account(data_directory: Path, owner_uid: int, wanted: str | None) -> Account:
    try:
        entry = pwd.getpwuid(owner_uid)
    except KeyError:
        raise RejectedError(
            f"{str(data_directory)!r} belongs to uid {owner_uid}, which has no name on this system.",
            field=USER_VARIABLE,
            hint=f"Give that uid a name, or give the folder to the user that {USER_VARIABLE} names.",
        ) from None
    if wanted not in (None, entry.pw_name):
        raise RejectedError(
            f"{wanted!r} is asked for, but {str(data_directory)!r} belongs to {entry.pw_name!r}.",
            field=USER_VARIABLE,
            hint=f"Unset {USER_VARIABLE}, or stop the server and give the folder to {wanted!r}.",
        )
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, switched=True)


def check_reachable(account: Account, path: Path, *, field: str, hint: str) -> None:
    """Refuse a directory that the server's user can't reach; the error names the first closed directory.

    The check runs as that user (``cd``), so that access lists and mounts count too.
    """
    if not account.switched or _can_enter(account, path):
        return
    closed = next(folder for folder in (*reversed(path.parents), path) if not _can_enter(account, folder))
    raise RejectedError(
        f"the user {account.name!r}, as which root runs the embedded Postgres, can't pass through {str(closed)!r}.",
        field=field,
        hint=hint,
    )


def run_as(
    account: Account, command: Sequence[str | Path], *, wait_s_max: float, keep_open: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a short program as the server's user; returns its output, whatever its exit code.

    ``keep_open``: descriptors that the program inherits, such as a lock that must outlive this process.

    Raises:
        subprocess.TimeoutExpired: it took longer than ``wait_s_max``.

    """
    return subprocess.run(  # noqa: S603  a program of the wheel with arguments of ours, no shell
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        check=False,
        timeout=wait_s_max,
        text=True,
        encoding="utf-8",
        errors="replace",
        pass_fds=keep_open,
        **account.process_arguments(),
    )


def _can_enter(account: Account, folder: Path) -> bool:
    script: list[str | Path] = [_SHELL, "-c", 'cd -- "$1"', _SHELL, folder]
    return run_as(account, script, wait_s_max=_REACH_WAIT_S_MAX).returncode == 0
