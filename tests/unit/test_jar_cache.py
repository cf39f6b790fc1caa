"""Which process may fetch jars, tested with real processes: a file's lock holds only between processes."""

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.spark.java import fetching_alone

SPAWN = multiprocessing.get_context("spawn")
WAIT_S = 150


def conf_of(cache: Path, packages: str = "org.example:driver:1") -> dict[str, str]:
    return {"spark.jars.ivy": str(cache), "spark.jars.packages": packages}


def hold(cache: Path, held: Event, release: Event) -> None:
    with fetching_alone(conf_of(cache)):
        held.set()
        release.wait(WAIT_S)


def fetch(cache: Path, waiting: Event, done: Event) -> None:
    with fetching_alone(conf_of(cache), lambda _line: waiting.set()):
        done.set()


def test_a_second_process_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    held, release, waiting, done = (SPAWN.Event() for _ in range(4))
    first = SPAWN.Process(target=hold, args=(tmp_path, held, release))
    second = SPAWN.Process(target=fetch, args=(tmp_path, waiting, done))
    first.start()
    assert held.wait(WAIT_S)
    second.start()
    assert waiting.wait(WAIT_S)
    assert not done.is_set()
    release.set()
    assert done.wait(WAIT_S)
    for each in (first, second):
        each.join(WAIT_S)
        assert each.exitcode == 0


def test_what_was_fetched_is_never_waited_for_again(tmp_path: Path) -> None:
    with fetching_alone(conf_of(tmp_path)):
        pass
    # The lock is not taken: the same process would wait for itself.
    with fetching_alone(conf_of(tmp_path)), fetching_alone(conf_of(tmp_path)):
        pass


def test_a_failed_fetch_is_none(tmp_path: Path) -> None:
    with pytest.raises(RejectedError), fetching_alone(conf_of(tmp_path)):
        raise RejectedError("Maven has no such jar", field="spark.capabilities", hint="Correct it.")
    said: list[str] = []
    with fetching_alone(conf_of(tmp_path), said.append):
        assert not list(tmp_path.glob("gobblin-fetched-*"))
    assert len(list(tmp_path.glob("gobblin-fetched-*"))) == 1
    assert said == []


def test_a_cache_that_can_not_be_made_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with fetching_alone(conf_of(tmp_path / "file" / "cache")):
        pass


def test_without_packages_nothing_is_touched(tmp_path: Path) -> None:
    with fetching_alone(conf_of(tmp_path / "cache", packages="")):
        assert not (tmp_path / "cache").exists()
