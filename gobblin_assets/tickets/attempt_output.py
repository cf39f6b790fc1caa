"""Output of the processes of attempts: it is passed on to the executor's own, and the log keeps its last lines.

The executor reads a pipe for each process, so that the lines of one that was killed are there as well. It keeps them by
a thread of its own: a log that is away stops no job.

A process holds the other end of its pipe, too. If the executor dies, it can go on writing: it takes the pipe over, and
passes its lines on to the executor's output itself.
"""

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import fcntl
from typing import Final
from urllib.parse import unquote

from gobblin_assets.db.engine import scrub
from gobblin_assets.model.wording import CONTROLS
from gobblin_assets.state.tickets import Claim, TicketStore
from gobblin_assets.tickets.attempt_processes import AttemptProcess

OUTPUT_LINES_MAX: Final = 200
OUTPUT_BYTES_MAX: Final = 64 << 10
KEEP_EVERY_S: Final = 2.0

_LINE_BYTES_MAX: Final = 4 << 10
_RAW_LINE_BYTES_MAX: Final = 64 << 10
"""Of a line that does not end: what comes behind it is passed on, and not kept."""

_STANDARD_OUTPUT: Final = 1
_STANDARD_ERROR: Final = 2
_READ_BYTES: Final = 64 << 10
_PIPE_BYTES: Final = 1 << 20
_SET_PIPE_BYTES: Final = 1031
"""``F_SETPIPE_SZ`` of Linux: a process does not wait for an executor that is paused for a moment."""

_LAST_WAIT_S_MAX: Final = 10.0

_DESCRIPTORS: Final = "GOBBLIN_ATTEMPT_OUTPUT"
"""For the process of an attempt: the read end of its pipe, and the executor's own output."""

_SECRET_NAME: Final = re.compile(r"PASS(WORD|PHRASE)|SECRET|TOKEN|CREDENTIAL|(ACCOUNT|ACCESS|API)_KEY(?!_ID)")
_SECRET_LENGTH_MIN: Final = 4
# Up to the last @ of a word: a password may have slashes, and such signs, too.
_IN_URL: Final = re.compile(r"(://[^\s/:@]*:)\S+(?=@)")
_AS_OPTION: Final = re.compile(
    r"""(?i)((?:password|passphrase|passwd|secret|token)["']?\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s&;,]+)"""
)
_MASK: Final = r"\1***"


def find_secrets(environment: Mapping[str, str]) -> frozenset[str]:
    """Values of variables that are secrets by their names, or stand in URLs as passwords. Of several lines, each."""
    found = {line for name, value in environment.items() if _SECRET_NAME.search(name) for line in value.splitlines()}
    for value in environment.values():
        found.update(match[0][len(match[1]) :] for match in _IN_URL.finditer(value))
        found.update(match[2].strip("\"'") for match in _AS_OPTION.finditer(value))
    found |= {unquote(each) for each in found}
    return frozenset(each for each in found if len(each) >= _SECRET_LENGTH_MIN)


class AttemptOutput:
    """The last lines that one process said. ``secrets``: what no line may show.

    ``claim``: None, while the process waits for one.
    """

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = secrets
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, int]] = deque()
        self._bytes = 0
        self._begun = b""
        self._is_cut = False
        self._has_news = False
        self.claim: Claim | None = None
        self.is_over = False

    def add(self, data: bytes) -> None:
        """Take what was read. A line counts once it is whole: a part of a secret is not known for one."""
        with self._lock:
            *whole, self._begun = (self._begun + data).split(b"\n")
            for line in whole:
                if not self._is_cut:
                    self._add_line(line)
                self._is_cut = False
            if len(self._begun) > _RAW_LINE_BYTES_MAX:
                if not self._is_cut:
                    self._add_line(self._begun)
                self._begun, self._is_cut = b"", True

    def finish(self) -> None:
        """Nothing comes any more."""
        with self._lock:
            if self._begun and not self._is_cut:
                self._add_line(self._begun)
            self._begun, self.is_over = b"", True

    def take_news(self) -> str | None:
        """The last lines, if there are others than at the last call."""
        with self._lock:
            if not self._has_news or self.claim is None:
                return None
            self._has_news = False
            mark = f"ticket {self.claim.ticket_id}: "
            return "\n".join(line.removeprefix(mark) for line, _size in self._lines)

    def repeat_news(self) -> None:
        """They could not be kept."""
        self._has_news = True

    def _add_line(self, line: bytes) -> None:
        # A terminal would show what stands behind the last return.
        said = line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace").replace("\t", "    ")
        said = _AS_OPTION.sub(_MASK, _IN_URL.sub(_MASK, scrub(said, self._secrets)))
        kept = CONTROLS.sub("\N{REPLACEMENT CHARACTER}", said).encode()[:_LINE_BYTES_MAX]
        self._lines.append((kept.decode(errors="ignore"), len(kept) + 1))
        self._bytes += len(kept) + 1
        while len(self._lines) > OUTPUT_LINES_MAX or self._bytes > OUTPUT_BYTES_MAX:
            self._bytes -= self._lines.popleft()[1]
        self._has_news = True


class AttemptOutputs:
    """Starts processes whose output is heard, and keeps it. ``passed_to``: the descriptor of the executor's output."""

    def __init__(
        self, tickets: TicketStore, secrets: frozenset[str], say: Callable[[str], None], passed_to: int
    ) -> None:
        self._tickets = tickets
        self._secrets = secrets
        self._say = say
        self._passed_to = passed_to
        self._lock = threading.Lock()
        self._outputs: dict[int, AttemptOutput] = {}
        self._is_away = False

    def spawn(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """A process with a pipe for its input, in a group of its own. OSError: it can't be started."""
        read, write = os.pipe()
        with suppress(OSError):
            fcntl(write, _SET_PIPE_BYTES, _PIPE_BYTES)
        try:
            process = subprocess.Popen(  # noqa: S603  the caller's own program
                command,
                process_group=0,
                stdin=subprocess.PIPE,
                stdout=write,
                stderr=write,
                env={**environment, _DESCRIPTORS: f"{read},{self._passed_to}"},
                pass_fds=(read, self._passed_to),
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        output = AttemptOutput(self._secrets)
        with self._lock:
            self._outputs[process.pid] = output
        threading.Thread(target=self._read, args=(read, output), name="attempt-output", daemon=True).start()
        return process

    def assign(self, process: AttemptProcess, claim: Claim) -> None:
        """From now on the process works on this claim: what it said before is part of it."""
        with self._lock:
            # Of one that has died meanwhile, there is nothing to keep.
            if (output := self._outputs.get(process.pid)) is not None:
                output.claim = claim

    def keep(self) -> None:
        """Put what is new into the log."""
        with self._lock:
            outputs = dict(self._outputs)
        for number, output in outputs.items():
            is_over = output.is_over
            lines = output.take_news()
            if lines is not None and output.claim is not None:
                try:
                    self._tickets.keep_output(output.claim, lines)
                except Exception as error:  # noqa: BLE001  jobs go on, whatever keeping their lines ends with
                    output.repeat_news()
                    if not self._is_away:
                        self._say(f"what processes say is not kept: {error}")
                    self._is_away = True
                    return
                self._is_away = False
            if is_over:
                with self._lock:
                    del self._outputs[number]

    def _read(self, read: int, output: AttemptOutput) -> None:
        _pass_on(read, self._passed_to, output.add)
        os.close(read)
        output.finish()


def _pass_on(read: int, passed_to: int, hear: Callable[[bytes], None]) -> None:
    """Write what is read, until nobody can write into the pipe any more."""
    while data := os.read(read, _READ_BYTES):
        # A terminal that is gone takes nothing.
        with suppress(OSError):
            os.write(passed_to, data)
        hear(data)


@contextmanager
def keep_outputs(
    tickets: TicketStore, environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[AttemptOutputs]:
    """Keep what processes say during the block, and what is new at its end."""
    # A descriptor of its own: in the processes, the number of the standard one is that of their pipe.
    outputs = AttemptOutputs(tickets, find_secrets(environment), say, os.dup(sys.stderr.fileno()))
    is_over = threading.Event()

    def repeat() -> None:
        while not is_over.wait(KEEP_EVERY_S):
            outputs.keep()
        outputs.keep()

    thread = threading.Thread(target=repeat, name="attempt-outputs", daemon=True)
    thread.start()
    try:
        yield outputs
    finally:
        is_over.set()
        thread.join(_LAST_WAIT_S_MAX)


def take_output_back(environment: Mapping[str, str]) -> None:
    """In the process of an attempt whose executor has died: write to the executor's output, as the executor would."""
    read, _, passed_to = environment.get(_DESCRIPTORS, "").partition(",")
    if not passed_to:
        return
    for descriptor in (_STANDARD_OUTPUT, _STANDARD_ERROR):
        os.dup2(int(passed_to), descriptor)
    # Programs that this process has started still write into the pipe.
    arguments = (int(read), int(passed_to), lambda _data: None)
    threading.Thread(target=_pass_on, args=arguments, name="own-output", daemon=True).start()
