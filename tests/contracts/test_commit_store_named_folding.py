"""Folding of publications at given names, by any commit step store: each name holds what it held before."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gobblin_assets.commit.folding import shorten_details
from gobblin_assets.commit.named_folding import NamedRun, choose_runs
from gobblin_assets.commit.published.current import list_current, sort_current
from gobblin_assets.commit.segment import encode_segments
from gobblin_assets.commit.sequence import SLOTS_KEEP_DETAIL
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.run.job_kind import FIGURES, HAS_ROWS
from gobblin_assets.state.leases import Lease
from tests.contracts.test_commit_store_folding import ORDERS, clean, fold
from tests.support.commit_log import JOB, Built, LogWorld, staged_of

OLD = FileIdentity(7, inode=7, mtime_ns=7)
Current = dict[str, tuple[FileIdentity, str, SequenceId]]


def start(log: LogWorld) -> Lease:
    return log.take(log.register(ORDERS))


def publish(
    log: LogWorld,
    lease: Lease,
    changes: dict[str, FileIdentity | None],
    *,
    partition: str = "",
    keep_s: float = 0.0,
    steps_max: int = 10_000,
    announced: bool = True,
) -> Built:
    """``changes``: by path, what the name holds afterwards; None: its file is removed."""
    new = replace(log.plan(lease, partition=partition), slots_keep_s=keep_s)
    log.commits.begin(new)
    attempt = log.register_attempt(new)
    steps: list[NamedStep] = []
    for number, (path, identity) in enumerate(changes.items()):
        place = (attempt.staging_path, path, str(number))
        if identity is None:
            steps.append(RemoveFile(*place, OLD))
        elif number % 2:
            steps.append(ReplaceFile(*place, "w0", identity, old=OLD, exchanges=True))
        else:
            steps.append(PlaceFile(*place, "w0", identity))
    segments = encode_segments(steps, role=Role.DATA, partition=partition, steps_max=steps_max)
    staged = staged_of(attempt, tuple(segments))
    log.commits.stage(staged)
    built = Built(lease, new, attempt, staged, log.order(new, [staged]))
    log.commits.seal(built.order)
    log.commits.finish(built.sequence_id, fence=lease.fence)
    if announced:
        log.commits.mark_announced(built.sequence_id)
    clean(log, lease)
    return built


def version_of(number: int) -> FileIdentity:
    return FileIdentity(100 + number, inode=number, mtime_ns=number)


def current_of(log: LogWorld) -> Current:
    """Each name's file, the partition and the sequence that published it last, by both ways to read them."""
    view = log.published.find(JOB, ORDERS, role=Role.DATA)
    assert view is not None
    found: Current = {}
    for segment, file in list_current(view.segments):
        found[file.path] = file.identity, segment.partition, file.publisher or segment.sequence_id
    whole = log.published.scan(JOB, ORDERS, role=Role.DATA, read=lambda version, each: (version, sort_current(each)))
    assert whole is not None
    assert whole[0] == view.version
    assert {path: whole[1].find(path) for path in found} == {path: each[0] for path, each in found.items()}
    return found


def count_segments(log: LogWorld) -> int:
    return len(log.backing.list_rows("segment", "segment_id"))


def count_rows(log: LogWorld) -> int:
    return sum(count for (count,) in log.backing.list_rows("segment", "step_count"))


def test_what_was_replaced_and_removed_leaves_the_log_and_nobody_sees_a_difference(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, {"/out/a": version_of(1), "/out/b": version_of(1), "/out/c": version_of(1)})
    for number in range(2, 7):
        built = publish(log, lease, {"/out/b": version_of(number)})
    removing = publish(log, lease, {"/out/c": None})
    before, state = current_of(log), log.state_of(lease.dataset_id)
    (newest,) = log.commits.load_publications(removing.sequence_id)
    assert before["/out/b"] == (version_of(6), "", built.sequence_id)
    assert before.keys() == {"/out/a", "/out/b"}

    assert fold(log, lease) == 7

    assert current_of(log) == before
    assert log.state_of(lease.dataset_id) == state
    (folded,) = log.commits.load_publications(removing.sequence_id)
    assert replace(folded, details={}, watermarks={}, rows_by_role={}) == replace(
        newest, details={}, watermarks={}, rows_by_role={}
    )
    assert log.backing.list_rows("segment", "step_count", "file_count", "sequence_id") == [(2, 2, removing.sequence_id)]
    assert len(log.backing.list_rows("past_sequence", "sequence_id")) == 6
    assert len(log.backing.list_rows("ledger", "ledger_id")) == 1
    assert log.commits.list_attempts(removing.sequence_id) == []
    assert fold(log, lease) == 0


def test_nothing_is_left_of_names_that_were_all_removed(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, {"/out/a": version_of(1)})
    publish(log, lease, {"/out/a": None})
    assert fold(log, lease) == 2
    assert (current_of(log), count_segments(log)) == ({}, 0)
    publish(log, lease, {"/out/a": version_of(3)})
    assert fold(log, lease) == 1
    assert current_of(log).keys() == {"/out/a"}


def test_what_is_kept_for_the_trash_waits_and_so_does_all_that_is_newer(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, {"/out/a": version_of(1)})
    kept = publish(log, lease, {"/out/a": version_of(2)}, keep_s=1_000.0)
    publish(log, lease, {"/out/b": version_of(3)})
    before = current_of(log)
    assert [fold(log, lease) for _time in range(2)] == [1, 0]
    assert current_of(log) == before
    assert len(log.commits.list_attempts(kept.sequence_id)) == 1

    log.advance(1_001.0)
    lease = log.take(lease.dataset_id)
    clean(log, lease)
    assert fold(log, lease) == 2
    assert current_of(log) == before


def test_what_was_not_announced_waits_and_so_does_all_that_is_newer(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, {"/out/a": version_of(1)}, partition="day 1")
    silent = publish(log, lease, {"/out/a": version_of(2)}, partition="day 2", announced=False)
    publish(log, lease, {"/out/a": version_of(3)}, partition="day 1")
    before = current_of(log)
    assert [fold(log, lease) for _time in range(2)] == [1, 0]
    log.commits.mark_announced(silent.sequence_id)
    assert fold(log, lease) == 2
    assert current_of(log) == before


def test_a_name_stays_with_the_partition_that_published_it_last(log: LogWorld) -> None:
    lease = start(log)
    for number, (partition, path) in enumerate(
        [("day 1", "/out/a"), ("day 1", "/out/b"), ("day 2", "/out/a"), ("day 1", "/out/c"), ("day 2", "/out/b")]
    ):
        publish(log, lease, {path: version_of(number)}, partition=partition)
        assert fold(log, lease) == 1
    found = current_of(log)
    assert {path: each[:2] for path, each in found.items()} == {
        "/out/a": (version_of(2), "day 2"),
        "/out/b": (version_of(4), "day 2"),
        "/out/c": (version_of(3), "day 1"),
    }
    publish(log, lease, {"/out/c": None}, partition="day 2")
    publish(log, lease, {"/out/a": None}, partition="day 1")
    assert [fold(log, lease, limit=1) for _time in range(3)] == [1, 1, 0]
    assert current_of(log).keys() == {"/out/b"}


def test_few_changes_do_not_write_a_large_fold_again(log: LogWorld) -> None:
    lease = start(log)
    publish(log, lease, {f"/out/{number:03}": version_of(1) for number in range(200)})
    assert fold(log, lease) == 1
    (large,) = log.backing.list_rows("segment", "segment_id")
    for number in range(2, 6):
        publish(log, lease, {"/out/007": version_of(number), f"/out/{number:03}": None})
        before = current_of(log)
        assert fold(log, lease) == 1
        assert current_of(log) == before
        assert large in log.backing.list_rows("segment", "segment_id")
    assert len(current_of(log)) == 196
    assert count_rows(log) < 210
    publish(log, lease, {f"/out/{number:03}": None for number in range(50, 200)})
    before = current_of(log)
    assert fold(log, lease) == 1
    assert current_of(log) == before
    assert (count_rows(log), count_segments(log)) == (46, 1)


@pytest.mark.parametrize("seed", range(3))
def test_random_publications_are_folded_again_and_again(log: LogWorld, seed: int) -> None:
    chance = random.Random(seed)
    lease = start(log)
    names = [f"/out/{directory}/{name}" for directory in ("a", "a-b", "b/c") for name in range(12)]
    for number in range(1, 25):
        some = chance.sample(names, chance.choice([1, 2, 30]))
        changes = {path: chance.choice([None, version_of(number)]) for path in some}
        publish(log, lease, changes, partition=chance.choice(["", "day 1", "day 2"]), steps_max=7)
        if not chance.randrange(4):
            before = current_of(log)
            folded = fold(log, lease, limit=chance.choice([1, 3, 99]))
            assert folded
            assert current_of(log) == before
    before = current_of(log)
    while fold(log, lease):
        assert current_of(log) == before
    assert len(before) <= count_rows(log) <= 3 * len(names)


def test_what_a_report_says_of_the_newest_publication_stays() -> None:
    told = {SLOTS_KEEP_DETAIL: 7.0, FIGURES: {"replaced": 3}, HAS_ROWS: False, "root_uri": "file:/out"}
    assert shorten_details({**told, "partition_facts": {"directories": {}}}) == told


def test_an_unchanged_run_is_joined_once_as_much_has_come_to_it() -> None:
    written, runs = 0, list[int]()
    for version in range(1, 1_001):
        chosen = choose_runs(1, _runs(runs))
        joined = 1 + sum(runs[len(runs) - len(chosen) :]) if chosen else 1
        runs[len(runs) - len(chosen) :] = [joined]
        written += joined
        assert sum(runs) == version
    assert len(runs) <= 10
    assert written < 1_000 * 12


def _runs(sizes: Sequence[int]) -> list[NamedRun]:
    return [NamedRun(version, size) for version, size in enumerate(sizes)]
