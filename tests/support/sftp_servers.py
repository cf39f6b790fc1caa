"""Real SFTP servers for tests, each on a free port of this host: OpenSSH's, and asyncssh's own.

OpenSSH's ``sshd`` is the machine's, or comes once, by apt and without a right of root, into the user's cache folder.
Where it can't be brought its tests are skipped, and asyncssh's server runs the others. That one also has what an
sshd without rights of root has not: passwords, and faults. Both run as an ordinary user, so that modes have effect. A
guard kills each when the process that started it ends.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import asyncssh
import pytest

from demo.debian_programs import find_debian_files
from demo.server_process import serve
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.sftp.client import IDLE_S, SftpClient
from gobblin_assets.fs.sftp.login import AGENT_VARIABLE, PREFIX, SftpServer, SftpSettings
from gobblin_assets.fs.sftp.session import ANSWER_WAIT_S
from gobblin_assets.fs.sftp.tree import SftpTree

PACKAGES: Final = ("openssh-server", "libwrap0")
PASSWORD: Final = "pass word/of:the@tester"
PASSPHRASE: Final = "phrase of the tester"
HIDDEN: Final = ".gobblin"

_BRING_S_MAX: Final = 120.0
_START_S_MAX: Final = 150.0
_PROGRAM: Final = Path(__file__).with_name("sftp_program.py")


@dataclass(frozen=True, slots=True)
class SshServer:
    """``folder``: has the keys, and the roots that ``make_root`` made. ``user``: who may log in."""

    port: int
    user: str
    folder: Path
    made: list[Path] = field(default_factory=list)

    @property
    def settings(self) -> SftpSettings:
        return SftpSettings(str(self.folder / "known_hosts"), self.user, str(self.folder / "key"))

    @property
    def environment(self) -> Mapping[str, str]:
        """Of a run that logs in by the key."""
        return {
            f"{PREFIX}USER": self.user,
            f"{PREFIX}KNOWN_HOSTS": self.settings.known_hosts,
            f"{PREFIX}KEY_FILE": str(self.folder / "key"),
            f"{PREFIX}KEY_PASSPHRASE": "",
            f"{PREFIX}PASSWORD": "",
            AGENT_VARIABLE: "",
        }

    def make_root(self) -> Path:
        """A new, empty directory, which the server's user may read."""
        root = self.folder / "trees" / str(len(self.made))
        root.mkdir()
        self.made.append(root)
        return root

    def uri(self, root: Path, port: int | None = None) -> str:
        return f"sftp://127.0.0.1:{port or self.port}{root}"

    def client(
        self,
        settings: SftpSettings | None = None,
        *,
        port: int | None = None,
        answer_wait_s: float = ANSWER_WAIT_S,
        idle_s: float = IDLE_S,
    ) -> SftpClient:
        server = SftpServer("127.0.0.1", port or self.port, self.user)
        return SftpClient(server, settings or self.settings, "source", answer_wait_s=answer_wait_s, idle_s=idle_s)

    def tree(self, client: SftpClient | None = None, *, follow_links: bool = False) -> SftpTree:
        address = f"127.0.0.1:{self.port}"
        return SftpTree(
            address, client or self.client(), "source", hidden=frozenset({HIDDEN}), follow_links=follow_links
        )


@pytest.fixture(scope="session")
def openssh() -> Iterator[SshServer]:
    with run_openssh() as server:
        yield server


@pytest.fixture(scope="session")
def python_sftp() -> Iterator[SshServer]:
    with run_python_sftp() as server:
        yield server


@pytest.fixture
def sftp_server(request: pytest.FixtureRequest) -> SshServer:
    """OpenSSH where there is one, or the one that a test names as its parameter."""
    name = getattr(request, "param", None) or ("openssh" if find_sshd() else "python_sftp")
    server: SshServer = request.getfixturevalue(name)
    return server


BOTH_SERVERS: Final = pytest.mark.parametrize("sftp_server", ["openssh", "python_sftp"], indirect=True)


@contextmanager
def run_openssh() -> Iterator[SshServer]:
    files = find_sshd()
    if not files:
        pytest.skip("there is no sshd, and apt can't bring one")
    with _folder() as folder:
        # The user of the server may not read a cache folder; and sshd starts itself again for each connection.
        (folder / "program").mkdir(mode=0o755)
        for file in files:
            shutil.copy(file, folder / "program")
        environment = {"LD_LIBRARY_PATH": str(folder / "program")}
        for has_pam in ("yes", "no"):  # which of them lets a user in without root's rights is the system's choice

            def command(port: int, has_pam: str = has_pam) -> list[str]:
                lines = {
                    "Port": port,
                    "ListenAddress": "127.0.0.1",
                    "HostKey": folder / "host_key",
                    "AuthorizedKeysFile": folder / "authorized_keys",
                    "PidFile": "none",
                    "StrictModes": "no",
                    "UsePAM": has_pam,
                    "PasswordAuthentication": "no",
                    "KbdInteractiveAuthentication": "no",
                    "MaxStartups": "100",
                    "Subsystem": "sftp internal-sftp",
                }
                config = folder / "sshd_config"
                config.write_text("".join(f"{name} {value}\n" for name, value in lines.items()), encoding="utf-8")
                return [str(folder / "program" / "sshd"), "-D", "-e", "-f", str(config)]

            with serve(command, folder / "log", environment, cwd="/", **_as_user()) as port:
                server = SshServer(port, _ordinary_user().pw_name, folder)
                if _lets_in(server):
                    yield server
                    return
        pytest.skip(f"sshd lets nobody in here: {(folder / 'log').read_text(errors='replace')[-500:]}")


@contextmanager
def run_python_sftp(**faults: Any) -> Iterator[SshServer]:
    """asyncssh's server. ``faults``: those of ``sftp_program``."""
    user = _ordinary_user()
    with _folder() as folder:

        def command(port: int) -> list[str]:
            orders = {
                "port": port,
                "folder": str(folder),
                "password": PASSWORD,
                "uid": user.pw_uid,
                "gid": user.pw_gid,
                **faults,
            }
            return [sys.executable, str(_PROGRAM), json.dumps(orders)]

        with serve(command, folder / "log", {}, cwd="/") as port:
            yield SshServer(port, user.pw_name, folder)


@cache
def find_sshd() -> tuple[Path, ...]:
    """The program, and libraries that the machine may lack; nothing if there is none, and none can be brought."""
    own = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if own is not None:
        return (Path(own),)
    try:
        return find_debian_files("openssh-server", PACKAGES, ["*/sbin/sshd", "*/libwrap.so*"])
    except RejectedError:
        return ()


def make_private_key(path: Path) -> Path:
    """One that nobody knows."""
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(path)
    return path


def make_public_key(algorithm: str) -> str:
    """One that nobody has."""
    return asyncssh.generate_private_key(algorithm).export_public_key().decode()


@contextmanager
def run_agent(*keys: Path) -> Iterator[str]:
    """The socket of an ssh-agent that has the keys."""
    if shutil.which("ssh-agent") is None:
        pytest.skip("there is no ssh-agent")
    with tempfile.TemporaryDirectory(prefix="gobblin-agent-") as folder:
        place = f"{folder}/socket"
        process = subprocess.Popen(["ssh-agent", "-D", "-a", place], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + _START_S_MAX
            while not Path(place).exists():
                assert time.monotonic() < end, "ssh-agent did not start"
                time.sleep(0.02)
            # ssh-add refuses a key that others may read.
            own = [shutil.copy(key, f"{folder}/{number}") for number, key in enumerate(keys)]
            for path in own:
                Path(path).chmod(0o600)
            added = subprocess.run(["ssh-add", *own], env={**os.environ, AGENT_VARIABLE: place}, capture_output=True)
            assert added.returncode == 0, added.stderr
            yield place
        finally:
            process.kill()
            process.wait()


def _ordinary_user() -> pwd.struct_passwd:
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())


@contextmanager
def _folder() -> Iterator[Path]:
    """With keys of the server and of the user, which the server's user may read."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-sftp-"))
    try:
        folder.chmod(0o755)
        (folder / "trees").mkdir(mode=0o755)
        host_key, key = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
        host_key.write_private_key(folder / "host_key")
        if os.geteuid() == 0:
            os.chown(folder / "host_key", _ordinary_user().pw_uid, _ordinary_user().pw_gid)
        (folder / "host_key").chmod(0o600)
        key.write_private_key(folder / "key")
        key.write_private_key(folder / "locked_key", passphrase=PASSPHRASE)
        key.write_public_key(folder / "authorized_keys")
        (folder / "authorized_keys").chmod(0o644)
        # Without a port: a proxy has another one.
        public = host_key.export_public_key().decode()
        (folder / "known_hosts").write_text(f"127.0.0.1 {public}", encoding="utf-8")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lets_in(server: SshServer) -> bool:
    root = server.make_root()
    done = subprocess.run(
        [sys.executable, "-c", _TRY, str(server.port), server.user, str(server.folder), str(root)],
        capture_output=True,
        timeout=_START_S_MAX,
    )
    return done.returncode == 0


_TRY: Final = """
import asyncio, asyncssh, sys
port, user, folder, root = sys.argv[1:]
async def look():
    login = dict(username=user, client_keys=[f"{folder}/key"], known_hosts=f"{folder}/known_hosts", config=None)
    async with asyncssh.connect("127.0.0.1", int(port), **login) as there, there.start_sftp_client() as sftp:
        await sftp.listdir(root)
asyncio.run(look())
"""


def _as_user() -> dict[str, Any]:
    """Options of a process that has no right of root."""
    if os.geteuid() != 0:
        return {}
    user = _ordinary_user()
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
