"""Events of copies that are killed: each publication and each file is told at least once, whoever finished it."""

import datetime as dt
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.failpoints import Failpoint
from gobblin_assets.model.state import DatasetOutcome
from tests.crash.test_copies import kill
from tests.support import copy_lake
from tests.support.copy_lake import REMOVED, CopyLake, CopyWorld, files_of
from tests.support.shares import rotating

pytestmark = pytest.mark.turns(of=4)

world = copy_lake.world


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    events = [{"kind": "jsonl", "path": str(tmp_path / "told.jsonl")}]
    made = CopyLake(database_url, str(tmp_path), options={"events": events})
    made.make_source()
    return made


def told(lake: CopyLake, event: str) -> list[dict[str, Any]]:
    path = Path(lake.directory, "told.jsonl")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [found for found in map(json.loads, lines) if found["event"] == event]


def check_told(lake: CopyLake, world: CopyWorld) -> None:
    """All that is DONE, and nothing else."""
    query = (
        "SELECT string_agg(sequence_id::text, ' ') FROM gobblin.commit_sequence WHERE state = 'DONE' AND step_count > 0"
    )
    assert {each["sequence_id"] for each in told(lake, "DatasetPublished")} == set(str(world.scalar(query)).split())
    paths = {each["path"].removeprefix(f"{lake.root}/") for each in told(lake, "FilePublished")}
    assert paths == set(files_of(lake.tree))


@pytest.mark.parametrize(
    ("at", "is_recovered"),
    [
        (Failpoint.EVENTS_SENT, False),
        (Failpoint.FINISH_COMMITTED, False),
        (Failpoint.SEAL_COMMITTED, True),
        rotating(f"{Failpoint.EVENTS_SENT}@2", False),
        rotating(Failpoint.FINISHED_BEFORE_EVENTS, False),
        rotating(Failpoint.FINISH_COMMITTED, True),
        rotating(Failpoint.EVENTS_BEFORE_CLEANUP, False),
        rotating(Failpoint.STAGED_BEFORE_SEAL, False),
    ],
    ids=str,
)
def test_what_a_killed_run_published_is_told_by_the_next(
    lake: CopyLake, world: CopyWorld, at: str, is_recovered: bool
) -> None:
    if at.endswith("@2"):
        # A batch of publications, and then one of failures.
        kill(lake, Failpoint.STAGED_BEFORE_SEAL)
        world.expire_leases()
    kill(lake, at)
    world.expire_leases()
    if is_recovered:
        world.operations().recover_due(None, on_publication=lambda _publication: None)

    assert not world.run().failed
    check_told(lake, world)

    seen = Counter(each["sequence_id"] for each in told(lake, "DatasetPublished"))
    assert not world.run().failed
    assert Counter(each["sequence_id"] for each in told(lake, "DatasetPublished")) == seen, "told again without reason"


@pytest.mark.parametrize("at", [Failpoint.SEAL_COMMITTED, rotating(Failpoint.FINISH_COMMITTED)], ids=str)
def test_files_that_a_killed_run_removed_are_told_by_their_names(lake: CopyLake, world: CopyWorld, at: str) -> None:
    assert not world.run().failed
    for path in lake.source.glob("albums/**/*"):
        if path.is_file() and path != lake.source / REMOVED:
            path.touch()
    (lake.source / REMOVED).unlink()
    kill(lake, at)
    world.expire_leases()

    assert not world.run().failed

    assert {each["path"] for each in told(lake, "FileRemoved")} == {f"{lake.root}/{REMOVED}"}
    (last,) = [each for each in told(lake, "DatasetPublished") if each["version"] == 2]
    assert (last["removed"], last["replaced"]) == (1, last["files"])
    assert (last["waiting"], last["waiting_bytes"]) == (0, 0)


def test_a_failed_publication_is_told_once_by_its_sequence(lake: CopyLake, world: CopyWorld) -> None:
    kill(lake, Failpoint.ATTEMPT_WRITTEN)
    world.expire_leases()
    assert not world.run().failed

    aborted = "SELECT string_agg(sequence_id::text, ' ') FROM gobblin.commit_sequence WHERE state = 'ABORTED'"
    failed = told(lake, "DatasetPublishFailed")
    assert [each["dataset"] for each in failed] == ["albums", "logs/app"], "both had begun"
    assert {each["sequence_id"] for each in failed} == set(str(world.scalar(aborted)).split())
    assert not world.run().failed
    assert told(lake, "DatasetPublishFailed") == failed


def test_a_set_that_could_not_be_planned_is_told_with_its_error(lake: CopyLake, world: CopyWorld) -> None:
    (lake.source / "logs/app/today.log").unlink()
    (lake.source / "logs/app").rmdir()

    report = world.run()

    (failed,) = told(lake, "DatasetPublishFailed")
    assert (failed["dataset"], failed["sequence_id"]) == ("logs/app", None)
    assert failed["error"] == report.failed[0].error
    assert [each["dataset"] for each in told(lake, "DatasetPublished")] == ["albums"]


def test_a_failure_that_goes_on_is_told_once_an_hour_and_another_one_at_once(lake: CopyLake, world: CopyWorld) -> None:
    def fail(times: int) -> int:
        for _time in range(times):
            assert [each.outcome for each in world.run().failed] == [DatasetOutcome.FAILED]
        return len(told(lake, "DatasetPublishFailed"))

    def pass_hours(count: int) -> None:
        world.execute(f"UPDATE gobblin.run_dataset SET ended_at = ended_at - interval '{count} hours'")
        world.execute(f"UPDATE gobblin.event_cursor SET begun_at = begun_at - interval '{count} hours'")

    place = lake.source / "logs/app"
    place.rename(lake.source / "away")
    hour = dt.datetime.now(dt.UTC).hour
    assert fail(3) - (dt.datetime.now(dt.UTC).hour != hour) == 1, "the same"
    pass_hours(1)
    count = fail(1)
    place.write_text("a file", encoding="utf-8")
    assert fail(1) == count + 1, "another reason"
    place.unlink()
    (lake.source / "away").rename(place)
    assert not world.run().failed
    place.rename(lake.source / "away")
    assert fail(1) == count + 2, "it was well in between"


def test_a_sink_that_is_away_stops_nothing_and_is_told_later(lake: CopyLake, world: CopyWorld) -> None:
    blocked = Path(lake.directory, "told.jsonl")
    blocked.mkdir()

    assert not world.run().failed

    assert any(line.startswith("events for jsonl wait for the next run: ") for line in world.lines)
    blocked.rmdir()
    lake.change_source()
    assert not world.run().failed
    versions = [(each["dataset"], each["version"]) for each in told(lake, "DatasetPublished")]
    assert versions == [("albums", 1), ("albums", 2), ("logs/app", 1), ("logs/app", 2)]


def test_a_new_sink_is_told_from_then_on(lake: CopyLake, world: CopyWorld, tmp_path: Path) -> None:
    assert not world.run().failed
    path = str(tmp_path / "second.jsonl")
    both = [*lake.options["events"], {"kind": "jsonl", "name": "second", "path": path, "files": False}]
    second = replace(lake, options={"events": both}).open_world()
    lake.change_source()

    assert not second.run().failed

    lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    assert {(each["event"], each["version"]) for each in lines} == {("DatasetPublished", 2)}
    assert len(told(lake, "DatasetPublished")) == 4
    second.close()


def test_a_torn_line_is_ended_before_the_next(lake: CopyLake, world: CopyWorld) -> None:
    path = Path(lake.directory, "told.jsonl")
    path.write_text('{"event": "Data', encoding="utf-8")

    assert not world.run().failed

    first, *others = path.read_text(encoding="utf-8").splitlines()
    assert first == '{"event": "Data'
    assert [json.loads(line)["event"] for line in others].count("DatasetPublished") == 2
