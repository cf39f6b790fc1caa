"""Programs of a cluster under torture: each is started, killed or stopped whole or in part, and started again."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

_GONE_S_MAX: Final = 30.0
_SAID_MAX: Final = 500


@dataclass
class Program:
    """A command in a session of its own, with all processes below it. What it says is in ``<name>.log``.

    ``needed``: of each of these groups of words, a process below it has all in its command line while it is whole.
    ``is_fragile``: it ends by itself when a part of it was killed.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    needed: Sequence[Sequence[str]] = ()
    is_fragile: bool = False
    starts: int = 0
    surprises: list[str] = field(default_factory=list)
    _process: "subprocess.Popen[bytes] | None" = None
    _is_hurt: bool = False

    def start(self) -> None:
        self.starts += 1
        self._is_hurt = False
        with (self.folder / f"{self.name}.log").open("ab") as log:
            log.write(f"--- start {self.starts} at {time.strftime('%X')}\n".encode())
            log.flush()
            self._process = subprocess.Popen(
                self.command,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def notice_end(self) -> bool:
        """Whether it has ended by itself since it was started; unless a part of it was killed, that is a surprise."""
        if self._process is None or self._process.poll() is None:
            return False
        if not (self.is_fragile and self._is_hurt):
            said = self.say()[-_SAID_MAX:]
            self.surprises.append(f"{self.name} ended by itself with {self._process.returncode}, and said last: {said}")
        self.kill()
        return True

    def kill(self) -> int:
        """SIGKILL to all processes of its session, as if their machine lost its power. Returns how many."""
        if self._process is None:
            return 0
        found = self._list_session()
        # All stop first, so that none starts or reports anything while the others are killed.
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for each in found:
                send(each, number)
        psutil.wait_procs(found, timeout=_GONE_S_MAX)
        self._process.wait(_GONE_S_MAX)
        self._process = None
        return len(found)

    def find(self, *words: str) -> list[psutil.Process]:
        """Its processes whose command lines have all the words."""
        return [each for each in self._list_session() if all(word in _read_command(each) for word in words)]

    def find_children(self) -> list[psutil.Process]:
        """Those that the first process has started."""
        found: list[psutil.Process] = []
        with suppress(psutil.Error):
            if self._process is not None:
                found = psutil.Process(self._process.pid).children()
        return found

    @property
    def main(self) -> "psutil.Process | None":
        with suppress(psutil.Error):
            if self._process is not None and self._process.poll() is None:
                return psutil.Process(self._process.pid)
        return None

    def kill_part(self, part: psutil.Process) -> None:
        self._is_hurt = True
        send(part, signal.SIGKILL)

    def is_whole(self) -> bool:
        commands = [_read_command(each) for each in self._list_session()]
        return all(any(all(word in each for word in words) for each in commands) for words in self.needed)

    def say(self) -> str:
        path = self.folder / f"{self.name}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _list_session(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        return [each for each in psutil.process_iter() if _is_of_session(each, self._process.pid)]


def send(process: psutil.Process, number: signal.Signals) -> None:
    """psutil sends nothing to another process that has the same id by now."""
    with suppress(psutil.Error):
        process.send_signal(number)


def wait_for(happened: Callable[[], object], what: str, wait_s: float, say: Callable[[], str]) -> None:
    until = time.monotonic() + wait_s
    while not happened():
        assert time.monotonic() < until, f"it has not come in {wait_s:.0f} s: {what}\n{say()}"
        time.sleep(0.3)


def _is_of_session(process: psutil.Process, session: int) -> bool:
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.Error):
        return False


def _read_command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
