"""The embedded Postgres is restarted after it died, and stays down after somebody stopped it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import Engine, text

from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import ServerState
from gobblin_assets.db.engine import connect
from gobblin_assets.db.supervision import Supervisor, revive
from gobblin_assets.db.transactions import TRIES_MAX, transact
from gobblin_assets.errors import RetryableError
from gobblin_assets.settings import Settings
from tests.support import postgres

pytestmark = pytest.mark.turns(of=8)

WAIT_S_MAX = 120
POLL_S = 0.05

LOCATION = """
import dagster as dg
from gobblin_assets.dagster.resources import gobblin_resources

@dg.asset
def one() -> int:
    return 1

@dg.sensor(target=dg.AssetSelection.all(), minimum_interval_seconds=1,
           default_status=dg.DefaultSensorStatus.RUNNING)
def ticking(context):
    return dg.SkipReason("nothing")

defs = dg.Definitions(assets=[one], sensors=[ticking], resources=gobblin_resources({}))
"""


def start(home: Path) -> None:
    embedded.start(home, lambda _line: None)


def postmaster(home: Path) -> int:
    return int(embedded.files_of(home).pid_file.read_text(encoding="utf-8").splitlines()[0])


def end_postmaster(home: Path, signal_number: signal.Signals) -> None:
    """Signal the server, and wait until none of its processes is left."""
    process = psutil.Process(postmaster(home))
    processes = [process, *process.children(recursive=True)]
    process.send_signal(signal_number)
    psutil.wait_procs(processes, timeout=WAIT_S_MAX)
    wait(lambda: state(home) is ServerState.STOPPED, "the server is gone")


def state(home: Path) -> ServerState:
    return embedded.status(home).state


def wait(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < until, f"never came true: {what}"
        time.sleep(POLL_S)


@pytest.mark.core
def test_a_server_that_died_is_brought_back_with_its_rows_at_its_old_address(home: Path) -> None:
    server = embedded.start(home, lambda _line: None)
    with postgres.maintenance(server) as connection:
        connection.execute("CREATE TABLE kept (number int)")
    lines: list[str] = []
    assert not revive(home, lines.append), "it lives"
    end_postmaster(home, signal.SIGKILL)

    assert revive(home, lines.append)

    assert embedded.start(home, lambda _line: None) == server
    with postgres.maintenance(server) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
    assert "has died" in lines[0]


@pytest.mark.parametrize("stopping", ["db stop", "a signal of Postgres' own", "db stop after it died"])
def test_a_server_that_was_stopped_stays_down(home: Path, stopping: str) -> None:
    start(home)
    if stopping == "a signal of Postgres' own":
        end_postmaster(home, signal.SIGTERM)
    else:
        if stopping == "db stop after it died":
            end_postmaster(home, signal.SIGKILL)
        embedded.stop(home)

    assert not revive(home, print)
    assert state(home) is ServerState.STOPPED

    start(home)
    end_postmaster(home, signal.SIGKILL)
    assert revive(home, print), "a start takes the stop back"


@pytest.fixture
def log(home: Path) -> Iterator[Engine]:
    """The log as a command opens it."""
    engine = connect(Settings(home=home), lambda _line: None)
    yield engine
    engine.dispose()


def count_runs(engine: Engine, tries: int = TRIES_MAX) -> int:
    return transact(
        engine, "count", lambda c: int(c.execute(text("SELECT count(*) FROM gobblin.run")).scalar_one()), tries=tries
    )


def test_a_command_whose_server_dies_starts_it_and_goes_on(home: Path, log: Engine) -> None:
    """With several threads, of which one starts it."""
    assert count_runs(log) == 0
    for _ in range(2):
        end_postmaster(home, signal.SIGKILL)
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(lambda _number: count_runs(log), range(4))) == [0] * 4
        assert state(home) is ServerState.RUNNING


def test_a_command_does_not_start_a_server_that_somebody_stopped(home: Path, log: Engine) -> None:
    assert count_runs(log) == 0
    embedded.stop(home)
    with pytest.raises(RetryableError, match="did not happen in 2 tries"):
        count_runs(log, tries=2)
    assert state(home) is ServerState.STOPPED


def test_a_home_without_a_server_is_left_alone(home: Path) -> None:
    assert not revive(home, print)
    assert not revive(home / "not there", print)
    assert list(home.iterdir()) == []


@pytest.mark.core
def test_supervisors_do_not_fight(home: Path) -> None:
    start(home)
    over = threading.Event()
    said: list[str] = []
    threads = [threading.Thread(target=Supervisor(home, said.append, lambda _s: over.wait(0.02)).run) for _ in range(8)]
    for thread in threads:
        thread.start()
    try:
        for died in (1, 2):
            end_postmaster_quickly(home)
            wait(lambda died=died: count(said, "has died") == died, "it is noticed")  # type: ignore[misc]  # bound now
            # Not as soon as it answers: a start that is still waiting would take the next death for its own failure.
            wait(lambda died=died: count(said, "is running") == died, "it is back")  # type: ignore[misc]  # bound now
    finally:
        over.set()
        for thread in threads:
            thread.join(WAIT_S_MAX)

    assert count(said, "has died") == 2, said
    assert count(said, "can't") == 0, said


def count(lines: list[str], words: str) -> int:
    return sum(words in line for line in lines)


def end_postmaster_quickly(home: Path) -> None:
    process = psutil.Process(postmaster(home))
    process.kill()
    psutil.wait_procs([process], timeout=WAIT_S_MAX)


def test_a_server_that_can_not_start_is_tried_again_ever_more_seldom(home: Path) -> None:
    start(home)
    end_postmaster(home, signal.SIGKILL)
    version = embedded.files_of(home).data / "PG_VERSION"
    version.write_text("17\n", encoding="ascii")
    said: list[str] = []
    supervisor = Supervisor(home, said.append, lambda _s: False)

    rests = [supervisor.look() for _look in range(2)]
    version.write_text("18\n", encoding="ascii")

    assert rests == [2.0, 4.0]
    assert "next try in 4 s" in said[-1]
    assert supervisor.look() == 1.0


@contextmanager
def running(home: Path, folder: Path, *arguments: str, **environment: str) -> Iterator[Path]:
    """A process with GOBBLIN_HOME, ended with all of its children; gives its log."""
    log = folder / "process.log"
    variables = {**os.environ, "GOBBLIN_HOME": str(home), "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    variables.pop("GOBBLIN_DATABASE_URL", None)
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, *arguments], cwd=folder, env=variables, stdout=out, stderr=out)
    try:
        yield log
    finally:
        tree = psutil.Process(process.pid)
        processes = [*tree.children(recursive=True), tree]
        for each in processes:
            each.kill()
        process.wait(WAIT_S_MAX)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_dagster_dev_goes_on_ticking_when_the_server_was_killed(home: Path, tmp_path: Path) -> None:
    (tmp_path / "location.py").write_text(LOCATION, encoding="utf-8")
    command = ("-m", "gobblin_assets.cli", "dagster", "dev", "-f", "location.py", "-p", "0")
    with running(home, tmp_path, *command) as log:
        ticks = count_ticks(home)
        wait(lambda: ticks() > 0, "the sensor ticks")
        before = embedded.status(home).server
        pid = postmaster(home)

        os.kill(pid, signal.SIGKILL)

        wait(lambda: postmaster_or_none(home) not in (None, pid), "the server is started again")
        wait(lambda: state(home) is ServerState.RUNNING, "the server answers")
        assert embedded.status(home).server == before
        seen = ticks()
        wait(lambda: ticks() > seen, "the sensor ticks again")
        assert "has died; it is started again" in log.read_text(encoding="utf-8")


def postmaster_or_none(home: Path) -> int | None:
    try:
        return postmaster(home)
    except (FileNotFoundError, IndexError):
        return None


def count_ticks(home: Path) -> Callable[[], int]:
    def ticks() -> int:
        server = embedded.status(home).server
        if server is None:
            return 0
        try:
            with postgres.psycopg.connect(server.url("dagster").replace("+psycopg", "")) as connection:
                row = connection.execute("SELECT count(*) FROM job_ticks WHERE status = 'SKIPPED'").fetchone()
        except postgres.psycopg.Error:
            return 0
        return 0 if row is None else int(row[0])

    return ticks


def test_a_code_server_alone_brings_it_back(home: Path, tmp_path: Path) -> None:
    """A person who runs `dagster-daemon` and `dagster-webserver` otherwise still has our resources in a code server."""
    start(home)
    code = (
        "import time\nfrom gobblin_assets.dagster.resources import gobblin_resources\ngobblin_resources({})\n"
        "print('ready', flush=True)\ntime.sleep(600)"
    )
    with running(home, tmp_path, "-c", code) as log:
        wait(lambda: "ready" in log.read_text(encoding="utf-8"), "the process looks")
        end_postmaster_quickly(home)
        wait(lambda: state(home) is ServerState.RUNNING, "the server is back")
