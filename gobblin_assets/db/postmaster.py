"""The server process of the embedded Postgres: its launch, the search for it, and its stop.

Nothing here kills. A recorded PID counts only if its process works in our data directory.
"""

import contextlib
import hashlib
import os
import signal
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from gobblin_assets.db.account import Account
from gobblin_assets.db.cluster import ClusterFiles, Endpoint, get_binary
from gobblin_assets.errors import RejectedError

HOST = "127.0.0.1"
LOG_BYTES_MAX = 20_000_000
# A socket's whole path may hold 107 bytes on Linux, 103 on macOS; "/.s.PGSQL.65535.lock" takes 20.
SOCKET_DIRECTORY_BYTES_MAX = 80

_LOG_TAIL_BYTES = 4096
_LOG_TAIL_LINES = 3


def launch(files: ClusterFiles, account: Account, running: int) -> None:
    """Start the server in a session of its own. The caller holds both locks, so nothing of ours runs."""
    _remove_stale_pid_file(files)
    endpoint = _choose_endpoint(files, account)
    files.write_endpoint(endpoint)
    if files.log.exists() and files.log.stat().st_size > LOG_BYTES_MAX:
        files.log.replace(files.log.with_suffix(".log.old"))
    command = [
        get_binary("postgres"),
        "-D",
        files.data,
        "-c",
        f"port={endpoint.port}",
        "-c",
        f"listen_addresses={HOST}",
        "-c",
        f"unix_socket_directories={endpoint.socket_directory}",
    ]
    with files.log.open("ab") as log:
        # The shell leaves the server behind as an orphan of its own session: neither Ctrl-C, nor the end of the
        # starter, nor a kill of its process group reaches it, and no zombie stays in the starter.
        subprocess.run(  # noqa: S603  our own constant script and a program of the wheel
            ["/bin/sh", "-c", '"$@" &', "sh", *(str(part) for part in command)],
            stdout=log,
            stderr=log,
            cwd="/",
            check=True,
            start_new_session=True,
            pass_fds=[running],
            **account.process_arguments(),
        )


def _remove_stale_pid_file(files: ClusterFiles) -> None:
    # Postgres takes any living process with the recorded PID for its server and refuses to start. The lock
    # says that no server of ours lives; one that was started by hand would work in the data directory.
    pid = _find_recorded_pid(files)
    if pid is not None and _works_in(pid, files.data):
        raise RejectedError(
            f"process {pid} runs Postgres on {str(files.data)!r}, and was not started by gobblin-assets.",
            field="home",
            hint="Stop it the way it was started, then try again.",
        )
    files.pid_file.unlink(missing_ok=True)


def _find_recorded_pid(files: ClusterFiles) -> int | None:
    try:
        return int(files.pid_file.read_text(encoding="utf-8", errors="replace").splitlines()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def _works_in(pid: int, directory: Path) -> bool:
    try:
        return same_folder(Path(f"/proc/{pid}/cwd"), directory)
    except PermissionError:
        # Of another user, so not the owner of our data directory.
        return False


def is_seen(files: ClusterFiles) -> bool:
    """Whether the server's main process is visible; a process of another container or user may not be."""
    pid = _find_recorded_pid(files)
    return pid is not None and _works_in(pid, files.data)


def same_folder(left: Path, right: Path) -> bool:
    try:
        return left.samefile(right)
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return False


def _choose_endpoint(files: ClusterFiles, account: Account) -> Endpoint:
    recorded = files.find_endpoint()
    port = recorded.port if recorded and _is_free(recorded.port) else _find_free_port()
    endpoint = Endpoint(port, _make_socket_directory(files, account, recorded))
    # A stale ".s.PGSQL.<port>.lock" stops Postgres in the same way as a stale postmaster.pid.
    _remove_socket_files(endpoint.socket_directory)
    return endpoint


def _make_socket_directory(files: ClusterFiles, account: Account, recorded: Endpoint | None) -> Path:
    if recorded and _is_private(recorded.socket_directory, account):
        return recorded.socket_directory
    parent = Path(tempfile.gettempdir())
    if not _suits_sockets(parent, account):
        parent = Path("/tmp")  # noqa: S108  what is made in it is private, or is not used
    # The same name after each stop, so that processes that work for days can use the URL that they know.
    identity = f"{account.uid}:{files.data}".encode()
    named = recorded.socket_directory if recorded else parent / f"gobblin-{hashlib.sha256(identity).hexdigest()[:16]}"
    try:
        named.mkdir(mode=stat.S_IRWXU)
    except (FileExistsError, FileNotFoundError):
        # It belongs to another user (everybody may take a name in /tmp), or is below a folder that is gone.
        if not _is_private(named, account):
            named = Path(tempfile.mkdtemp(prefix="gobblin-", dir=parent))
    account.own(named)
    return named


def _suits_sockets(parent: Path, account: Account) -> bool:
    # libpq splits hosts at commas, Postgres its directories at commas and quotes.
    plain = all(character.isalnum() or character in "/._-" for character in str(parent))
    short = len(os.fsencode(parent)) + len("/gobblin-0123456789abcdef") <= SOCKET_DIRECTORY_BYTES_MAX
    open_to_all = not account.switched or stat.S_IMODE(parent.stat().st_mode) & stat.S_IXOTH
    return plain and short and bool(open_to_all)


def _is_private(directory: Path, account: Account) -> bool:
    try:
        found = directory.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == account.uid and stat.S_IMODE(found.st_mode) == stat.S_IRWXU


def remove_sockets(endpoint: Endpoint | None) -> None:
    """Remove the socket directory of a server that has ended, and nothing else that might be in it."""
    if endpoint is None or not endpoint.socket_directory.is_dir():
        return
    _remove_socket_files(endpoint.socket_directory)
    with contextlib.suppress(OSError):
        endpoint.socket_directory.rmdir()


def _remove_socket_files(directory: Path) -> None:
    for path in directory.glob(".s.PGSQL.*"):
        path.unlink(missing_ok=True)


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _find_free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def interrupt_postmaster(files: ClusterFiles) -> None:
    pid = _find_recorded_pid(files)
    # A PID counts only if its process works in our data directory, where the system can tell.
    if pid is None or (Path("/proc/self/cwd").exists() and not _works_in(pid, files.data)):
        raise RejectedError(
            f"the server on {str(files.data)!r} answers, but its process can't be seen from here.",
            field="home",
            hint="Stop it from the container, or as the user, in which it was started.",
        )
    os.kill(pid, signal.SIGINT)


def log_tail(files: ClusterFiles) -> str:
    try:
        with files.log.open("rb") as log:
            log.seek(max(0, files.log.stat().st_size - _LOG_TAIL_BYTES))
            lines = log.read().decode("utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "(no log)"
    return " | ".join(lines[-_LOG_TAIL_LINES:]) or "(an empty log)"
