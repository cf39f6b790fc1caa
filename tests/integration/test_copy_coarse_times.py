"""A destination that keeps times in coarse steps, as old ext4, exFAT and network mounts do: what is there stays."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.running import list_copy_datasets, open_copy_run
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.run.dry_run import PlannedSlice, plan_dry
from gobblin_assets.run.run_values import RunRequest
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, CopyWorld, Open, files_of, inodes_of

pytestmark = pytest.mark.turns(of=8)

job = copy_lake.job

_S_NS = 1_000_000_000
_LATER_NS = 1_700_000_001 * _S_NS
_SYSTEMS_UTIME = os.utime


def keep_steps(patch: pytest.MonkeyPatch, step_ns: int, *, rounds: bool = False) -> None:
    """Let this process's files have such times."""

    def utime(file: Any, *, ns: tuple[int, int]) -> None:
        more = step_ns // 2 if rounds else 0
        _SYSTEMS_UTIME(file, ns=(ns[0], (ns[1] + more) // step_ns * step_ns))

    patch.setattr(os, "utime", utime)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("step_ns", [1, 100, 1_000, 1_000_000, 10_000_000, _S_NS, 2 * _S_NS])
def test_the_steps_of_times_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ns: int, rounds: bool
) -> None:
    keep_steps(monkeypatch, step_ns, rounds=rounds)

    assert PosixNamedFiles().find_time_step(str(tmp_path)) == step_ns
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_made_times_count_as_exact(tmp_path: Path) -> None:
    assert PosixNamedFiles().find_time_step(str(tmp_path / "missing")) == 1


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    for number, path in enumerate(sorted(made.source.rglob("*"))):
        _SYSTEMS_UTIME(path, ns=(_LATER_NS, _LATER_NS + 123_456_789 + number))
    return made


def plan(world: CopyWorld) -> list[PlannedSlice]:
    job = world.lake.copy_job()
    request = RunRequest(job, dict.fromkeys(list_copy_datasets(job), (WHOLE,)), Mode.APPEND, by_hand=True)
    with open_copy_run(job, world.stores, world.lines.append, lambda _report: None) as ports:
        return plan_dry(request, world.stores.datasets, ports.kind, ports.clock, ports.say)


def test_a_time_that_the_destination_makes_another_one_is_refused(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ext4 does with times before 1901: the file would differ at each run."""
    monkeypatch.setattr(os, "utime", lambda file, *, ns: _SYSTEMS_UTIME(file, ns=(ns[0], ns[1] + 2 * _S_NS)))

    report = job({"transfer": "local", "workers": 1}).run()

    said = {each.urn: str(each.error) for each in report.failed}
    assert sorted(said) == ["albums", "logs/app"]
    assert "kept.bin: preserve: can't set the time 2023-11-14T22:13:21+00:00 of " in said["albums"]
    assert "its file system makes it 2023-11-14T22:13:23+00:00" in said["albums"]
    assert {each.error_family for each in report.failed} == {ErrorFamily.REJECTED}
    assert files_of(lake.tree) == {}


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("options", [{}, {"attributes": "sync"}], ids=["left", "synced"])
def test_what_is_there_is_not_copied_again(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    keep_steps(monkeypatch, _S_NS)
    world = job({"transfer": "local", "workers": 1}, **options)
    assert not world.run().failed
    before = inodes_of(lake.tree)
    assert (lake.tree / "albums/kept.bin").stat().st_mtime_ns == _LATER_NS

    assert [each.changes for each in plan(world)] == [(), ()]
    assert not world.run().failed
    assert inodes_of(lake.tree) == before

    _SYSTEMS_UTIME(lake.source / "albums/kept.bin", ns=(_LATER_NS, _LATER_NS + _S_NS))
    assert [[change.path for change in each.changes] for each in plan(world)] == [["kept.bin"], []]


def write_in_steps(path: Path, content: bytes, step_ns: int) -> None:
    """As a file system with such steps has it."""
    path.write_bytes(content)
    _SYSTEMS_UTIME(path, ns=(0, time.time_ns() // step_ns * step_ns))


def wait_for_a_step(step_ns: int) -> None:
    while time.time_ns() % step_ns > step_ns // 20:
        time.sleep(0.005)


@pytest.mark.core
def test_a_file_that_is_written_again_within_its_step_is_copied_again(lake: CopyLake, job: Open) -> None:
    step_ns = 2 * _S_NS
    path, world = lake.source / "albums/kept.bin", job({"transfer": "local", "workers": 1})
    wait_for_a_step(step_ns)
    write_in_steps(path, b"one", step_ns)
    assert not world.run().failed
    write_in_steps(path, b"two", step_ns)

    assert not world.run().failed

    assert (lake.tree / "albums/kept.bin").read_bytes() == b"two"
    world.check_trees()


def test_so_is_one_of_exact_times_where_the_destination_has_steps(
    lake: CopyLake, job: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_steps(monkeypatch, _S_NS, rounds=True)
    path, world = lake.source / "albums/kept.bin", job({"transfer": "local", "workers": 1})
    path.write_bytes(b"one")
    assert not world.run().failed
    path.write_bytes(b"two")

    assert not world.run().failed

    assert (lake.tree / "albums/kept.bin").read_bytes() == b"two"


def test_what_somebody_else_copied_within_the_step_is_not_trusted(lake: CopyLake, job: Open) -> None:
    """The source may have another version of this time since."""
    wait_for_a_step(2 * _S_NS)
    for path, content in ((lake.source, b"two"), (lake.tree, b"one")):
        (path / "albums").mkdir(parents=True, exist_ok=True)
        write_in_steps(path / "albums/kept.bin", content, 2 * _S_NS)

    assert not job({"transfer": "local", "workers": 1}).run().failed

    assert (lake.tree / "albums/kept.bin").read_bytes() == b"two"


def test_a_copy_that_is_written_in_place_within_its_step_is_no_longer_ours(lake: CopyLake, job: Open) -> None:
    world = job({"transfer": "local", "workers": 1}, deletes="ours")
    wait_for_a_step(2 * _S_NS)
    write_in_steps(lake.source / "albums/kept.bin", b"one", 2 * _S_NS)
    assert not world.run().failed
    write_in_steps(lake.tree / "albums/kept.bin", b"two", 2 * _S_NS)
    (lake.source / "albums/kept.bin").unlink()

    assert not world.run().failed

    assert (lake.tree / "albums/kept.bin").read_bytes() == b"two"
