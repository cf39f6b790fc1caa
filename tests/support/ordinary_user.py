"""A process without root's rights, so that the modes of directories have effect; it runs the product's own code."""

import os
import pwd
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from sqlalchemy import make_url

from gobblin_assets import failpoints
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import GobblinError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import SequenceId
from tests.support.forks import FORKS
from tests.support.lake import Lake

P = ParamSpec("P")
T = TypeVar("T")

_NAME: Final = "nobody"
_WAIT_S_MAX: Final = 150.0


@dataclass(frozen=True, slots=True)
class Loss:
    """At the ``count``-th time that ``point`` is reached, the directory's owner changes its mode."""

    point: Failpoint
    directory: str
    mode: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class Report:
    """The report on one dataset."""

    outcome: str
    error_family: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Ran:
    """``was_lost``: the moment of the loss was reached."""

    datasets: dict[str, Report]
    lines: list[str]
    was_lost: bool


class RefusedError(Exception):
    """``family`` is the name of the error's own class, ``said`` its text."""

    def __init__(self, family: str, said: str) -> None:
        super().__init__(family, said)
        self.family = family
        self.said = said


class OrdinaryUser:
    """Owns the paths that it is given, and calls functions in one process of its own."""

    def __init__(self, pool: ProcessPoolExecutor, uid: int, gid: int) -> None:
        self._pool = pool
        self._uid = uid
        self._gid = gid

    def own(self, path: Path) -> Path:
        """Give it a path that we made; does nothing unless we are root."""
        if os.geteuid() == 0:
            os.chown(path, self._uid, self._gid)
        return path

    def do(self, function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Call it there. An error of the product's is raised here as RefusedError, since it can't be pickled."""
        return self._pool.submit(_answer, function, *arguments, **options).result(_WAIT_S_MAX)

    def url_of(self, server: EmbeddedServer, database_url: str, directory: Path) -> str:
        """The same database by loopback, since the server's socket is in a directory of its own user's."""
        password = directory / "pgpass"
        password.write_text(server.password_file.read_text(encoding="utf-8"), encoding="utf-8")
        password.chmod(0o600)
        self.own(password)
        name = make_url(database_url).database
        assert name is not None
        url = make_url(server.tcp_url(name)).update_query_dict({"passfile": str(password)})
        return url.render_as_string(hide_password=False)


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """The user; ourselves if we are not root."""
    entry = pwd.getpwnam(_NAME) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with ProcessPoolExecutor(1, FORKS, initializer=_become, initargs=(entry.pw_uid, entry.pw_gid)) as pool:
        yield OrdinaryUser(pool, entry.pw_uid, entry.pw_gid)


def _become(uid: int, gid: int) -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)


def _answer(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    try:
        return function(*arguments, **options)
    except GobblinError as error:
        raise RefusedError(type(error).__name__, str(error)) from None


def run(lake: Lake, loss: Loss | None = None, mode: Mode = Mode.APPEND) -> Ran:
    """One run of the lake, in which a permission is lost."""
    world = lake.open_world()
    losing = _Losing(loss)
    try:
        with failpoints.install(losing):
            report = world.run(mode=mode)
    finally:
        world.close()
    datasets = {each.urn: Report(str(each.outcome), each.error_family, each.error) for each in report.datasets}
    return Ran(datasets, world.lines, losing.done)


def recover(lake: Lake) -> list[str]:
    """Recover like a sensor; returns the failures."""
    world = lake.open_world()
    try:
        report = world.operations().recover_due(None, on_publication=lambda _publication: None)
    finally:
        world.close()
    return [str(failure.error) for failure in report.failures]


def abandon(lake: Lake, sequence_id: SequenceId) -> None:
    world = lake.open_world()
    try:
        world.operations().abandon(sequence_id, reason="a test")
    finally:
        world.close()


class _Losing:
    def __init__(self, loss: Loss | None) -> None:
        self._loss = loss
        self._seen = 0
        self.done = False

    def __call__(self, point: Failpoint) -> None:
        if self._loss is None or point is not self._loss.point:
            return
        self._seen += 1
        if self._seen == self._loss.count:
            Path(self._loss.directory).chmod(self._loss.mode)
            self.done = True
