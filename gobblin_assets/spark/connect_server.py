"""The warm Spark Connect server of a home: it outlives the process that started it, so a cold start is paid once.

Only the answer to an authenticated call proves that the server runs. ``connect.json`` says where to ask (owner-only,
since it holds the token); a process id counts only together with the time at which that process started. The file is
written before the server is waited for, so that ``stop`` can find the server even if its starter is killed.
Starts and stops of one home exclude each other by a lock on ``connect.lock``.

The server listens on the loopback address only. Its configuration, with a secret for Spark's own ports, goes through
an owner-only file, and its token through its environment: neither shows in the list of processes. Its temporary files
are in an owner-only folder, which is removed with the server.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyspark

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.hdfs.hdfs_settings import find_named_user
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.settings import make_home
from gobblin_assets.spark.class_archive import with_archive
from gobblin_assets.spark.connect_calls import answers
from gobblin_assets.spark.hdfs import find_hdfs_user, name_hdfs_user, refuse_other_user
from gobblin_assets.spark.java import check_java, fetching_alone, without_addresses
from gobblin_assets.spark.processes import find_start_mark, signal_and_wait
from gobblin_assets.spark.s3 import S3_CAPABILITY, mark_environment
from gobblin_assets.spark.session import explain_failed_start
from gobblin_assets.spark.spark_settings import SparkSettings, is_local, plan_conf

START_S_MAX: Final = 180.0
"""A start takes some 8 s; a first one also downloads jars."""

STOP_S_MAX: Final = 20.0
"""The time that running queries and shutdown hooks get before the server is killed."""

POLL_S: Final = 0.2
REPORT_EVERY_S: Final = 10.0

PORT_TRIES_MAX: Final = 3
"""Another process may take a free port between the look at the port and the server's start."""

_HOST: Final = "localhost"  # the client sends a token without TLS only to this name
_CLASS: Final = "org.apache.spark.sql.connect.service.SparkConnectServer"
_TAKEN: Final = "BindException"


@dataclass(frozen=True, slots=True, repr=False)
class ConnectServer:
    """A server that was started. ``url`` holds the token; ``start_mark`` tells its process from a later one of its id.

    ``capabilities``: the connectors that it was started with. ``s3_mark``: of the variables by which it reaches S3.
    ``hdfs_user``: as whom it reaches HDFS.
    """

    url: str
    pid: int
    port: int
    start_mark: str
    conf_digest: str
    log_path: Path
    capabilities: tuple[str, ...] = ()
    s3_mark: str = ""
    hdfs_user: str = ""

    def __repr__(self) -> str:
        return f"ConnectServer(port={self.port}, pid={self.pid})"

    def reaches_s3_by(self, environment: Mapping[str, str]) -> bool:
        """Whether it was started for S3, with the same stores and keys."""
        return self.s3_mark == mark_environment(environment, self.url)


@dataclass(frozen=True, slots=True)
class _Files:
    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "connect.json"

    @property
    def lock(self) -> Path:
        return self.folder / "connect.lock"

    @property
    def conf(self) -> Path:
        return self.folder / "connect.properties"

    @property
    def log(self) -> Path:
        return self.folder / "connect.log"

    @property
    def temporary(self) -> Path:
        return self.folder / "connect.tmp"


def start_connect(home: Path, settings: SparkSettings, say: Callable[[str], None]) -> ConnectServer:
    """The server of this home, started if none answers. ``settings.remote`` is ignored.

    RejectedError where one runs with other settings or the settings can't be met; RetryableError where one
    does not answer in ``START_S_MAX``.
    """
    conf = plan_conf(settings)
    digest = hashlib.sha256(json.dumps([pyspark.__version__, conf], sort_keys=True).encode()).hexdigest()
    files = _Files(home.absolute() / "spark")
    with families("keep Spark's files in", str(files.folder)):
        make_home(home.absolute())
        files.folder.mkdir(exist_ok=True)
        with _locked(files):
            running = _read(files)
            if running is not None and find_start_mark(running.pid) == running.start_mark:
                return _keep(files, running, digest, settings.capabilities, say)
            check_java()
            _remove_temporary(files)
            for tries in range(1, PORT_TRIES_MAX + 1):
                try:
                    with fetching_alone(conf, say):
                        server = _launch(files, conf, digest, settings.capabilities)
                        say(f"Spark Connect server starts on port {server.port} (log: {files.log})")
                        _wait(server, say)
                except GobblinError:
                    signal_and_wait(server.pid, server.start_mark, STOP_S_MAX)
                    if tries == PORT_TRIES_MAX or _TAKEN not in files.log.read_text(errors="replace"):
                        raise
                else:
                    say(f"Spark Connect server answers on port {server.port} (pid {server.pid})")
                    return server
    raise AssertionError("the last try returns or raises")


def find(home: Path) -> ConnectServer | None:
    """The server of this home if it answers now."""
    server = _read(_Files(home.absolute() / "spark"))
    return server if server is not None and answers(server.url) else None


def stop_connect(home: Path) -> bool:
    """Stop the server and forget it; False when none was running. Only the process that was started is signalled."""
    files = _Files(home.absolute() / "spark")
    if not files.state.exists():
        return False
    with families("stop the server of", str(files.folder)), _locked(files):
        server = _read(files)
        was_running = server is not None and signal_and_wait(server.pid, server.start_mark, STOP_S_MAX)
        for path in (files.state, files.conf):
            path.unlink(missing_ok=True)
        _remove_temporary(files)
    return was_running


def _keep(
    files: _Files, running: ConnectServer, digest: str, capabilities: tuple[str, ...], say: Callable[[str], None]
) -> ConnectServer:
    if not answers(running.url) and time.time() - files.state.stat().st_mtime < START_S_MAX:
        # We hold the lock, so the process that launched it was killed while it was starting.
        _wait(running, say)
    elif not answers(running.url):
        raise RetryableError(
            f"the Spark Connect server (pid {running.pid}) runs but does not answer (see {running.log_path})",
            hint="Wait, or stop it with: gobblin-assets spark stop",
        )
    other_keys = S3_CAPABILITY in capabilities and not running.reaches_s3_by(os.environ)
    if find_named_user(os.environ) not in {None, running.hdfs_user}:
        raise refuse_other_user(running.hdfs_user, find_hdfs_user(os.environ))
    if running.conf_digest != digest or other_keys:
        raise RejectedError(
            f"the server on port {running.port} runs with other settings, keys or version of Spark",
            field="spark",
            hint="Stop it first: gobblin-assets spark stop",
        )
    return running


def _launch(files: _Files, conf: Mapping[str, str], digest: str, capabilities: tuple[str, ...]) -> ConnectServer:
    port, token = _find_free_port(), secrets.token_hex(32)
    files.log.unlink(missing_ok=True)
    files.temporary.mkdir(mode=0o700, exist_ok=True)
    _write_private(files.conf, _as_properties(with_archive({**_secure(conf, files.temporary), **_bind(port)})))
    spark_home = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    submit = [
        f"{spark_home}/bin/spark-submit",
        *("--class", _CLASS, "--name", conf["spark.app.name"], "--properties-file", str(files.conf)),
        # Otherwise a file of properties takes the place of the site's own.
        *("--load-spark-defaults", "spark-internal"),
    ]
    variables = {
        key: value for key, value in without_addresses(os.environ).items() if not key.startswith("SPARK_CONNECT_")
    }
    if is_local(conf["spark.master"]):
        # Executors of a cluster connect back to the driver by its address, and have a Python of their own.
        variables = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **variables}
    variables |= {
        "SPARK_HOME": spark_home,
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": token,
        # Spark reads these before its configuration; Python's workers read the second.
        "SPARK_LOCAL_DIRS": str(files.temporary),
        "TMPDIR": str(files.temporary),
        **name_hdfs_user(variables),
    }
    # The shell ends at once and leaves the server to init: the server is nobody's child, so it neither dies with its
    # starter nor stays behind as a zombie. spark-submit becomes the JVM by exec and keeps its id.
    with files.log.open("wb") as log:
        shell = subprocess.run(  # noqa: S603  our own command, handed on as separate words
            ["/bin/sh", "-c", 'log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!', "sh", str(files.log), *submit],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            check=True,
            start_new_session=True,
            cwd=files.folder,
        )
    pid = int(shell.stdout)
    url = f"sc://{_HOST}:{port}/;token={token}"
    server = ConnectServer(
        url=url,
        pid=pid,
        port=port,
        start_mark=find_start_mark(pid) or "",
        conf_digest=digest,
        log_path=files.log,
        capabilities=capabilities,
        s3_mark=mark_environment(os.environ, url) if S3_CAPABILITY in capabilities else "",
        hdfs_user=find_hdfs_user(variables),
    )
    _write(files, server)
    return server


def _bind(port: int) -> dict[str, str]:
    return {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}


def _secure(conf: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Configuration that keeps the machine's other users out of a JVM of ours.

    Its temporary files, with shuffled rows and data of clients, lie below ``temporary``, which only we can enter.
    A process that speaks to the ports of its driver and its block manager must know a secret. On a cluster, the owner
    of the cluster decides about the secret.
    """
    java = f'"-Djava.io.tmpdir={temporary}" {conf["spark.driver.extraJavaOptions"]}'
    secured = {**conf, "spark.local.dir": str(temporary), "spark.driver.extraJavaOptions": java}
    if is_local(conf["spark.master"]):
        secured |= {"spark.authenticate": "true", "spark.authenticate.secret": secrets.token_hex(32)}
    return secured


def _remove_temporary(files: _Files) -> None:
    """Remove the temporary files of a server that has ended; a killed server removes nothing itself."""
    shutil.rmtree(files.temporary, ignore_errors=True)


def _wait(server: ConnectServer, say: Callable[[str], None]) -> None:
    started = reported = time.monotonic()
    while (now := time.monotonic()) - started < START_S_MAX:
        if find_start_mark(server.pid) != server.start_mark:
            raise explain_failed_start(server.log_path)
        # A port that nobody listens on refuses at once; the call itself costs more.
        if _listens(server.port) and answers(server.url):
            return
        if now - reported >= REPORT_EVERY_S:
            reported = now
            say(f"Spark Connect server: still starting after {now - started:.0f} s")
        time.sleep(POLL_S)
    raise RetryableError(f"the Spark Connect server did not answer in {START_S_MAX:.0f} s (see {server.log_path})")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_properties(conf: Mapping[str, str]) -> str:
    """Java's properties format, where a backslash escapes, a line ends a value and leading blanks are dropped."""
    lines = []
    for key, value in sorted(conf.items()):
        blank = "\\" if value[:1].isspace() else ""
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f"{key}={blank}{escaped}\n")
    return "".join(lines)


@contextmanager
def _locked(files: _Files) -> Iterator[None]:
    """Hold the lock, which ends with the descriptor, so that a killed starter leaves none."""
    descriptor = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write_private(path: Path, text: str) -> None:
    """Write all or nothing, never readable by others, not even for a moment."""
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123  the mode has to be given
        file.write(text)
    draft.replace(path)


def _write(files: _Files, server: ConnectServer) -> None:
    facts = {
        "url": server.url,
        "pid": server.pid,
        "port": server.port,
        "start_mark": server.start_mark,
        "conf_digest": server.conf_digest,
        "capabilities": server.capabilities,
        "s3_mark": server.s3_mark,
        "hdfs_user": server.hdfs_user,
    }
    _write_private(files.state, json.dumps(facts))


def _read(files: _Files) -> ConnectServer | None:
    try:
        facts = json.loads(files.state.read_text(encoding="utf-8"))
        capabilities = tuple(facts.pop("capabilities", ()))
        return ConnectServer(**facts, log_path=files.log, capabilities=capabilities)
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None
