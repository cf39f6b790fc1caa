"""The process that waits for a claim, and what becomes of it; with small processes in place of attempts."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import Claim
from gobblin_assets.tickets.attempt_processes import SPARE_AFTER_S, SpareProcesses, await_claim

CLAIM = Claim(TicketId(uuid.uuid4()), 3)


class StandingClock(SystemClock):
    """Time passes by ``advance`` alone."""

    def __init__(self) -> None:
        self._now_s = 100.0

    def monotonic(self) -> float:
        return self._now_s

    def advance(self, seconds: float) -> None:
        self._now_s += seconds


class Spawning:
    """Starts processes that print what they are told, and end."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self) -> "subprocess.Popen[bytes]":
        program = [sys.executable, "-S", "-c", "import sys; print(sys.stdin.readline(), end='')"]
        self.started.append(subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return self.started[-1]


@pytest.fixture
def spawning() -> Iterator[Spawning]:
    made = Spawning()
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def read_answer(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    return process.stdout.read().decode()


def test_a_claim_goes_to_the_process_that_waits_and_the_next_one_starts_later(spawning: Spawning) -> None:
    clock = StandingClock()
    processes = SpareProcesses(spawning, clock)
    processes.prepare()
    processes.prepare()
    assert len(spawning.started) == 1
    assert processes.start(CLAIM) is spawning.started[0]
    assert read_answer(spawning.started[0]) == f"{CLAIM.ticket_id} 3\n"

    processes.prepare()
    assert len(spawning.started) == 1, "the imports of the attempt come first"
    assert processes.start(CLAIM) is spawning.started[1], "there is none that waits"
    clock.advance(SPARE_AFTER_S)
    processes.prepare()
    assert len(spawning.started) == 3
    processes.close()
    assert spawning.started[2].wait() != 0
    assert read_answer(spawning.started[1]) == f"{CLAIM.ticket_id} 3\n"


def test_a_process_that_died_while_it_waited_gets_no_claim_and_is_replaced(spawning: Spawning) -> None:
    clock = StandingClock()
    processes = SpareProcesses(spawning, clock)
    processes.prepare()
    spawning.started[0].kill()
    spawning.started[0].wait()
    assert processes.start(CLAIM) is spawning.started[1]

    clock.advance(SPARE_AFTER_S)
    processes.prepare()
    spawning.started[2].kill()
    spawning.started[2].wait()
    processes.prepare()
    assert len(spawning.started) == 3, "one that dies at once is not started again at once"
    clock.advance(SPARE_AFTER_S)
    processes.prepare()
    assert processes.start(CLAIM) is spawning.started[3]


def test_a_claim_is_read_up_to_its_line_and_no_claim_comes_from_an_executor_that_has_died() -> None:
    read, write = os.pipe()
    os.write(write, f"{CLAIM.ticket_id} {CLAIM.attempt}\nc".encode())
    assert await_claim(read) == CLAIM
    assert os.read(read, 9) == b"c", "the word for the attempt"
    os.close(write)
    assert await_claim(read) is None
    os.close(read)
