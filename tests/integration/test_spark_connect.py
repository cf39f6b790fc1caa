import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.rows.observation import observe_positions
from gobblin_assets.rows.parquet_writer import collect_output, write_parquet
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.spark import connect_server, session
from gobblin_assets.spark.cancellation import (
    SessionIdentity,
    find_session_identity,
    interrupt_left_behind,
    open_cancellation,
)
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spark.processes import find_start_mark
from gobblin_assets.spark.session import open_session
from gobblin_assets.spark.spark_settings import SparkSettings
from tests.support import mariadb as mariadb_server
from tests.support.jdbc import Bench, request_for
from tests.support.mariadb import MariaDb
from tests.support.reading import run
from tests.support.spark import SMALL, in_child, local_settings, open_remote, slow_frame, tasks_run, wait_until

pytestmark = pytest.mark.turns(of=8)

FS = PosixFileSystem()
ROOT = str(Path(__file__).parents[2])


def _write_and_observe(server: ConnectServer, target: str) -> dict[str, Any]:
    spark = open_remote(server)
    frame = spark.sql(
        "SELECT id, timestamp_micros(id) AS at, cast(timestamp_micros(id) AS timestamp_ntz) AS wall, "
        "date_add(DATE'2024-01-01', cast(id AS int)) AS day, cast(id AS string) AS name, id % 2 AS p FROM range(1000)"
    )
    highs = {}
    for number, columns in enumerate((("id",), ("wall",), ("day",), ("name",), ("at", "id"))):
        observed_frame, observed = observe_positions(frame, columns)
        write_parquet(observed_frame, FS.to_uri(f"{target}-{number}"), partition_columns=("p",))
        highs[",".join(columns)] = str(observed.get().high)  # type: ignore[union-attr]  # it was sent
    nothing, observed = observe_positions(frame.where("id < 0"), ("at", "id"))
    write_parquet(nothing, FS.to_uri(f"{target}-none"))
    answer = {
        "highs": highs,
        "none": observed.get().high,  # type: ignore[union-attr]  # the same
        "rows": [directory.row_count for directory in collect_output(FS, f"{target}-0")],
        "empty": collect_output(FS, f"{target}-none"),
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "times": spark.conf.get("spark.sql.parquet.outputTimestampType"),
    }
    try:
        write_parquet(frame, FS.to_uri(f"{target}-0"))
    except GobblinError as error:
        answer["again"] = type(error).__name__
    try:
        write_parquet(frame.select("missing"), FS.to_uri(f"{target}-x"))
    except GobblinError as error:
        answer["missing"] = type(error).__name__
    spark.stop()
    return answer


@pytest.mark.core
def test_the_same_code_writes_and_observes_on_connect(connect: ConnectServer, tmp_path: Path) -> None:
    assert in_child(_write_and_observe, connect, str(tmp_path / "out")) == {
        "highs": {
            "id": "999",
            "wall": "1970-01-01T00:00:00.000999",
            "day": "2026-09-26",
            "name": "999",
            "at,id": "1970-01-01T00:00:00.000999Z,999",
        },
        "none": None,
        "rows": [500, 500],
        "empty": [],
        "zone": "UTC",
        "times": "TIMESTAMP_MICROS",
        "again": "ConflictError",
        "missing": "RejectedError",
    }
    assert not list(tmp_path.rglob("*.crc"))


def _read_tables(server: ConnectServer, urls: Sequence[str]) -> list[dict[str, int]]:
    found = []
    spark = open_remote(server)
    for url in urls:
        is_server = url.startswith(("jdbc:mariadb", "jdbc:mysql"))
        login = {"user": mariadb_server.USER, "password": mariadb_server.PASSWORD} if is_server else {}
        bench = Bench(spark, JdbcConnection(url, name="c", **login))
        data = {"urn": "t", "extract": "append_only", "watermark": {"column": "seen"}}
        rows = run(bench, request_for(data))[1]
        found.append({str(row): count for row, count in rows.items()})
    return found


def test_tables_of_several_databases_are_read_on_connect(
    connect: ConnectServer, mariadb: MariaDb, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as file:
        file.execute("CREATE TABLE t (id INTEGER, seen DATETIME)")
        file.execute("INSERT INTO t VALUES (1, '2020-01-01 10:00:00.000001'), (1, '2020-01-01 10:00:00.000001')")
        file.commit()
    mariadb.execute(
        "CREATE OR REPLACE TABLE t (id INT, seen DATETIME(6))",
        "INSERT INTO t VALUES (1, '2020-01-01 10:00:00.000001'), (1, '2020-01-01 10:00:00.000001')",
    )
    urls = [f"jdbc:mariadb://{mariadb.address}", f"jdbc:mysql://{mariadb.address}", f"jdbc:sqlite:{tmp_path}/a.db"]
    assert in_child(_read_tables, connect, urls) == [{"('1', '2020-01-01 10:00:00.000001')": 2}] * 3


def _cancel(server: ConnectServer, target: str) -> tuple[list[str], list[bool]]:
    spark = open_remote(server)
    cancellation = open_cancellation(spark)
    raised: list[str] = []

    def write(tag: str, rows: int) -> None:
        try:
            with cancellation.tagged(tag):
                write_parquet(slow_frame(spark, rows), FS.to_uri(f"{target}-{tag}"))
        except GobblinError as error:
            raised.append(type(error).__name__)

    workers = [threading.Thread(target=write, args=arguments) for arguments in (("cancelled", 3_000), ("kept", 20))]
    for worker in workers:
        worker.start()
    wait_until(lambda: tasks_run(f"{target}-cancelled"), "the tasks run")
    # Whoever comes to end what has all slots must not wait for one.
    open_remote(server).stop()
    cancellation.cancel("cancelled")
    for worker in workers:
        worker.join()
    spark.stop()
    return raised, [Path(f"{target}-{tag}/_SUCCESS").exists() for tag in ("cancelled", "kept")]


def test_cancelling_by_tag_reaches_other_threads_and_only_that_tag(connect: ConnectServer, tmp_path: Path) -> None:
    assert in_child(_cancel, connect, str(tmp_path / "out")) == (["RetryableError"], [False, True])


CLIENT = """
import sys
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from gobblin_assets.spark.cancellation import find_session_identity, open_cancellation
from gobblin_assets.spark.connect_server import find
from gobblin_assets.rows.parquet_writer import write_parquet
from tests.support.spark import open_remote, slow_frame, tasks_run, wait_until
spark = open_remote(find(Path(sys.argv[1])))
identity = find_session_identity(spark)
print(identity.session_id, identity.user_id or "-", flush=True)
cancellation = open_cancellation(spark)
def write(tag):
    with cancellation.tagged(tag):
        write_parquet(slow_frame(spark, 60), f"file://{sys.argv[2]}/{tag}")
threading.Thread(target=write, args=("attempt-7",)).start()
wait_until(lambda: tasks_run(f"{sys.argv[2]}/attempt-7"), "its tasks run")
threading.Thread(target=write, args=("attempt-8",)).start()
"""


@pytest.mark.core
def test_what_a_killed_client_left_running_is_ended_under_its_session_and_tag(
    connect: ConnectServer, tmp_path: Path
) -> None:
    home = connect.log_path.parent.parent
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(home), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert client.stdout is not None
    session_id, user_id = client.stdout.readline().split()
    wait_until((tmp_path / "attempt-8" / "_temporary").exists, "both writes have begun")
    assert tasks_run(str(tmp_path / "attempt-7"))
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    identity = SessionIdentity(session_id, user_id.removeprefix("-"))
    assert interrupt_left_behind(connect.url, identity, "attempt-9") == 0
    assert interrupt_left_behind(connect.url, identity, "attempt-7") == 1
    assert interrupt_left_behind(connect.url, identity, "attempt-7") == 0
    # Its twin goes on without its client, for as long as the interrupted one would have taken.
    wait_until((tmp_path / "attempt-8" / "_SUCCESS").exists, "the other write is complete")
    assert not (tmp_path / "attempt-7" / "_SUCCESS").exists()


def test_a_session_that_the_server_does_not_know_runs_nothing(connect: ConnectServer) -> None:
    unknown = SessionIdentity("00000000-0000-4000-8000-000000000000", "nobody")
    assert interrupt_left_behind(connect.url, unknown, "attempt-7") == 0
    with pytest.raises(RetryableError) as failed:
        interrupt_left_behind("sc://localhost:1/;token=hush", unknown, "attempt-7")
    assert "hush" not in str(failed.value)


def _open_in_turn(urls: list[str], folder: Path) -> list[tuple[str, str]]:
    answers = []
    for settings in (*(SparkSettings(folder, remote=url) for url in urls), SparkSettings(folder, master="local[1]")):
        try:
            spark = open_session(settings)
        except GobblinError as error:
            answers.append((type(error).__name__, str(error)))
        else:
            answers.append(("opened", find_session_identity(spark).session_id))
            spark.stop()
    return answers


@pytest.mark.core
def test_a_wrong_token_a_dead_port_and_a_second_kind_are_refused_without_showing_a_token(
    connect: ConnectServer, tmp_path: Path
) -> None:
    urls = [connect.url.partition("=")[0] + "=hushhush", "sc://localhost:1/;token=hush", connect.url, connect.url]
    answers = in_child(_open_in_turn, urls, tmp_path)
    assert [family for family, _ in answers] == ["RejectedError", "RetryableError", "opened", "opened", "RejectedError"]
    texts = [text for _, text in answers]
    assert "does not accept this token" in texts[0]
    assert "spark start" in texts[1]
    assert texts[2] != texts[3]
    assert "Connect" in texts[4]
    assert "hush" not in "".join(texts)


def _work_until_the_way_is_gone(server: ConnectServer) -> tuple[int, str]:
    """A client that reaches the server through a proxy of ours, which is then closed."""
    door = socket.create_server(("127.0.0.1", 0))
    ends: list[socket.socket] = []

    def copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)

    def let_in() -> None:
        with suppress(OSError):
            while True:
                client = door.accept()[0]
                behind = socket.create_connection(("127.0.0.1", server.port))
                ends.extend((client, behind))
                for way in ((client, behind), (behind, client)):
                    threading.Thread(target=copy, args=way, daemon=True).start()

    threading.Thread(target=let_in, daemon=True).start()
    session.CONNECT_BACK_OFF_MS_MAX = 100  # type: ignore[misc]  # in this process alone, so that the test need not wait
    url = server.url.replace(str(server.port), str(door.getsockname()[1]))
    spark = open_session(SparkSettings(server.log_path.parent, remote=url, conf=SMALL))
    worked = int(spark.sql("SELECT 1").collect()[0][0])
    for end in (door, *ends):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
    try:
        with spark_families("read"):
            spark.sql("SELECT 1").collect()
    except GobblinError as error:
        return worked, type(error).__name__
    return worked, "nothing"


def test_a_client_whose_server_is_gone_gives_up_in_bounded_tries(connect: ConnectServer) -> None:
    """PySpark's own bound is ten minutes, during which a run would hold its leases."""
    assert in_child(_work_until_the_way_is_gone, connect) == (1, "RetryableError")


def test_a_second_start_finds_the_first_and_other_settings_are_refused(connect: ConnectServer) -> None:
    home = connect.log_path.parent.parent
    settings = local_settings(home / "spark")
    assert connect_server.start_connect(home, settings, print) == connect
    assert connect_server.find(home) == connect
    with pytest.raises(RejectedError, match="spark stop"):
        connect_server.start_connect(home, SparkSettings(home / "spark", master="local[1]"), print)
    assert connect_server.find(home) == connect


def test_the_token_is_the_owners_alone(connect: ConnectServer) -> None:
    token = connect.url.rpartition("=")[2]
    folder = connect.log_path.parent
    holders = [path for path in folder.iterdir() if path.is_file() and token in path.read_text(errors="replace")]
    assert [path.name for path in holders] == ["connect.json"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*holders, folder / "connect.properties"))
    assert token.encode() not in Path(f"/proc/{connect.pid}/cmdline").read_bytes()
    assert token not in repr(connect)


def test_spark_s_own_ports_want_a_secret_and_its_temporary_files_are_the_owners_alone(connect: ConnectServer) -> None:
    folder = connect.log_path.parent
    properties = dict(line.split("=", 1) for line in (folder / "connect.properties").read_text().splitlines())
    secret = properties["spark.authenticate.secret"]
    holders = [path for path in folder.rglob("*") if path.is_file() and secret in path.read_text(errors="replace")]
    assert properties["spark.authenticate"] == "true"
    assert [path.name for path in holders] == ["connect.properties"]
    assert secret.encode() not in Path(f"/proc/{connect.pid}/cmdline").read_bytes()
    assert folder.joinpath("connect.tmp").stat().st_mode & 0o777 == 0o700
    inside = {path.name.partition("-")[0] for path in folder.joinpath("connect.tmp").iterdir()}
    assert "blockmgr" in inside
    assert not [path for path in Path(tempfile.gettempdir()).glob("blockmgr-*") if _is_of(connect, path)]


def _is_of(server: ConnectServer, path: Path) -> bool:
    """Whether the server's process has a file below the path open."""
    opened = [str(each.readlink()) for each in Path(f"/proc/{server.pid}/fd").iterdir() if each.is_symlink()]
    return any(each.startswith(str(path)) for each in opened)


STARTER = """
import sys
from pathlib import Path
from gobblin_assets.spark import connect_server
from tests.support.spark import local_settings
home = Path(sys.argv[1])
server = connect_server.start_connect(home, local_settings(home / "spark"), lambda line: print(line, flush=True))
print("server", server.pid, server.port)
"""


def _start(home: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ROOT},
        start_new_session=True,
    )


def test_a_server_survives_its_killed_starter_and_starts_at_once_give_one_server(tmp_path: Path) -> None:
    killed = _start(tmp_path)
    assert killed.stdout is not None
    assert "starts on port" in killed.stdout.readline()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    try:
        # They wait for the server, too, while it is still starting.
        starters = [_start(tmp_path), _start(tmp_path)]
        said = [starter.communicate()[0].splitlines()[-1] for starter in starters]
        server = connect_server.find(tmp_path)
        assert server is not None
        assert said == [f"server {server.pid} {server.port}"] * 2
        mark = find_start_mark(server.pid)
    finally:
        left = tmp_path / "spark" / "connect.tmp"
        assert left.is_dir()
        assert connect_server.stop_connect(tmp_path)
        assert not left.exists()
    assert mark is not None
    assert find_start_mark(server.pid) != mark
    assert connect_server.find(tmp_path) is None
    assert not connect_server.stop_connect(tmp_path)


def test_a_process_that_has_the_id_of_a_dead_server_is_left_alone(tmp_path: Path, connect: ConnectServer) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        folder = tmp_path / "spark"
        folder.mkdir()
        state = (connect.log_path.parent / "connect.json").read_text()
        (folder / "connect.json").write_text(state.replace(f'"pid": {connect.pid}', f'"pid": {bystander.pid}'))
        assert not connect_server.stop_connect(tmp_path)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    assert connect_server.find(connect.log_path.parent.parent) == connect


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    lines: list[str] = []
    settings = SparkSettings(
        tmp_path / "spark", master="local[1]", capabilities=("x",), coordinates={"x": "org.example:nowhere:0.0.1"}
    )
    with pytest.raises(RejectedError, match="nowhere"):
        connect_server.start_connect(tmp_path, settings, lines.append)
    assert "starts on port" in lines[0]
    assert all("still starting" in line for line in lines[1:])
    assert not connect_server.stop_connect(tmp_path)
