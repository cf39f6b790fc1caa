"""A flow that is run again and again, while its service, its executor and the attempts at its tickets are killed.

Each of the three dies as its list says: at a failpoint, or after a while. What died is started again, and dies of the
next entry of its list. Each process runs a command of the product. It is forked, so that a life costs little.
"""

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any, ClassVar, Final
from unittest import mock

import yaml

from gobblin_assets import failpoints
from gobblin_assets.cli import main
from gobblin_assets.failpoints import ArmedFailpoints, Failpoint
from gobblin_assets.tickets import executor
from tests.crash.points import OF_A_PUBLICATION
from tests.support.flow_world import KEY
from tests.support.forks import FORKS
from tests.support.running_service import prepare_database
from tests.support.ticket_shop import NAME, TicketShop

CLAIM_TTL_S: Final = 1.5
LOOK_EVERY_S: Final = 0.05
DEATHS_OF_EACH: Final = 2
"""Of each victim in one history. A ticket is given up after five attempts that died, with or without their executor."""

RUN_S_MAX: Final = 150.0
_OPEN_S_MAX: Final = 150.0
_TICK_S: Final = 0.05
_LIVES_S: Final = {"attempt": 0.5, "executor": 2.0, "service": 3.0}
_ATTEMPTS: Final = "attempts"
_FLOWS: Final = "/api/v1/flows"
_FLOW: Final = f"{_FLOWS}/{KEY.group}/{KEY.name}"
_ENDS: Final = ("COMPLETE", "FAILED", "CANCELLED")

TEMPLATE: Final = """
    capability: ingest.jdbc
    shape: run
    from: {kind: database, format: table}
    to: {kind: files, format: dataset}
    parameters: {type: object, properties: {}}
    job:
      source: {connection: "${from.connection}"}
      destination: ${to.root}
      lease: {ttl_s: 2}
      retry: {task_tries_max: 1, back_off_s: 0}
      datasets:
        - {urn: public.orders, extract: append_only, watermark: {column: id}, primary_key: [id]}
        - {urn: public.customers}
"""

MOMENT: Final = "moment"
"""A death at none of the points, but after a while."""

OF_AN_ATTEMPT: Final = (
    *(f"{point}=kill" for point in OF_A_PUBLICATION),
    f"{Failpoint.FINISHED_BEFORE_EVENTS}=kill",
    *(f"{Failpoint.TICKET_REPORTED}=kill@{number}" for number in (1, 2, 3)),
    f"{Failpoint.TICKET_ENDED}=kill",
    MOMENT,
)
OF_AN_EXECUTOR: Final = (
    f"{Failpoint.TICKET_CLAIMED}=kill",
    f"{Failpoint.CLAIMS_RENEWED}=kill",
    f"{Failpoint.CLAIMS_RENEWED}=kill@2",
    MOMENT,
)
OF_A_SERVICE: Final = (
    f"{Failpoint.FLOW_STORED}=kill",
    f"{Failpoint.SEND_BEGUN}=kill",
    f"{Failpoint.TICKET_SENT}=kill",
    f"{Failpoint.SEND_MARKED}=kill",
    f"{Failpoint.REPORTS_READ}=kill",
    f"{Failpoint.REPORTS_FOLDED}=kill",
    f"{Failpoint.REPORTS_FOLDED}=kill@2",
    MOMENT,
)

VICTIMS: Final[Mapping[str, Sequence[str]]] = {
    "attempt": OF_AN_ATTEMPT,
    "executor": OF_AN_EXECUTOR,
    "service": OF_A_SERVICE,
}


def plan_deaths(history: int) -> dict[str, list[str]]:
    """The deaths of one history, by victim. Histories that follow each other go through all points in turn."""
    first = history * DEATHS_OF_EACH
    return {
        victim: [points[(first + number) % len(points)] for number in range(DEATHS_OF_EACH)]
        for victim, points in VICTIMS.items()
    }


@dataclass
class FlowTorture:
    """One history. ``planned``: the deaths by victim; ``chance``: how long moments are.

    ``port``: of the service.
    """

    shop: TicketShop
    planned: Mapping[str, Sequence[str]]
    chance: random.Random
    port: int
    _started: dict[str, BaseProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        prepare_database(self.shop.environment["GOBBLIN_DATABASE_URL"])
        nodes = {
            "shop": {"kind": "database", "connection": "shop"},
            "lake": {"kind": "files", "root": str(self.shop.folder / "lake")},
        }
        topology = {"nodes": nodes, "executors": {NAME: {"capabilities": ["ingest.jdbc"], "nodes": [*nodes]}}}
        (self.shop.folder / "topology.yaml").write_text(yaml.safe_dump(topology), encoding="utf-8")
        pack = self.shop.folder / "pack"
        pack.mkdir()
        (pack / "pack.yaml").write_text("pack: torture\nversion: '1'\n", encoding="utf-8")
        (pack / "tables.template").write_text(TEMPLATE, encoding="utf-8")

    # What a person does ---------------------------------------------------------------------------------

    def create(self) -> int:
        """Ask for the flow until it is there; returns its execution."""
        config = {
            "flow_group": KEY.group,
            "flow_name": KEY.name,
            "source": "shop",
            "destinations": ["lake"],
            "template_uris": ["FS:///torture/tables.template"],
            "run_immediately": True,
        }
        self._ask("POST", _FLOWS, config)
        execution: int = self._ask("GET", f"{_FLOW}/status")["execution_id"]
        return execution

    def run(self) -> int:
        execution: int = self._ask("POST", f"{_FLOW}:run", {})["execution_id"]
        return execution

    def add_rows(self) -> None:
        with self.shop.source.connect() as connection:
            connection.execute(
                "INSERT INTO orders SELECT n, now(), n % 7 FROM (SELECT max(id) AS last FROM orders) m,"
                " generate_series(m.last + 1, m.last + 5) n"
            )
            connection.execute("UPDATE customers SET name = name || '+' WHERE id % 2 = 0")

    def await_end(self, execution: int) -> str:
        until = time.monotonic() + RUN_S_MAX
        while (status := self._ask("GET", f"{_FLOW}/executions/{execution}"))["status"] not in _ENDS:
            assert time.monotonic() < until, f"{status}\n{self.say()}"
            self._pause(4 * _TICK_S)
        return str(status["status"])

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send the request until it is answered: the service is killed meanwhile, and started again."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} if method == "POST" else {}
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + RUN_S_MAX
        while time.monotonic() < until:
            self._start_the_dead()
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=RUN_S_MAX)
            try:
                connection.request(method, path, body=data, headers=headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                self._pause(_TICK_S)
                continue
            finally:
                connection.close()
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                self._pause(_TICK_S)
                continue
            assert answer.status < HTTPStatus.BAD_REQUEST, f"{method} {path}: {content.decode()}\n{self.say()}"
            return json.loads(content) if content else None
        raise AssertionError(f"{method} {path}: no answer\n{self.say()}")

    # Lives and deaths -----------------------------------------------------------------------------------

    def is_over(self) -> bool:
        """Whether every death has come."""
        return all(len(_lines_of(self._log_of(victim))) >= len(self.planned[victim]) for victim in VICTIMS)

    def count_deaths(self) -> Counter[str]:
        """Those that have come, such as ``service send_begun=kill@1``."""
        return Counter(f"{victim} {line}" for victim in VICTIMS for line in _lines_of(self._log_of(victim)))

    def say(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(self.shop.folder.glob("*.log")))

    def end(self) -> None:
        """Drain the executor, and stop the service."""
        for process in self._started.values():
            process.terminate()
        for process in self._started.values():
            process.join(_OPEN_S_MAX)
            process.kill()
            process.join()
        for pid in _lines_of(self.shop.folder / _ATTEMPTS):
            _kill_fork(int(pid))

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)
        self._start_the_dead()

    def _start_the_dead(self) -> None:
        folder = self.shop.folder
        serve = ["service", "serve", "--no-auth", "--port", str(self.port)]
        serve += ["--topology", str(folder / "topology.yaml"), "--pack", str(folder / "pack")]
        execute = ["executor", "serve", "--name", NAME, "--claim-ttl", str(CLAIM_TTL_S)]
        for victim, words in (("service", serve), ("executor", execute)):
            code = self._started[victim].exitcode if victim in self._started else -signal.SIGKILL
            assert code in (None, -signal.SIGKILL), f"{victim} ended with {code}\n{self.say()}"
            if code is not None:
                arguments = (self.shop.environment, str(folder), victim, words, self.planned, self.chance.random())
                self._started[victim] = FORKS.Process(target=_live, args=arguments)
                self._started[victim].start()

    def _log_of(self, victim: str) -> Path:
        return _log_in(self.shop.folder, victim)


def _live(
    environment: Mapping[str, str],
    folder: str,
    victim: str,
    words: Sequence[str],
    planned: Mapping[str, Sequence[str]],
    chance: float,
) -> None:
    """The life of a service or of an executor."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    output = os.open(f"{victim}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)

    class ForkedAttempt(_Fork):
        def __init__(self, command: Sequence[str], **_options: object) -> None:
            super().__init__(command, lambda: _mortal("attempt", planned["attempt"], chance))

    forked = mock.patch.object(subprocess, "Popen", ForkedAttempt)
    # Most attempts end before an executor's next look, which renews their claims.
    often = mock.patch.object(executor, "POLL_S", LOOK_EVERY_S)
    with forked, often, _mortal(victim, planned[victim], chance):
        main(list(words), prog_name="gobblin-assets")


class _Fork:
    """In the place of ``subprocess.Popen``: the command in a process that has imported what it needs."""

    _others: ClassVar[list[int]] = []

    def __init__(self, command: Sequence[str], mortal: Callable[[], AbstractContextManager[None]]) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            # An attempt hears of its executor's death only when nobody else holds the other end of its pipe.
            for each in (write, *self._others):
                with suppress(OSError):
                    os.close(each)
            _become_attempt(command, mortal, read)
        os.close(read)
        self._others.append(write)
        self.stdin: IO[bytes] = os.fdopen(write, "wb")
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _become_attempt(command: Sequence[str], mortal: Callable[[], AbstractContextManager[None]], pipe: int) -> None:
    """Never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        os.dup2(pipe, 0)
        os.close(pipe)
        with Path(_ATTEMPTS).open("a", encoding="ascii") as pids:
            pids.write(f"{os.getpid()}\n")
        with mortal():
            # Behind the interpreter and the program's name.
            main(list(command[3:]), prog_name="gobblin-assets")
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001  above is the executor's code, which this process must not go on with
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def _mortal(victim: str, planned: Sequence[str], chance: float) -> Iterator[None]:
    """Let this process die of the first death that has not come when its work begins. It may wait for work for long."""
    log, pid, lock = _log_in(Path(), victim), os.getpid(), threading.Lock()
    armed: list[ArmedFailpoints] = []

    def choose() -> ArmedFailpoints:
        come = len(_lines_of(log))
        death = planned[come] if come < len(planned) else ""
        if death == MOMENT:
            threading.Timer(_LIVES_S[victim] * chance, _die, (log,)).start()
            death = ""
        return ArmedFailpoints(death, str(log))

    def hear(point: Failpoint) -> None:
        # Attempts are forked from their executor, whose death is not theirs.
        if os.getpid() == pid:
            with lock:
                if not armed:
                    armed.append(choose())
            armed[0](point)

    with failpoints.install(hear):
        yield


def _die(log: Path) -> None:
    with log.open("a", encoding="ascii") as file:
        file.write(f"{MOMENT}\n")
    os.kill(os.getpid(), signal.SIGKILL)


def _log_in(folder: Path, victim: str) -> Path:
    return folder / f"{victim}.deaths"


def _lines_of(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _kill_fork(pid: int) -> None:
    """Ids of processes repeat: a foreign process is not killed."""
    with suppress(FileNotFoundError, ProcessLookupError):
        if b"multiprocessing.forkserver" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
