"""The log of a dataset with several lanes, by any commit step store: Postgres and the simulated database alike."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.recovery import Recovered, recover_lanes
from gobblin_assets.commit.store import LaneView
from gobblin_assets.errors import ConflictError, FencedError, GobblinError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.urn import Role
from gobblin_assets.state.leases import Lease
from tests.contracts.test_lane_store import publish, two_lanes
from tests.support.commit_log import JOB, TTL_S, Built, LogWorld, move
from tests.support.file_systems import ADAPTERS
from tests.support.places import open_place

ALL = FoldBounds(keep=0, count_min=1, age_s=0.0, history_s=1_000.0, keep_marked=0)


def test_each_lane_has_an_open_sequence_and_a_version_of_its_own(log: LogWorld) -> None:
    first, second = two_lanes(log)
    topic = first.dataset_id
    built = [log.prepare(lease, moves=[move(None, 1, key=key)]) for lease, key in ((first, "a"), (second, "b"))]
    with pytest.raises(ConflictError, match="open"):
        log.commits.seal(log.build(second, moves=[]).order)

    records = {each.sequence_id: each for each in log.commits.find_unfinished(topic) if each.state.is_open}
    assert [(records[each.sequence_id].lane_id, records[each.sequence_id].lane_number) for each in built] == [
        (first.lane_id, 0),
        (second.lane_id, 1),
    ]
    assert log.commits.finish(built[1].sequence_id, fence=second.fence) == 1
    assert log.commits.finish(built[0].sequence_id, fence=first.fence) == 2
    third = publish(log, second, "b", 1, 2)

    found = log.commits.load_publications(built[1].sequence_id, built[0].sequence_id, third.sequence_id)
    assert [(each.version, each.lane_number, each.lane_version) for each in found] == [(1, 1, 1), (2, 0, 1), (3, 1, 2)]
    assert [lane.version for lane in log.lanes_of(topic)] == [1, 2]
    assert log.state_of(topic).version == 1, "that of lane 0"
    (sealed,) = log.commits.load_sealed(third.sequence_id)
    assert (sealed.lane_number, sealed.version, sealed.order.lane_id) == (1, 2, second.lane_id)
    view = log.published.find(JOB, log.names[topic][1], role=Role.DATA)
    assert view is not None
    assert (view.version, len(view.segments)) == (3, 3)
    assert set(log.commits.look_at(JOB, [topic], []).lanes) == {
        LaneView(topic, 0, 1, first.fence),
        LaneView(topic, 1, 2, second.fence),
    }


def test_a_seal_names_the_version_of_its_lane(log: LogWorld) -> None:
    first, second = two_lanes(log)
    built = log.build(second, moves=[])
    publish(log, first, "a", None, 10)
    with pytest.raises(ConflictError, match="version"):
        log.commits.seal(replace(built.order, base_version=1))

    log.commits.seal(built.order)
    assert log.commits.finish(built.sequence_id, fence=second.fence) == 2


def test_two_lanes_are_sealed_and_finished_at_once(log: LogWorld) -> None:
    leases = two_lanes(log)
    built = [log.build(lease, moves=[move(None, 1, key=str(lease.lane_id))]) for lease in leases]
    log.commits.seal(*(each.order for each in built))
    fences = {each.sequence_id: each.fence for each in built}

    versions = log.commits.finish_all(fences)

    assert sorted(versions.values()) == [1, 2], "no gap and no version twice"
    assert log.changes_nothing(lambda: log.commits.finish_all(fences))
    assert log.commits.finish_all(fences) == versions
    assert log.published.find(JOB, log.names[leases[0].dataset_id][1], role=Role.DATA).version == 2  # type: ignore[union-attr]  # it is there


def test_of_two_lanes_that_are_finished_at_once_one_that_is_fenced_stops_both(log: LogWorld) -> None:
    first, second = two_lanes(log)
    built = [log.prepare(lease, moves=[]) for lease in (first, second)]
    log.advance(TTL_S + 1)
    log.take_lane(second.lane_id)

    with pytest.raises(FencedError):
        log.commits.finish_all({each.sequence_id: each.fence for each in built})
    assert [lane.version for lane in log.lanes_of(first.dataset_id)] == [0, 0]
    assert log.commits.finish(built[0].sequence_id, fence=first.fence) == 1, "lane 0 is still its owner's"


def say(log: LogWorld, lease: Lease, **details: Any) -> None:
    built = log.build(lease, moves=[])
    log.commits.seal(replace(built.order, details=details))
    log.commits.finish(built.sequence_id, fence=lease.fence)


def test_lanes_add_to_the_columns_and_facts_of_each_other(log: LogWorld) -> None:
    first, second = two_lanes(log)
    say(log, first, source_columns=[["id", "int8"], ["at", "date"]], columns=[["id", "bigint"]], source_facts={"a": 1})
    say(log, second, source_columns=[["id", "int8"], ["new", "text"]], source_facts={"b": {"deep": [1]}})
    say(log, first, source_columns=[["id", "text"]], columns=[["x", "int"], ["id", "string"]], source_facts={"a": 2})
    say(log, second, source_columns=[], columns=[])
    say(log, second, notes="nothing about columns")

    state = log.state_of(first.dataset_id)
    assert state.source_columns is not None
    assert state.published_columns is not None
    assert list(state.source_columns.items()) == [("id", "text"), ("at", "date"), ("new", "text")]
    assert list(state.published_columns.items()) == [("id", "string"), ("x", "int")]
    assert state.source_facts == {"a": 2, "b": {"deep": [1]}}


def test_columns_of_lanes_that_are_finished_at_once_are_joined(log: LogWorld) -> None:
    leases = two_lanes(log)
    built = [log.build(lease, moves=[]) for lease in leases]
    for number, each in enumerate(built):
        details = {"columns": [["id", "bigint"], [f"of_{number}", "int"]], "source_facts": {f"fact_{number}": number}}
        log.commits.seal(replace(each.order, details=details))
    log.commits.finish_all({each.sequence_id: each.fence for each in built})

    state = log.state_of(leases[0].dataset_id)
    assert state.published_columns == {"id": "bigint", "of_0": "int", "of_1": "int"}
    assert state.source_columns is None
    assert state.source_facts == {"fact_0": 0, "fact_1": 1}


def test_a_dataset_with_one_lane_says_its_columns_anew(log: LogWorld) -> None:
    lease = log.take(log.register("orders"))
    say(log, lease, columns=[["id", "bigint"], ["gone", "int"]], source_facts={"a": 1})
    say(log, lease, columns=[["id", "bigint"]], source_facts={"b": 1})

    state = log.state_of(lease.dataset_id)
    assert (state.published_columns, state.source_facts) == ({"id": "bigint"}, {"b": 1})


def test_a_lane_acts_under_its_own_fence_alone(log: LogWorld) -> None:
    first, second = two_lanes(log)
    log.leases.release([second])
    for _time in range(3):
        second = log.take_lane(second.lane_id)
        log.leases.release([second])
    second = log.take_lane(second.lane_id)
    built = log.prepare(second, moves=[])

    assert log.commits.is_open_and_held(built.sequence_id, fence=second.fence)
    assert not log.commits.is_open_and_held(built.sequence_id, fence=first.fence)
    with pytest.raises(FencedError):
        log.commits.finish(built.sequence_id, fence=first.fence)
    with pytest.raises(FencedError):
        log.begin(replace(first, lane=second.lane))


def test_a_sequence_is_recoverable_when_its_lane_and_its_dataset_are_free(log: LogWorld) -> None:
    first, second = two_lanes(log)
    built = log.prepare(second, moves=[])

    def listed() -> list[Any]:
        found = log.commits.list_recoverable(jobs=[JOB], limit=9)
        assert log.commits.count_recoverable(jobs=None) == ({JOB: len(found)} if found else {})
        return [each.sequence_id for each in found]

    assert listed() == []
    log.leases.release([first])
    assert listed() == []
    log.leases.release([second])
    assert listed() == [built.sequence_id]
    log.take_lane(first.lane_id)
    assert listed() == [built.sequence_id], "another lane is held"
    log.advance(TTL_S + 1)
    whole = log.take(first.dataset_id)
    assert listed() == [], "it is held as a whole"
    log.leases.release([whole])
    assert listed() == [built.sequence_id]


# Cleaning and folding ------------------------------------------------------------------------------------------------


def test_attempts_are_cleaned_by_their_lane(log: LogWorld) -> None:
    first, second = two_lanes(log)
    mine, other = publish(log, first, "a", None, 1), publish(log, second, "b", None, 1)

    marked = log.commits.mark_for_cleanup({first.lane_id: first.fence}, limit=9)
    assert [(each.attempt_id, each.lane_id) for each in marked] == [(mine.attempt.attempt_id, first.lane_id)]

    both = {first.lane_id: first.fence, second.lane_id: second.fence}
    marked = log.commits.mark_for_cleanup(both, limit=1)
    assert {each.lane_id for each in marked} == set(both), "the limit is of each lane"
    with pytest.raises(FencedError):
        log.commits.mark_for_cleanup({first.lane_id: first.fence, second.lane_id: second.fence + 1}, limit=9)
    assert log.commits.list_attempts(other.sequence_id)[0].lane_id == second.lane_id


def test_replaced_files_are_lane_0_s_to_remove(log: LogWorld) -> None:
    first, second = two_lanes(log)
    publish(log, second, "b", None, 1)
    log.leases.release([first, second])
    whole = log.take(first.dataset_id)
    log.publish(whole, replaces=True, moves=[])

    assert len(log.commits.list_removable(first.lane_id, grace_s=0.0, limit=9)) == 1
    assert log.commits.list_removable(second.lane_id, grace_s=0.0, limit=9) == []


def tidy(log: LogWorld, *leases: Lease) -> None:
    for lease in leases:
        marked = log.commits.mark_for_cleanup({lease.lane_id: lease.fence}, limit=99)
        log.commits.mark_cleaned({attempt.attempt_id: lease.fence for attempt in marked})
    log.commits.mark_announced(*(each.sequence_id for each in log.commits.list_unannounced(job=JOB, limit=99)))


def sequences_of(log: LogWorld) -> set[Any]:
    return {row[0] for row in log.backing.list_rows("ledger", "sequence_id")}


def answers(log: LogWorld, dataset_id: DatasetId) -> tuple[Any, ...]:
    view = log.published.find(JOB, log.names[dataset_id][1], role=Role.DATA)
    assert view is not None
    files = sorted(str(file) for segment in view.segments for file in segment.files())
    return view.version, files, log.state_of(dataset_id), log.datasets.load_intervals(dataset_id, None)


def test_each_lane_folds_its_own_and_nobody_sees_a_difference(log: LogWorld) -> None:
    first, second = two_lanes(log)
    topic = first.dataset_id
    for number in range(3):
        publish(log, first, "a", number or None, number + 1)
        publish(log, second, "b", number or None, number + 1)
    # A key that came from another lane, and whose last publication is folded there.
    log.lanes.move(first, 1, ["a"])
    tidy(log, first, second)
    before = answers(log, topic)
    open_elsewhere = log.prepare(second, moves=[move(3, 4, key="a")])

    def fold(lease: Lease) -> int:
        return log.commits.fold(lease.lane_id, fence=lease.fence, bounds=ALL, limit=99)

    assert fold(second) == 0, "it has an open sequence"
    assert fold(first) == 3
    assert answers(log, topic) == before
    assert len(sequences_of(log)) == 4
    log.commits.finish(open_elsewhere.sequence_id, fence=second.fence)
    tidy(log, second)
    before = answers(log, topic)
    assert before[0] == 7
    assert fold(second) == 4
    assert answers(log, topic) == before
    assert len(sequences_of(log)) == 2
    with pytest.raises(FencedError):
        log.commits.fold(second.lane_id, fence=second.fence + 1, bounds=ALL, limit=9)
    publish(log, second, "a", 4, 5)


def test_a_lane_is_foldable_when_its_dataset_published_enough_since_its_last_fold(log: LogWorld) -> None:
    first, second = two_lanes(log)
    bounds = replace(ALL, count_min=2)

    def due() -> list[LaneId]:
        return list(log.commits.find_foldable(first.lane_id, second.lane_id, bounds=bounds))

    publish(log, first, "a", None, 1)
    assert due() == []
    publish(log, second, "b", None, 1)
    assert due() == [first.lane_id, second.lane_id]
    log.commits.mark_folded(first.lane_id, fence=first.fence, bounds=bounds)
    assert due() == [second.lane_id]


def test_a_lane_forgets_only_what_is_its_own(log: LogWorld) -> None:
    first, second = two_lanes(log)
    mine, other = (log.build(lease, moves=[]) for lease in (first, second))
    for built in (mine, other):
        log.commits.abort(built.sequence_id, fence=built.fence, error=None)
    log.advance(2_000.0)
    first, second = log.take_lane(first.lane_id), log.take_lane(second.lane_id)
    tidy(log, first, second)

    assert log.commits.forget(first.lane_id, fence=first.fence, bounds=ALL, limit=9) == 1
    assert set(log.commits.find_known([mine.sequence_id, other.sequence_id])) == {other.sequence_id}
    assert log.commits.forget(second.lane_id, fence=second.fence, bounds=ALL, limit=9) == 1


def whole_that_ran_out(log: LogWorld, **options: Any) -> tuple[Lease, Built, Lease]:
    """A lease of lane 1, what the holder of the whole sealed before its lease ran out, and a lease of lane 0."""
    first, second = two_lanes(log)
    publish(log, second, "b", None, 10)
    log.leases.release([first, second])
    built = log.prepare(log.take(first.dataset_id), **options)
    log.advance(TTL_S + 1)
    return log.take_lane(second.lane_id), built, log.take_lane(first.lane_id)


def test_a_lane_does_not_publish_what_an_open_sequence_of_another_lane_publishes(log: LogWorld) -> None:
    second, built, first = whole_that_ran_out(log, moves=[move(10, 20, key="b")])
    own = log.build(second, moves=[move(10, 15, key="b")])

    with pytest.raises(ConflictError, match="another lane"):
        log.commits.seal(own.order)
    publish(log, second, "c", None, 1)
    log.commits.finish(built.sequence_id, fence=first.fence)

    publish(log, second, "b", 20, 30)


def test_what_is_published_while_a_replacement_is_open_would_be_retired_by_it(log: LogWorld) -> None:
    second, built, first = whole_that_ran_out(log, replaces=True, moves=[])
    own = log.build(second, moves=[move(10, 20, key="b")])

    with pytest.raises(ConflictError, match="another lane"):
        log.commits.seal(own.order)
    log.publish(second, partition="2026", moves=[])
    log.commits.finish(built.sequence_id, fence=first.fence)

    log.publish(second, moves=[move(10, 20, key="b")])
    view = log.published.find(JOB, log.names[second.dataset_id][1], role=Role.DATA)
    assert view is not None
    assert len(view.segments) == 3, "that of the replacement, the other partition's, and what came after it"


def test_nothing_is_replaced_while_a_sequence_of_another_lane_is_open(log: LogWorld) -> None:
    first, second = two_lanes(log)
    built = log.prepare(second, moves=[move(None, 10, key="b")])
    log.leases.release([first, second])
    whole = log.take(first.dataset_id)

    with pytest.raises(ConflictError, match="another lane"):
        log.prepare(whole, replaces=True, moves=[])
    log.leases.release([whole])
    log.commits.finish(built.sequence_id, fence=log.take_lane(second.lane_id).fence)


def test_lanes_are_recovered_together_and_each_has_its_own_outcome(log: LogWorld) -> None:
    leases = [log.take_lane(lane_id) for lane_id in log.spread(log.register("topic"), 5)]
    log.begin(leases[0])
    sealed = log.prepare(leases[1], moves=[], segments=[])
    log.prepare(leases[2], moves=[])  # its files are nowhere
    log.block(log.prepare(leases[3], moves=[]))
    with TemporaryDirectory() as folder:
        place = open_place(min(ADAPTERS), Path(folder))

        def open_files(_uri: str) -> tuple[FileSystem, str]:
            return place.fs, place.root

        driver = Driver(log.commits, open_files, lambda _lease: None, sleep=lambda _seconds: None)
        abandonment = Abandonment(log.commits, open_files, lambda _attempt: None)
        building, finished, lost, blocked, idle = recover_lanes(driver, abandonment, leases)

    assert building == Recovered(aborted=1)
    assert isinstance(finished, Recovered)
    assert [each.sequence_id for each in finished.published] == [sealed.sequence_id]
    assert isinstance(lost, GobblinError)
    assert isinstance(blocked, Recovered)
    assert blocked.blocked is not None
    assert blocked.blocked.lane_number == 3
    assert idle == Recovered()
