"""Opening a Spark session: inside this process, on a cluster's master, or on a Spark Connect server."""

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession, is_remote
from pyspark.sql.connect.client.retries import DefaultPolicy

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.posix_errors import families
from gobblin_assets.spark.class_archive import with_archive
from gobblin_assets.spark.errors import first_cause, shown_cause, spark_families, spark_raises
from gobblin_assets.spark.hdfs import find_hdfs_user, prepare_hdfs_user, refuse_other_user
from gobblin_assets.spark.java import check_java, fetching_alone, own_environment
from gobblin_assets.spark.python_workers import keep_python
from gobblin_assets.spark.spark_settings import (
    SESSION_CONF,
    SESSION_DEFAULTS,
    SparkSettings,
    count_slots,
    hide_parameters,
    is_local,
    is_secret,
    plan_conf,
)

CONNECT_ANSWER_S: Final = 10.0
"""An unreachable server is reported by then, before the client's own ten minutes of retries."""

CONNECT_RETRIES_MAX: Final = 6
CONNECT_BACK_OFF_MS_MAX: Final = 5_000
"""A dead server is given up after some 15 s. The client's own ten minutes would be spent under live leases."""

DRIVER_LOGS_KEPT: Final = 20
"""One driver's log for each process; older logs are removed when a new one is opened."""

CONNECT_PORT: Final = 15_002

# The driver itself computes what is selected from a written-out table. A task would wait while others have all slots.
_ASK_ZONE: Final = "SELECT java_method('java.time.ZoneId', 'systemDefault') FROM VALUES (1)"
# PySpark prints each rejected query, with its plan, on stderr before it raises the same error.
_REPEATS_ERRORS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
_ADDRESS: Final = re.compile(r"sc://([^/:;@?#]+)(?::(\d+))?(?:/(?:;[^;=?#]+=[^;=?#]*)*)?")
_PYTHON_FILES: Final = "spark.submit.pyFiles"
_CONNECT_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
# What the server's gRPC says of a request of which it got a part, as it sometimes does on a busy machine.
_BROKEN_OFF: Final = "Encountered end-of-stream mid-frame"
_UNRESOLVED: Final = re.compile(r"unresolved dependency: ([^\s;]+;[^\s:\]]+)")
_FATAL_LINE: Final = re.compile(r"Exception|[Ee]rror")


class _ThisProcess:
    """The one classic session that PySpark allows in a process, and the configuration that its JVM was started with."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.launched: dict[str, str] | None = None
        self.hdfs_user = ""
        self.python_files = ""
        self.opened: tuple[SparkSettings, SparkSession] | None = None


_this_process: Final = _ThisProcess()


def open_session(settings: SparkSettings) -> SparkSession:
    """A session with UTC everywhere; ``stop()`` it when done.

    Asked again with equal settings, a process gets its classic session back; a Connect URL gives a new
    session each time (unless the URL names a ``session_id``). Raises RejectedError for a missing Java, an unknown
    capability, a second kind, configuration or user of HDFS in one process, or a server outside UTC;
    RetryableError where a server does not answer.
    """
    for name in _REPEATS_ERRORS:
        PySparkLogger.getLogger(name).disabled = True
    with _this_process.lock:
        return _open_remote(settings, settings.remote) if settings.remote else _open_classic(settings)


class ConnectPatience(DefaultPolicy):
    """Also repeats what the server could not read: it says so of a request that broke off, and does nothing."""

    def can_retry(self, exception: BaseException) -> bool:
        return super().can_retry(exception) or _BROKEN_OFF in str(exception)


def _open_remote(settings: SparkSettings, remote: str) -> SparkSession:
    host, port = parse_address(remote)
    shown = hide_parameters(remote)
    if SparkContext._active_spark_context is not None:  # noqa: SLF001  the public ways start a context to answer
        raise _one_kind("runs Spark inside itself", f"connect to {shown}")
    try:
        socket.create_connection((host, port), timeout=CONNECT_ANSWER_S).close()
    except OSError as error:
        raise RetryableError(
            f"no Spark Connect server answers at {shown}: {error.strerror or error}",
            hint="Start one with: gobblin-assets spark start",
        ) from error
    given = {key: value for key, value in settings.conf.items() if key.startswith("spark.sql.")}
    conf = {**SESSION_DEFAULTS, **given, **SESSION_CONF}
    connected_before = _CONNECT_MODE in os.environ
    try:
        with own_environment({}):
            session: SparkSession = SparkSession.builder.remote(remote).create()
        # Nothing has been sent yet: the call that sends the configuration is also repeated within our bounds.
        patience = ConnectPatience(max_retries=CONNECT_RETRIES_MAX, max_backoff=CONNECT_BACK_OFF_MS_MAX)
        cast("Any", session).client.set_retry_policies([patience])
        session.conf._set_all(  # type: ignore[attr-defined]  # noqa: SLF001  only so are static settings passed over
            configs={**conf, "spark.app.name": settings.app_name}, silent=True
        )
        _require_utc(session)
    except (PySparkException, RuntimeError) as error:
        if not connected_before:
            os.environ.pop(_CONNECT_MODE, None)
        if "UNAUTHENTICATED" in str(error):
            raise RejectedError(
                f"the server at {shown} does not accept this token",
                field="spark.remote",
                hint="Give the token that the server was started with, as sc://localhost:port/;token=…",
            ) from shown_cause(error)
        raise RetryableError(f"can't open a session at {shown}: {first_cause(error)}") from shown_cause(error)
    return session


def runs_spark_itself() -> bool:
    """Whether this process has a classic session, so that it can have no remote one."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001  the public ways start a context to answer


def find_ui(session: SparkSession) -> str | None:
    """The address of Spark's UI, if this process runs Spark and its configuration asks for a UI."""
    return session.sparkContext.uiWebUrl if runs_spark_itself() else None


def parse_address(remote: str) -> tuple[str, int]:
    """Host and port of a Connect URL; RejectedError if it is none. Its parameters are never shown."""
    found = _ADDRESS.fullmatch(remote)
    if found is None:
        raise RejectedError(
            f"expected sc://host:port/;token=…, found {hide_parameters(remote)!r}",
            field="spark.remote",
            hint="Each parameter is key=value behind a semicolon; in a token write ; as %3B, = as %3D and ? as %3F.",
        )
    return found[1], int(found[2] or CONNECT_PORT)


def _open_classic(settings: SparkSettings) -> SparkSession:
    conf = plan_conf(settings)
    active = runs_spark_itself()
    if _this_process.launched is not None and settings.hdfs_user not in {None, _this_process.hdfs_user}:
        raise refuse_other_user(_this_process.hdfs_user, str(settings.hdfs_user))
    if active and _this_process.opened is not None and _this_process.opened[0] == settings:
        return _this_process.opened[1]
    if active:
        raise _one_kind("runs Spark with other settings", f"open {settings!r}")
    if _CONNECT_MODE in os.environ:
        raise _one_kind("has talked to a Spark Connect server", "run Spark inside itself")
    launch_conf = {key: value for key, value in conf.items() if not is_secret(key)}
    if _this_process.launched not in (None, launch_conf):
        raise _one_kind("started Spark with other settings", f"open {settings!r}")
    log_path = _open_driver_log(settings.work_folder)
    if _this_process.launched is None:
        check_java()
        prepare_hdfs_user()
        _this_process.hdfs_user = find_hdfs_user(os.environ)
        gateway = _launch(launch_conf, log_path, local=is_local(settings.master))
        _this_process.launched = launch_conf
        listed = gateway.jvm.java.lang.System.getProperty(_PYTHON_FILES, "")
        _this_process.python_files = keep_python(listed)
    else:
        gateway = None  # the JVM of the stopped session takes the new one
    # Workers on this machine must run this process's Python, and not some other python3.
    python = {"PYSPARK_PYTHON": sys.executable} if is_local(settings.master) else {}
    with own_environment(python), spark_families(f"start on {settings.master} (see {log_path})"):
        conf |= {_PYTHON_FILES: _this_process.python_files}
        session = SparkSession(SparkContext(conf=_as_spark_conf(conf), gateway=gateway))
    _require_utc(session)
    _this_process.opened = (settings, session)
    return session


def _launch(conf: Mapping[str, str], log_path: Path, *, local: bool) -> Any:
    """Start the JVM with all of its output, the resolver's lines too, in a file.

    Secrets of the configuration are not among ``conf``, since it becomes a command line, which anybody can read.
    They follow through the open connection.
    """
    with (
        log_path.open("ab") as log,
        own_environment({"SPARK_LOCAL_IP": "127.0.0.1"} if local else {}),
        fetching_alone(conf),
    ):
        try:
            return launch_gateway(  # type: ignore[no-untyped-call]  # PySpark leaves it untyped
                _as_spark_conf(with_archive(conf)), popen_kwargs={"stdout": log, "stderr": subprocess.STDOUT}
            )
        except PySparkRuntimeError as error:
            raise explain_failed_start(log_path) from error


def explain_failed_start(log_path: Path) -> RejectedError | RetryableError:
    """The error for a JVM that ended before it answered, by its log."""
    lines = [line.strip() for line in log_path.read_text(errors="replace").splitlines()]
    unresolved = sorted({found for line in lines for found in _UNRESOLVED.findall(line)})
    if unresolved:
        return RejectedError(
            f"Maven has no {', '.join(unresolved)} (see {log_path})",
            field="spark.capabilities",
            hint="Correct the coordinate, make a repository reachable, or give a folder of jars.",
        )
    said = next(
        (line for line in reversed(lines) if _FATAL_LINE.search(line) and not line.startswith("at ")), "nothing"
    )
    return RetryableError(f"Spark's JVM ended while it was starting (see {log_path}): {said}")


def _require_utc(session: SparkSession) -> None:
    """JDBC drivers turn times without a zone into instants by the JVM's zone, whatever the session's is."""
    zone = session.sql(_ASK_ZONE).collect()[0][0]
    if zone not in {"UTC", "Etc/UTC", "Z", "GMT"}:
        session.stop()
        raise RejectedError(
            f"expected a JVM in UTC, found {zone}",
            field="spark",
            hint="Start that server with --conf spark.driver.extraJavaOptions=-Duser.timezone=UTC",
        )


def _one_kind(found: str, wanted: str) -> RejectedError:
    return RejectedError(
        f"this process {found}; it can't also {wanted}", field="spark", hint="Use one Spark session for each process."
    )


def _as_spark_conf(conf: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(conf.items()))


def _open_driver_log(work_folder: Path) -> Path:
    with families("write logs to", str(work_folder)):
        work_folder.mkdir(parents=True, exist_ok=True)
        by_age = sorted(work_folder.glob("driver-*.log"), key=lambda path: path.stat().st_mtime_ns)
        for path in by_age[: max(0, len(by_age) - DRIVER_LOGS_KEPT + 1)]:
            path.unlink(missing_ok=True)
    return work_folder / f"driver-{os.getpid()}.log"


def count_session_slots(session: SparkSession) -> int | None:
    """The tasks that a cluster runs at once, as an open session says; None: its driver runs them, or nobody knows.

    What settings say goes before what a session sees: it stays the same while executors come and go.
    """
    try:
        return _count_open(session)
    except (Py4JError, PySparkException, OSError):
        # The session is gone; who reads by it hears so.
        return None


def is_session_lost(session: SparkSession) -> bool:
    """Whether its JVM or server is gone, or has ended the session. A dead server is given up after some 15 s."""
    try:
        if is_remote():
            _ask(session, "spark.app.name")
            return False
        context = cast("Any", session.sparkContext)._jsc  # noqa: SLF001  PySpark has no call for it
        return context is None or bool(context.sc().isStopped())
    except spark_raises():
        return True


def _count_open(session: SparkSession) -> int | None:
    master = _ask(session, "spark.master") or "local"
    if is_local(master):
        return None
    found = count_slots(master, lambda key: _ask(session, key))
    if found is not None or is_remote():
        # A server's context can't be asked.
        return found
    context = session.sparkContext
    # None once it was stopped.
    return None if cast("Any", context)._jsc is None else context.defaultParallelism  # noqa: SLF001  PySpark has no call for it


def _ask(session: SparkSession, key: str) -> str | None:
    return session.conf.get(key, None)
