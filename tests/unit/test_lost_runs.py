"""Whether a run's process lives, and when a run that the log does not know is over."""

import dagster as dg
import pytest

from gobblin_assets.dagster.dead_runs import (
    STARTING_S_MAX,
    UNSEEN_S_MAX,
    Announced,
    Life,
    ProcessMark,
    decide_life,
    decide_lost,
    describe_this_process,
    read_marks,
)
from gobblin_assets.spark.processes import find_start_mark, find_started_at_s

HERE = "here"
LIVING = {10: "boot:1", 11: "boot:2"}
OURS, PARENT = ProcessMark(HERE, 10, "boot:1"), ProcessMark(HERE, 11, "boot:2")
GONE, REUSED = ProcessMark(HERE, 12, "boot:3"), ProcessMark(HERE, 10, "boot:0")
ELSEWHERE = ProcessMark("there", 10, "boot:1")


@pytest.mark.parametrize(
    ("marks", "announced", "life"),
    [
        pytest.param([OURS], None, Life.ALIVE, id="it is there"),
        pytest.param([GONE], None, Life.DEAD, id="it is not there"),
        pytest.param([REUSED], None, Life.DEAD, id="another process has its number"),
        pytest.param([GONE, PARENT], None, Life.ALIVE, id="a step's process ended, and its run's goes on"),
        pytest.param([GONE, REUSED], None, Life.DEAD, id="both are gone"),
        pytest.param([ELSEWHERE], None, Life.UNSEEN, id="on another host"),
        pytest.param([GONE, ELSEWHERE], None, Life.UNSEEN, id="a retry on another host"),
        pytest.param([ProcessMark(HERE, 12, "")], None, Life.UNSEEN, id="it could not tell its start"),
        pytest.param([], None, Life.UNSEEN, id="nobody said"),
        pytest.param([], Announced(10, 100.0), Life.ALIVE, id="Dagster's event alone"),
        pytest.param([], Announced(12, 100.0), Life.DEAD, id="Dagster's event, and it is not there"),
        pytest.param([], Announced(10, 40.0), Life.DEAD, id="Dagster's event, and it began later"),
        pytest.param([GONE], Announced(10, 100.0), Life.ALIVE, id="a step's process ended, the worker goes on"),
    ],
)
def test_life(marks: list[ProcessMark], announced: Announced | None, life: Life) -> None:
    started = {10: 99.0, 11: 98.0}
    assert decide_life(marks, announced, host=HERE, find_start=LIVING.get, find_started_at=started.get) is life


@pytest.mark.parametrize(
    ("life", "status", "unchanged_s", "is_lost"),
    [
        (Life.DEAD, dg.DagsterRunStatus.STARTED, 0.0, True),
        (Life.DEAD, dg.DagsterRunStatus.CANCELING, 0.0, True),
        (Life.ALIVE, dg.DagsterRunStatus.STARTED, 1e9, False),
        (Life.UNSEEN, dg.DagsterRunStatus.STARTED, UNSEEN_S_MAX - 1, False),
        (Life.UNSEEN, dg.DagsterRunStatus.STARTED, UNSEEN_S_MAX + 1, True),
        (Life.DEAD, dg.DagsterRunStatus.STARTING, STARTING_S_MAX - 1, False),
        (Life.UNSEEN, dg.DagsterRunStatus.STARTING, STARTING_S_MAX + 1, True),
        (Life.ALIVE, dg.DagsterRunStatus.STARTING, STARTING_S_MAX + 1, False),
    ],
)
def test_lost(life: Life, status: dg.DagsterRunStatus, unchanged_s: float, *, is_lost: bool) -> None:
    assert decide_lost(life, status, unchanged_s=unchanged_s) is is_lost


def test_this_process_is_alive_by_its_own_mark() -> None:
    (mark,) = read_marks(describe_this_process())
    found = decide_life([mark], None, host=mark.host, find_start=find_start_mark, find_started_at=find_started_at_s)
    assert found is Life.ALIVE


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[[1]]", '["x"]', '{"a": 1}'])
def test_a_tag_that_is_not_ours_says_nothing(text: str | None) -> None:
    assert read_marks(text) == []
