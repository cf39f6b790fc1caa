"""Real copies, killed and paused everywhere: names hold what the log says, and no version of a file is ever lost.

One suite for the places that copies go to, each with points of its own: a directory, which has all of them, a bucket of
versitygw, and a directory of HDFS.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.failpoints import Failpoint
from tests.crash.points import OF_A_CAPTURE, OF_A_PUBLICATION, OF_A_REUSE, OF_CLEANUP, OF_EXECUTION
from tests.crash.test_kills import (
    OF_ABANDONMENT,
    ONCE_IN_A_RUN,
    check_every_sequence_was_announced,
    kill_at,
    open_sequence,
)
from tests.crash.test_lost_acknowledgements import COMMITS
from tests.support import copy_lake
from tests.support.copy_lake import (
    ACTS_OF_THE_CHANGE,
    OF_VERSION_2,
    REMOVED,
    REPLACED,
    CopyLake,
    CopyWorld,
    content_of,
    files_of,
    inodes_of,
)
from tests.support.copy_places import BUCKET, DISK, HDFS, make_copy_lake
from tests.support.lake import start_worker
from tests.support.shares import cross, often, rare, rotating, thorough
from tests.support.workers import Worker

pytestmark = pytest.mark.turns(of=6)

world, changed = copy_lake.world, copy_lake.changed

AN_ACT: Final = "act"
ACTS: Final = range(1, ACTS_OF_THE_CHANGE + 1)
OF_A_COPY: Final = (
    Failpoint.LEASE_TAKEN,
    *OF_A_REUSE,
    *OF_A_PUBLICATION,
    Failpoint.FINISHED_BEFORE_EVENTS,
    Failpoint.EVENTS_BEFORE_CLEANUP,
)
OF_A_RECOVERY: Final = (Failpoint.RECOVERY_STARTED, *OF_A_CAPTURE, *OF_EXECUTION, Failpoint.FINISHED_BEFORE_EVENTS)
# Before the first act, between the two renames of a replacement, before the removal, and after everything.
SEALED: Final = (
    Failpoint.SEAL_COMMITTED,
    f"{Failpoint.STEP_AFTER}@5",
    f"{Failpoint.STEP_AFTER}@8",
    Failpoint.VERIFIED_BEFORE_FINISH,
)
MOVED_ASIDE: Final = Counter(content_of(path, 1) for path in (REMOVED, *REPLACED))
MOVED_ASIDE_TWICE: Final = MOVED_ASIDE + Counter(content_of(path, 2) for path in OF_VERSION_2)


OF_A_CHANGE_ON_HDFS: Final = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.STAGE_COMMITTED,
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    f"{Failpoint.STEP_AFTER}@2",
    f"{Failpoint.STEP_AFTER}@6",
    f"{Failpoint.STEP_AFTER}@8",
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISHED_BEFORE_EVENTS,
)
"""From the first byte to the last event: among the acts are directories, renames of a replacement, removals."""

OF_A_FIRST_COPY_IN_A_BUCKET: Final = (
    Failpoint.ATTEMPT_REGISTERED,
    Failpoint.ATTEMPT_WRITTEN,
    Failpoint.STAGED_BEFORE_SEAL,
)
OF_A_CHANGE_IN_A_BUCKET: Final = (
    f"{Failpoint.STEP_AFTER}@2",
    f"{Failpoint.STEP_BEFORE}@5",
    f"{Failpoint.STEP_AFTER}@6",
)
MORE_OF_A_CHANGE_IN_A_BUCKET: Final = (
    Failpoint.SEAL_COMMITTED,
    Failpoint.MARKER_WRITTEN,
    Failpoint.EXECUTED_BEFORE_SYNC,
    Failpoint.VERIFIED_BEFORE_FINISH,
    Failpoint.FINISH_COMMITTED,
)

on_disk: Final = pytest.mark.parametrize("lake", [DISK], indirect=True)


@pytest.fixture
def lake(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> CopyLake:
    return make_copy_lake(request, request.param, database_url, tmp_path, monkeypatch)


def kill(lake: CopyLake, at: str, **how: str) -> None:
    """Kill a process at a point, or at the n-th time that it reaches it: ``<point>@<n>``."""
    point, _, count = at.partition("@")
    kill_at(lake, f"{point}=kill@{count or 1}", **how)


def check_complete(world: CopyWorld) -> None:
    world.check_copied()
    check_every_sequence_was_announced(world)


@pytest.mark.parametrize(
    ("lake", "at"),
    [
        *((DISK, at) for at in ONCE_IN_A_RUN[:2]),
        *(rotating(DISK, at) for at in OF_A_COPY),
        *(rotating(BUCKET, at) for at in OF_A_FIRST_COPY_IN_A_BUCKET),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_first_copy_killed_anywhere_is_completed_by_the_next(lake: CopyLake, world: CopyWorld, at: str) -> None:
    kill(lake, at)
    world.expire_leases()

    assert not world.run().failed

    check_complete(world)
    assert not world.slots()


@pytest.mark.every_run
@pytest.mark.parametrize(
    ("lake", "at"),
    [
        *(often(DISK, at) for at in OF_A_COPY),
        *(rotating(DISK, f"{point}@2") for point in OF_A_PUBLICATION if point is not Failpoint.SEQUENCE_BEGUN),
        *(rotating(DISK, f"{point}@{n}") for point in (Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER) for n in ACTS[2:]),
        *(rotating(BUCKET, at) for at in OF_A_CHANGE_IN_A_BUCKET),
        *(thorough(BUCKET, at) for at in MORE_OF_A_CHANGE_IN_A_BUCKET),
        *(rare(HDFS, at) for at in OF_A_CHANGE_ON_HDFS),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_change_killed_anywhere_is_completed_by_the_next(lake: CopyLake, changed: CopyWorld, at: str) -> None:
    kill(lake, at)
    changed.expire_leases()

    assert not changed.run().failed

    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize(("first", "second"), cross(SEALED, OF_A_RECOVERY), ids=str)
def test_a_recovery_killed_anywhere_is_completed_by_the_next(
    lake: CopyLake, changed: CopyWorld, first: str, second: str
) -> None:
    if first is Failpoint.VERIFIED_BEFORE_FINISH and second in {Failpoint.STEP_BEFORE, Failpoint.STEP_AFTER}:
        second = f"{second}@1"  # of the other dataset: all steps of the first are done
    kill(lake, first)
    changed.expire_leases()
    kill(lake, second)
    changed.expire_leases()

    assert not changed.run().failed

    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize("number", ACTS, ids=str)
def test_every_act_has_an_owner_of_its_own(lake: CopyLake, changed: CopyWorld, number: int) -> None:
    """Each process dies after so many acts; the next one captures from all before it."""
    deaths = 0
    while start_worker(lake, failpoint=f"{Failpoint.STEP_AFTER}=kill@{number}").wait() != 0:
        changed.expire_leases()
        deaths += 1

    assert deaths == ACTS_OF_THE_CHANGE // number
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@pytest.mark.parametrize(
    ("lake", "sealed", "point"),
    [
        *(rotating(DISK, sealed, point) for sealed in SEALED for point in (*OF_ABANDONMENT, None)),
        *(rotating(BUCKET, f"{Failpoint.STEP_AFTER}@6", point) for point in OF_ABANDONMENT[:3]),
        *(thorough(HDFS, sealed, None) for sealed in (SEALED[0], f"{Failpoint.STEP_AFTER}@6", SEALED[2])),
    ],
    indirect=["lake"],
    ids=str,
)
def test_an_abandonment_killed_anywhere_gives_the_old_versions_back(
    lake: CopyLake, changed: CopyWorld, sealed: str, point: Failpoint | None
) -> None:
    before, files, originals = lake.look(), lake.files(), lake.identities()
    kill(lake, sealed)
    changed.expire_leases()
    sequence_id = open_sequence(changed)
    if point is not None:
        kill(lake, point, action="abandon", argument=str(sequence_id))
        changed.expire_leases()
        changed.operations().recover_due(None, on_publication=lambda _publication: None)
    else:
        changed.operations().abandon(sequence_id, reason="a test")

    assert changed.stores.commits.get(sequence_id).state == "ABORTED"
    assert lake.files() == files
    now = lake.look()
    assert {name: now.get(name) for name in before} == before
    identities = lake.identities()
    assert {name: identities.get(name) for name in originals} == originals, "these are other files"
    assert not changed.run().failed
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@pytest.mark.parametrize(
    ("lake", "at", "way"),
    [
        *(
            (DISK, point, "resumed")
            for point in (Failpoint.MARKER_WRITTEN, Failpoint.STEP_BEFORE, Failpoint.EXECUTED_BEFORE_SYNC)
        ),
        *(rotating(DISK, f"{AN_ACT}@{n}", way) for way in ("resumed", "abandoned") for n in ACTS),
        *(rotating(DISK, point, "resumed") for point in OF_A_COPY),
        *(rotating(BUCKET, f"{Failpoint.STEP_BEFORE}@{n}", "resumed") for n in (1, 4, 6)),
        rotating(BUCKET, Failpoint.MARKER_WRITTEN, "resumed"),
        *(
            thorough(HDFS, at, way)
            for at in (Failpoint.STEP_BEFORE, f"{Failpoint.STEP_AFTER}@6", Failpoint.EXECUTED_BEFORE_SYNC)
            for way in ("resumed", "abandoned")
        ),
    ],
    indirect=["lake"],
    ids=str,
)
def test_a_paused_copy_changes_nothing_when_it_wakes_up(lake: CopyLake, changed: CopyWorld, at: str, way: str) -> None:
    check_paused(lake, changed, at, way)


@on_disk
@pytest.mark.parametrize(
    ("at", "way"),
    [
        *((point, "resumed") for point in (*OF_A_CAPTURE, Failpoint.STEP_BEFORE)),
        rotating(Failpoint.RECOVERY_STARTED, "resumed"),
        rotating(Failpoint.ATTEMPTS_CLAIMED, "abandoned"),
        rotating(Failpoint.ATTEMPTS_CAPTURED, "abandoned"),
        *(rotating(f"{AN_ACT}@{n}", "resumed") for n in ACTS),
        *(rotating(f"{AN_ACT}@{n}", "abandoned") for n in ACTS),
    ],
    ids=str,
)
def test_a_paused_recovery_changes_nothing_when_it_wakes_up(
    lake: CopyLake, changed: CopyWorld, at: str, way: str
) -> None:
    kill(lake, Failpoint.SEALED_BEFORE_EXECUTE)
    changed.expire_leases()
    check_paused(lake, changed, at, way)


def pause(lake: CopyLake, at: str, *, action: str = "run", argument: str = "") -> Worker:
    """A process that has stopped at a failpoint, or before an act: between its look and its rename."""
    point, _, count = at.partition("@")
    if point == AN_ACT:
        zombie = start_worker(replace(lake, stops_before=int(count)), action=action, argument=argument)
    else:
        zombie = start_worker(lake, failpoint=f"{point}=stop@{count or 1}", action=action, argument=argument)
    zombie.wait_until_stopped()
    return zombie


def check_paused(lake: CopyLake, changed: CopyWorld, at: str, way: str) -> None:
    """A process stops there; others end its work, and publish another change of the same names; then it wakes up."""
    zombie = pause(lake, at)
    changed.expire_leases()
    for sequence in changed.stores.commits.list_open(None, limit=10) if way == "abandoned" else ():
        changed.operations().abandon(sequence.sequence_id, reason="a test")
    assert not changed.run().failed
    lake.change_again()
    assert not changed.run().failed
    changed.check_copied()
    before, originals = lake.look(), lake.identities()

    zombie.wake_up()
    assert zombie.wait() in (0, 1), "the zombie crashed instead of giving up"

    assert lake.look() == before
    assert lake.identities() == originals
    assert changed.slots() == MOVED_ASIDE_TWICE
    assert not changed.run().failed
    check_complete(changed)
    assert lake.identities() == originals


@on_disk
@pytest.mark.parametrize(
    "at", [Failpoint.STEP_BEFORE, f"{AN_ACT}@1", *(rotating(f"{AN_ACT}@{n}") for n in ACTS[1:-2])], ids=str
)
def test_a_paused_copy_publishes_nothing_of_what_was_abandoned(lake: CopyLake, changed: CopyWorld, at: str) -> None:
    before = files_of(lake.tree / "albums")
    zombie = pause(lake, at)
    changed.expire_leases()
    changed.operations().abandon(open_sequence(changed), reason="a test")
    assert files_of(lake.tree / "albums") == before

    zombie.wake_up()
    assert zombie.wait() in (0, 1), "the zombie crashed instead of giving up"

    assert files_of(lake.tree / "albums") == before
    assert not changed.run().failed
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize("at", [*OF_ABANDONMENT, *(rotating(f"{AN_ACT}@{n}") for n in range(1, 6))], ids=str)
def test_a_paused_abandonment_changes_nothing_when_it_wakes_up(lake: CopyLake, changed: CopyWorld, at: str) -> None:
    kill(lake, f"{Failpoint.STEP_AFTER}@8")
    changed.expire_leases()
    zombie = pause(lake, at, action="abandon", argument=str(open_sequence(changed)))
    changed.expire_leases()
    changed.operations().recover_due(None, on_publication=lambda _publication: None)
    assert not changed.run().failed
    originals = inodes_of(lake.tree)

    zombie.wake_up()
    zombie.wait()

    assert inodes_of(lake.tree) == originals
    assert not changed.run().failed
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize("count", [1, rotating(2)])
@pytest.mark.parametrize(
    "point", [*(each for each in COMMITS if each is not Failpoint.CLEANUP_MARKED), Failpoint.REUSE_MARKED], ids=str
)
def test_an_acknowledgement_lost_after_commit_is_resolved_by_the_log(
    lake: CopyLake, changed: CopyWorld, point: Failpoint, count: int
) -> None:
    worker = start_worker(lake, failpoint=f"{point}=lose@{count}")

    assert worker.wait() == 0
    assert worker.reached() or count > 1, "the failpoint was never reached"
    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize("at", [*OF_A_CAPTURE, *(rotating(f"{Failpoint.STEP_AFTER}@{n}") for n in ACTS)], ids=str)
def test_an_act_that_took_effect_and_reported_an_error_is_found_done(
    lake: CopyLake, changed: CopyWorld, at: str
) -> None:
    kill(lake, Failpoint.SEALED_BEFORE_EXECUTE)
    changed.expire_leases()
    point, _, count = at.partition("@")
    worker = start_worker(lake, failpoint=f"{point}=error@{count or 1}")
    assert worker.wait() == 1
    assert worker.reached()

    assert not changed.run().failed

    check_complete(changed)
    assert changed.slots() == MOVED_ASIDE


@on_disk
@pytest.mark.rotating
@pytest.mark.parametrize("at", [None, *OF_CLEANUP, rotating(f"{Failpoint.CLEANUP_REMOVED}@2")], ids=str)
def test_slots_are_removed_after_their_time_wherever_the_cleanup_is_killed(
    lake: CopyLake, changed: CopyWorld, at: str | None
) -> None:
    hasty = replace(lake, trash_keep_s=0.0).open_world()
    assert len(changed.attempts_left()) == len(lake.urns), "these have seven days"
    if at is None:
        assert not hasty.run().failed
    else:
        kill(hasty.lake, at)
        changed.expire_leases()

    assert not hasty.run().failed

    check_complete(changed)
    assert len(changed.attempts_left()) == len(lake.urns), "only the hasty ones are gone"
    assert not changed.slots()
    hasty.close()
