"""The embedded server survives its starter, its own death, and other processes of the machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from gobblin_assets.db import account, backup, embedded
from gobblin_assets.db.account import find_account
from gobblin_assets.db.embedded import EmbeddedServer, ServerState
from gobblin_assets.errors import RejectedError
from tests.support import postgres

pytestmark = pytest.mark.turns(of=8)

WAIT_S_MAX = 150

STARTER = """
import sys
from pathlib import Path
from gobblin_assets.db import embedded
server = embedded.start(Path(sys.argv[1]), lambda line: None)
print(server.url("postgres"), flush=True)
sys.stdin.readline()
"""


def start(home: Path) -> EmbeddedServer:
    return embedded.start(home, lambda _line: None)


def spawn_starter(home: Path, **environment: str) -> "subprocess.Popen[str]":
    """A process that starts the server, prints its URL, and stays."""
    return subprocess.Popen(
        [sys.executable, "-c", STARTER, str(home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )


def ask(url: str, question: str = "SELECT 1") -> object:
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return connection.execute(text(question)).scalar_one()
    finally:
        engine.dispose()


def postmaster_pid(home: Path) -> int:
    return int(embedded.files_of(home).pid_file.read_text(encoding="utf-8").splitlines()[0])


def kill_postmaster(home: Path) -> None:
    """SIGKILL, and wait until the kernel has closed everything that the server had open."""
    pid = postmaster_pid(home)
    descriptor = os.pidfd_open(pid)
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    os.close(descriptor)


def write_a_row(server: EmbeddedServer) -> None:
    with postgres.maintenance(server) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (42)")


@pytest.mark.core
def test_a_cluster_is_safe_and_speaks_the_same_everywhere(home: Path) -> None:
    with postgres.maintenance(start(home)) as connection:
        found = {
            name: connection.execute("SELECT current_setting(%s)", [name]).fetchone()[0]  # type: ignore[index]  # a setting that exists
            for name in ("fsync", "full_page_writes", "data_checksums", "server_encoding", "lc_messages", "TimeZone")
        }
        collation = connection.execute("SELECT datcollate, datctype FROM pg_database").fetchall()
        rules = connection.execute("SELECT DISTINCT auth_method FROM pg_hba_file_rules").fetchall()

    assert found == {
        "fsync": "on",
        "full_page_writes": "on",
        "data_checksums": "on",
        "server_encoding": "UTF8",
        "lc_messages": "C",
        "TimeZone": "UTC",
    }
    assert set(collation) == {("C", "C")}
    assert rules == [("scram-sha-256",)]


def test_a_home_may_have_spaces_and_150_bytes(home: Path) -> None:
    long_home = home / "a folder with spaces, commas, ünïcode" / ("x" * 150)

    server = start(long_home)

    try:
        assert ask(server.url("postgres")) == 1
        assert ask(server.tcp_url("postgres")) == 1
        assert len(os.fsencode(server.socket_directory)) < 90
    finally:
        assert embedded.stop(long_home)


@pytest.mark.parametrize(
    "locale", ["tr_TR.UTF-8", "no_SUCH.locale", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("C", ""))]
)
def test_the_callers_locale_does_not_reach_the_cluster(home: Path, locale: str) -> None:
    starter = spawn_starter(home, LC_ALL=locale, LANG=locale, PGDATA="/nowhere", TZ="Asia/Tokyo")
    url, _ = starter.communicate("\n", timeout=WAIT_S_MAX)

    assert starter.returncode == 0
    assert ask(url.strip(), "SELECT datcollate FROM pg_database WHERE datname = current_database()") == "C"
    assert ask(url.strip(), "SELECT lower('I')") == "i"


@pytest.mark.core
def test_nothing_that_is_printed_holds_the_password(home: Path) -> None:
    server = start(home)

    assert server.password() not in f"{server!r} {server.url('x')} {server.tcp_url('x')} {server.jdbc_url('x')}"
    assert server.password_file.stat().st_mode & 0o777 == 0o600
    assert server.socket_directory.stat().st_mode & 0o777 == 0o700
    with (
        pytest.raises(psycopg.OperationalError, match="password authentication failed"),
        psycopg.connect(host=server.host, port=server.port, user=server.user, password="guess", dbname="postgres"),
    ):
        pass


def test_the_server_survives_its_killed_starter(home: Path) -> None:
    starter = spawn_starter(home)
    assert starter.stdout is not None
    url = starter.stdout.readline().strip()
    before = postmaster_pid(home)

    # The whole process group, like a terminal's Ctrl-C or a supervisor's kill.
    os.killpg(starter.pid, signal.SIGKILL)
    assert starter.wait(WAIT_S_MAX) == -signal.SIGKILL

    assert ask(url) == 1
    start(home)
    assert postmaster_pid(home) == before


@pytest.mark.core
def test_a_killed_postmaster_is_replaced_and_its_data_recovered(home: Path) -> None:
    server = start(home)
    write_a_row(server)
    before = postmaster_pid(home)

    kill_postmaster(home)
    again = start(home)

    assert postmaster_pid(home) != before
    assert (again.port, again.socket_directory) == (server.port, server.socket_directory)
    assert ask(again.url("postgres"), "SELECT number FROM kept") == 42
    assert "was not properly shut down" in embedded.files_of(home).log.read_text(encoding="utf-8")


def test_a_stale_pid_of_a_living_process_stops_nothing_and_harms_nobody(home: Path) -> None:
    server = start(home)
    write_a_row(server)
    files = embedded.files_of(home)
    stale = files.pid_file.read_text(encoding="utf-8").splitlines()
    kill_postmaster(home)
    # Of the server's own user: Postgres itself would know that another user's process can't be its server.
    bystander = subprocess.Popen(
        ["/bin/cat"],
        **(find_account(files.data).process_arguments() | {"stdin": subprocess.PIPE}),
    )
    try:
        files.pid_file.write_text("\n".join([str(bystander.pid), *stale[1:]]), encoding="utf-8")

        again = start(home)

        assert ask(again.url("postgres"), "SELECT number FROM kept") == 42
        assert embedded.stop(home)
        assert bystander.poll() is None
    finally:
        bystander.communicate()
    assert bystander.returncode == 0


def test_stop_does_not_signal_a_process_that_only_has_the_pid(home: Path) -> None:
    start(home)
    files = embedded.files_of(home)
    right = files.pid_file.read_text(encoding="utf-8")
    bystander = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    try:
        files.pid_file.write_text("\n".join([str(bystander.pid), *right.splitlines()[1:]]), encoding="utf-8")
        with pytest.raises(RejectedError, match="can't be seen from here"):
            embedded.stop(home)
        assert bystander.poll() is None
    finally:
        files.pid_file.write_text(right, encoding="utf-8")
        bystander.communicate()
    assert bystander.returncode == 0


@pytest.mark.core
def test_many_first_starts_at_once_make_one_cluster(home: Path) -> None:
    starters = [spawn_starter(home) for _ in range(4)]

    urls = {starter.communicate("\n", timeout=WAIT_S_MAX)[0].strip() for starter in starters}

    assert [starter.returncode for starter in starters] == [0] * 4
    assert len(urls) == 1
    assert ask(urls.pop()) == 1
    assert [path.name for path in embedded.files_of(home).root.glob("data*")] == ["data"]
    log = embedded.files_of(home).log.read_text(encoding="utf-8")
    assert log.count("database system is ready to accept connections") == 1


@pytest.mark.rotating
@pytest.mark.parametrize("wait_for", ["start.lock", "pgpass", "data.new-*/PG_VERSION", "data", "endpoint.json"])
def test_a_first_start_killed_anywhere_is_taken_up_by_the_next(home: Path, wait_for: str) -> None:
    starter = spawn_starter(home)
    deadline = time.monotonic() + WAIT_S_MAX
    while not list(embedded.files_of(home).root.glob(wait_for)) and time.monotonic() < deadline:
        time.sleep(0.001)
    starter.kill()
    assert starter.wait(WAIT_S_MAX) == -signal.SIGKILL

    server = start(home)

    assert ask(server.url("postgres")) == 1
    assert [path.name for path in embedded.files_of(home).root.glob("data*")] == ["data"]


def test_threads_of_one_process_may_start_it_together(home: Path) -> None:
    servers: list[EmbeddedServer] = []
    threads = [threading.Thread(target=lambda: servers.append(start(home))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(servers) == 4
    assert len(set(servers)) == 1


def test_a_killed_initdb_leaves_nothing_that_stops_the_next_start(home: Path) -> None:
    files = embedded.files_of(home)
    half_made = files.root / "data.new-killed"
    half_made.mkdir(parents=True)
    (half_made / "PG_VERSION").write_text("18\n", encoding="ascii")

    assert ask(start(home).url("postgres")) == 1

    assert not half_made.exists()


def test_a_port_taken_while_the_server_was_down_is_left_to_its_owner(home: Path) -> None:
    first = start(home)
    assert embedded.stop(home)
    with socket.create_server((first.host, first.port)) as taken:
        second = start(home)

        assert second.port != first.port
        assert ask(second.tcp_url("postgres")) == 1
        assert taken.getsockname()[1] == first.port


def test_a_copied_home_gets_a_server_of_its_own(home: Path) -> None:
    original = start(home / "one")
    write_a_row(original)
    embedded.stop(home / "one")
    shutil.copytree(home / "one", home / "two", symlinks=True)
    original = start(home / "one")
    try:
        copy = start(home / "two")
        assert copy.port != original.port
        with postgres.maintenance(copy) as connection:
            connection.execute("UPDATE kept SET number = 43")
        assert ask(original.url("postgres"), "SELECT number FROM kept") == 42
    finally:
        embedded.stop(home / "one")
        embedded.stop(home / "two")


def test_status_tells_absent_stopped_and_running_apart(home: Path) -> None:
    assert embedded.status(home).state is ServerState.ABSENT
    assert not embedded.stop(home)

    server = start(home)
    running = embedded.status(home)
    assert running.state is ServerState.RUNNING
    assert running.server == server
    assert (running.version or "").startswith("18")

    assert embedded.stop(home)
    assert embedded.status(home).state is ServerState.STOPPED
    assert not server.socket_directory.exists()


def test_a_server_that_does_not_answer_is_starting_not_stopped(home: Path) -> None:
    start(home)
    pid = postmaster_pid(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        assert embedded.status(home).state is ServerState.STARTING
    finally:
        os.kill(pid, signal.SIGCONT)
    assert embedded.status(home).state is ServerState.RUNNING


def test_stop_rolls_open_transactions_back(home: Path) -> None:
    server = start(home)
    write_a_row(server)
    with psycopg.connect(server.url("postgres").replace("+psycopg", "")) as connection:
        connection.execute("UPDATE kept SET number = 0")
        assert embedded.stop(home)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")

    assert ask(start(home).url("postgres"), "SELECT number FROM kept") == 42


def test_a_database_is_created_once(home: Path) -> None:
    server = start(home)
    made: list[bool] = []
    threads = [
        threading.Thread(target=lambda: made.append(embedded.create_database(server, 'odd "name"'))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(made) == [False, False, False, True]
    assert ask(server.url('odd "name"'), "SELECT current_database()") == 'odd "name"'


def test_a_backup_of_a_running_server_restores_into_a_new_home_beside_it(home: Path) -> None:
    server = start(home / "one")
    write_a_row(server)
    try:
        backup.backup(home / "one", home / "backup", lambda _line: None)
        with postgres.maintenance(server) as connection:
            connection.execute("UPDATE kept SET number = 0")
        backup.restore(home / "two", home / "backup", lambda _line: None)
        restored = start(home / "two")

        assert ask(restored.url("postgres"), "SELECT number FROM kept") == 42
        assert restored.port != server.port
        assert (home / "backup").stat().st_mode & 0o777 == 0o700
    finally:
        embedded.stop(home / "one")
        embedded.stop(home / "two")


def test_a_backup_overwrites_nothing_and_a_restore_replaces_nothing(home: Path) -> None:
    start(home)
    (home / "taken").mkdir()

    with pytest.raises(RejectedError, match=r"target_directory: .*exists"):
        backup.backup(home, home / "taken", lambda _line: None)
    with pytest.raises(RejectedError, match="is no backup"):
        backup.restore(home, home / "taken", lambda _line: None)
    backup.backup(home, home / "backup", lambda _line: None)
    with pytest.raises(RejectedError, match="is running"):
        backup.restore(home, home / "backup", lambda _line: None)
    embedded.stop(home)
    with pytest.raises(RejectedError, match="exists"):
        backup.restore(home, home / "backup", lambda _line: None)


def test_a_lost_password_file_is_said_at_once(home: Path) -> None:
    server = start(home)
    kept = server.password_file.rename(home / "kept")
    try:
        with pytest.raises(RejectedError, match=r"refuses us.*put the file of this cluster back"):
            start(home)
    finally:
        kept.rename(server.password_file)


def test_a_home_removed_under_its_server_begins_anew(home: Path) -> None:
    write_a_row(start(home))
    orphan = os.pidfd_open(postmaster_pid(home))
    shutil.rmtree(embedded.files_of(home).root)

    server = start(home)

    with postgres.maintenance(server) as connection:
        assert connection.execute("SELECT to_regclass('kept')").fetchone() == (None,)
    # The server would notice by itself within a minute.
    signal.pidfd_send_signal(orphan, signal.SIGINT)
    os.close(orphan)


def test_a_folder_of_another_major_version_is_refused(home: Path) -> None:
    start(home)
    embedded.stop(home)
    (embedded.files_of(home).data / "PG_VERSION").write_text("17\n", encoding="ascii")

    with pytest.raises(RejectedError, match="made by Postgres 17"):
        start(home)


def test_a_home_that_is_a_file_is_refused(home: Path) -> None:
    (home / "file").write_text("", encoding="ascii")

    with pytest.raises(RejectedError, match="home: "):
        start(home / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to change to another user")
class TestRoot:
    def test_the_server_runs_as_the_named_user_without_touching_parents(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(account.USER_VARIABLE, "nobody")
        parents_before = [(path, path.stat().st_mode) for path in (home, *home.parents)]

        server = start(home)

        assert server.data_directory.owner() == "nobody"
        assert Path(f"/proc/{postmaster_pid(home)}").owner() == "nobody"
        assert [(path, path.stat().st_mode) for path in (home, *home.parents)] == parents_before
        # The next start goes on with the owner of the data, even without the variable.
        monkeypatch.delenv(account.USER_VARIABLE)
        embedded.stop(home)
        start(home)
        assert Path(f"/proc/{postmaster_pid(home)}").owner() == "nobody"

    def test_a_closed_parent_is_named_with_what_to_set(self, home: Path) -> None:
        closed = home / "closed"
        closed.mkdir(mode=0o700)

        with pytest.raises(RejectedError, match=f"GOBBLIN_HOME: .*{closed}'.*Set GOBBLIN_HOME"):
            start(closed / "home")

        assert closed.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("name", ["no-such-user", "root"])
    def test_a_user_that_will_not_do_is_refused(self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        monkeypatch.setenv(account.USER_VARIABLE, name)

        with pytest.raises(RejectedError, match=f"{account.USER_VARIABLE}: .*'{name}'"):
            start(home)
