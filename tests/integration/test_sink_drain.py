"""`sink drain` and `sink status`, as a shell sees them; the workers are rows of the log, and no broker is asked."""

import re
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import JobName
from gobblin_assets.state.postgres.sinks import PostgresSinkWorkerStore
from gobblin_assets.state.sinks import SinkWorkerRow
from tests.support.command_lake import invoke

SINK = JobName("clicks")
FIRST, LATER = (SinkWorkerRow(RunId(uuid.uuid4()), owner, "the same") for owner in ("host:1", "host:2"))
JOB = """
job: clicks
source: {type: kafka, connection: nowhere}
destination: ./lake
datasets: [{topic: clicks}]
sink: {}
"""


@pytest.fixture
def workers(database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> PostgresSinkWorkerStore:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    return PostgresSinkWorkerStore(engine)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "clicks.yaml"
    path.write_text(JOB, encoding="utf-8")
    return str(path)


def once_asked(workers: PostgresSinkWorkerStore, do: Callable[[], object]) -> threading.Thread:
    """``do`` as soon as somebody has asked a worker to end."""

    def watch() -> None:
        while not any(each.is_drained for each in workers.list_live(SINK)):
            time.sleep(0.05)
        do()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_it_waits_for_those_that_it_asked_and_says_who_came_later(workers: PostgresSinkWorkerStore, job: str) -> None:
    workers.beat(SINK, FIRST, ttl_s=60)

    def take_turns() -> None:
        workers.beat(SINK, LATER, ttl_s=60)
        workers.leave(FIRST.run_id)

    thread = once_asked(workers, take_turns)
    drained = invoke("sink", "drain", job, "--wait", "20")
    thread.join()
    assert drained.exit_code == 0, drained.output
    assert "1 worker is asked to end" in drained.stderr
    assert "1 worker came after that and was not asked: host:2. Run it again to end it" in drained.stderr
    assert list(workers.list_live(SINK)) == [LATER]


def test_one_that_does_not_end_is_named_and_a_later_one_is_not(workers: PostgresSinkWorkerStore, job: str) -> None:
    workers.beat(SINK, FIRST, ttl_s=60)
    thread = once_asked(workers, lambda: workers.beat(SINK, LATER, ttl_s=60))
    drained = invoke("sink", "drain", job, "--wait", "2")
    thread.join()
    assert drained.exit_code == 1
    assert "1 worker is still alive after 2 s: host:1" in drained.stderr
    assert "host:2" not in drained.stderr


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_the_status_of_topics_asks_no_server_and_says_no_word_of_change_logs(
    workers: PostgresSinkWorkerStore, job: str, options: tuple[str, ...]
) -> None:
    workers.beat(SINK, FIRST, ttl_s=60)
    shown = invoke("sink", "status", job, *options)
    assert shown.exit_code == 0, shown.output
    assert "host:1" in shown.output
    words = set(re.findall(r"[a-z_]+", shown.output.lower()))
    assert not words & {"slot", "stream", "bytes", "tables", "copy", "connection"}, shown.output
