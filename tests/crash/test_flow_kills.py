"""Processes of the service that are killed by SIGKILL at each of its failpoints, and followed by others."""

import signal
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from gobblin_assets import failpoints
from gobblin_assets.db.engine import open_external
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.statuses import ExecutionStatus
from tests.crash.points import OF_A_FIRE, OF_A_FLOW, OF_A_MOVE, OF_AN_OWN_RUN
from tests.support.flow_world import (
    KEY,
    ROWS,
    FlowWorld,
    delete_while_it_runs,
    fire_to_the_end,
    move_to_the_end,
    run_to_the_end,
)
from tests.support.forks import FORKS
from tests.support.own_runs import list_accounts, list_adopted, run_assets_to_the_end

pytestmark = pytest.mark.service_schema

LIFE_S_MAX = 150
TOLD = (run_to_the_end, fire_to_the_end, delete_while_it_runs, move_to_the_end, run_assets_to_the_end)
STORIES = {story.__name__: story for story in TOLD}


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize("point", [*OF_A_FLOW, *OF_A_FIRE, *OF_A_MOVE], ids=str)
def test_a_killed_process_is_followed_by_one_that_ends_its_work(
    tmp_path: Path, database_url: str, engine: Engine, point: Failpoint
) -> None:
    others = {Failpoint.CANCEL_MARKED: "delete_while_it_runs", Failpoint.MOVE_BEGUN: "move_to_the_end"}
    story = others.get(point, "fire_to_the_end" if point in OF_A_FIRE else "run_to_the_end")

    kill_and_go_on(tmp_path, database_url, engine, story, f"{point}=kill")

    with engine.connect() as connection:
        (execution_id,) = connection.execute(text("SELECT execution_id FROM gobblin_service.flow_execution")).scalars()
        assert connection.execute(text("SELECT count(*) FROM gobblin_service.flow_version")).scalar() == 1
    status = FlowWorld(engine).flows.get_execution(execution_id)
    assert status.flow == FlowKey(*KEY)
    if point is Failpoint.CANCEL_MARKED:
        assert {job.status for job in status.jobs} == {ExecutionStatus.CANCELLED}
    else:
        assert [(job.status, job.processed_count) for job in status.jobs] == [(ExecutionStatus.COMPLETE, ROWS)] * 2


@pytest.mark.rotating(of=3)
@pytest.mark.parametrize(
    "failpoint",
    [
        *(f"{point}=kill" for point in OF_AN_OWN_RUN),
        # Behind the run that the service began: of the run that Dagster begins, its claim, its reports and its end.
        f"{Failpoint.TICKET_CLAIMED}=kill@2",
        f"{Failpoint.TICKET_REPORTED}=kill@3",
        f"{Failpoint.TICKET_REPORTED}=kill@4",
        f"{Failpoint.TICKET_ENDED}=kill@2",
    ],
)
def test_a_run_that_dagster_begins_is_one_execution_whoever_is_killed(
    tmp_path: Path, database_url: str, engine: Engine, failpoint: str
) -> None:
    kill_and_go_on(tmp_path, database_url, engine, "run_assets_to_the_end", failpoint)
    assert list_accounts(engine) == [(1, "COMPLETE", "COMPLETE")]
    (adopted,) = list_adopted(FlowWorld(engine), FlowKey(*KEY))
    assert [(job.status, job.processed_count) for job in adopted.jobs] == [(ExecutionStatus.COMPLETE, ROWS)]


def kill_and_go_on(tmp_path: Path, url: str, engine: Engine, story: str, failpoint: str) -> None:
    """A process is killed at the failpoint of the story, its claims run out, and another one ends the story."""
    reached = tmp_path / "reached"

    def live(failpoint: str) -> int | None:
        process = FORKS.Process(target=_live, args=(url, story, failpoint, str(reached)))
        process.start()
        process.join(LIFE_S_MAX)
        return process.exitcode

    assert live(failpoint) == -signal.SIGKILL
    assert reached.read_text(encoding="utf-8").strip(), "it never got there"
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.ticket_claim SET expires_at = clock_timestamp() - interval '1 s'"))
    assert live("") == 0


def _live(url: str, story: str, failpoint: str, reached: str) -> None:
    failpoints.arm(failpoint, reached)
    engine = open_external(url)
    STORIES[story](FlowWorld(engine), KEY.name)
    engine.dispose()
