"""Where jobs publish, as Postgres and the simulated log record it, and the file that identifies the place."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from gobblin_assets.commit.destination import IDENTITY_NAME, Move, make_identity, read_identity, require_identity
from gobblin_assets.errors import ConflictError, CorruptionError, FencedError, RetryableError
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from tests.support.commit_log import JOB, ROOT_URI, LogWorld
from tests.support.places import Place

OTHER = JobName("web")


def _move(old_uris: tuple[str, ...] = (ROOT_URI,), *, old: str = "/lake", new: str = "/mnt/new") -> Move:
    return Move(JOB, old_uris, old, f"file://{new}", new, "new")


def test_a_job_is_bound_once(log: LogWorld) -> None:
    assert log.destinations.find(JOB) is None
    first = log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    assert (first.job, first.root_uri, first.identity, first.has_published) == (JOB, ROOT_URI, "a", False)
    assert log.changes_nothing(lambda: log.destinations.bind(JOB, root_uri="file:///other", identity="b"))
    assert log.destinations.find(JOB) == first
    log.destinations.bind(OTHER, root_uri=ROOT_URI, identity="a")
    assert [each.job for each in log.destinations.list_all()] == [JOB, OTHER]


def test_an_identity_changes_only_while_nothing_is_published(log: LogWorld) -> None:
    log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    dataset_id = log.register("orders")
    found = log.destinations.identify(JOB, old="a", root_uri=ROOT_URI, identity="b")
    assert found.identity == "b"
    assert log.destinations.identify(JOB, old="a", root_uri=ROOT_URI, identity="c").identity == "b"

    prepared = log.prepare(log.take(dataset_id))
    assert log.destinations.identify(JOB, old="b", root_uri=ROOT_URI, identity="c").identity == "b"
    assert log.destinations.find(JOB) == log.destinations.identify(JOB, old="b", root_uri=ROOT_URI, identity="c")
    log.commits.finish(prepared.sequence_id, fence=prepared.fence)
    found = log.destinations.identify(JOB, old="b", root_uri=ROOT_URI, identity="c")
    assert (found.identity, found.has_published) == ("b", True)
    log.destinations.bind(OTHER, root_uri=ROOT_URI, identity="b")
    assert [each.has_published for each in log.destinations.list_all()] == [True, False]


def test_what_is_given_up_is_not_published(log: LogWorld) -> None:
    log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    lease = log.take(log.register("orders"))
    built = log.build(lease)
    log.commits.abort(built.sequence_id, fence=lease.fence, error="no")
    found = log.destinations.find(JOB)
    assert found is not None
    assert not found.has_published


def test_the_log_is_looked_at_in_one_moment(log: LogWorld) -> None:
    orders, lines = log.register("orders"), log.register("lines")
    done = log.publish(log.take(orders))
    view = log.commits.look_at(JOB, [orders, lines], [done.sequence_id])
    assert view.binding is None
    assert {(lane.dataset_id, lane.number): lane.version for lane in view.lanes} == {(orders, 0): 1, (lines, 0): 0}
    assert view.known[done.sequence_id].state is SequenceState.DONE
    binding = log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    assert log.commits.look_at(JOB, [orders], []).binding == binding
    assert log.commits.load_sealed(done.sequence_id)[0].destination == "a"


def test_the_newest_segment_with_files_is_found(log: LogWorld) -> None:
    dataset_id = log.register("orders")
    assert log.commits.find_newest_segment(dataset_id) is None
    lease = log.take(dataset_id)
    log.publish(lease)
    newest = log.publish(lease)
    log.publish(lease, segments=())
    log.prepare(lease)
    found = log.commits.find_newest_segment(dataset_id)
    assert found is not None
    assert [found.segment_id] == list(newest.staged.segment_ids)
    assert [rows for _path, _identity, rows in found.files()] == [3]


def test_a_move_takes_all_of_a_job_and_nothing_else(log: LogWorld) -> None:
    binding = log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    orders, web = log.register("orders"), log.register("orders", job=OTHER)
    log.destinations.bind(OTHER, root_uri=ROOT_URI, identity="a")
    lease = log.take(orders)
    log.publish(lease)
    replaced = log.publish(log.take(web))
    log.publish(lease, replaces=True)

    log.destinations.move(_move(), expected=binding, fences={orders: lease.fence})
    assert log.changes_nothing(lambda: log.destinations.move(_move(), expected=binding, fences={orders: lease.fence}))

    assert log.destinations.list_roots(JOB) == ["file:///mnt/new"]
    assert log.destinations.list_roots(OTHER) == [ROOT_URI]
    found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
    assert found is not None
    (segment,) = found.segments
    (file,) = segment.files()
    assert segment.root_uri == "file:///mnt/new"
    assert file.path.startswith("/mnt/new/shop/orders/")
    assert (file.identity.size_bytes, file.identity.inode) == (100, None)
    (retired,) = log.commits.list_removable(orders, grace_s=0.0, limit=10)
    assert [path.startswith("/mnt/new/shop/orders/") for path, _identity, _rows in retired.files()] == [True]
    others = log.published.find(OTHER, DatasetUrn("orders"), role=Role.DATA)
    assert others is not None
    assert [file.path for each in others.segments for file in each.files()] == [
        f"/lake/shop/orders/{replaced.sequence_id.hex}-0/part-0.parquet"
    ]
    attempts = log.commits.mark_for_cleanup({orders: lease.fence}, limit=10)
    assert attempts
    assert all(each.staging_path.startswith("/mnt/new/shop/.staging/") for each in attempts)


def test_what_moved_twice_is_where_it_went_last(log: LogWorld) -> None:
    binding = log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    orders = log.register("orders")
    lease = log.take(orders)
    log.publish(lease)
    log.destinations.move(_move(), expected=binding, fences={orders: lease.fence})
    moved = log.destinations.find(JOB)
    assert moved is not None
    again = _move(("file:///mnt/new",), old="/mnt/new", new="/third")
    log.destinations.move(again, expected=moved, fences={orders: lease.fence})
    found = log.published.find(JOB, DatasetUrn("orders"), role=Role.DATA)
    assert found is not None
    assert [file.path.split("/")[1] for each in found.segments for file in each.files()] == ["third"]


@pytest.mark.parametrize("reason", ["fence", "unheld", "open", "building", "changed"])
def test_a_move_is_refused_while_anything_is_under_way(log: LogWorld, reason: str) -> None:
    binding = log.destinations.bind(JOB, root_uri=ROOT_URI, identity="a")
    orders = log.register("orders")
    lease = log.take(orders)
    fences: dict[DatasetId, int] = {orders: lease.fence}
    if reason == "fence":
        log.take_over(orders)
    elif reason == "unheld":
        log.register("lines")
    elif reason == "open":
        log.prepare(lease)
    elif reason == "building":
        log.build(lease)
    else:
        log.destinations.identify(JOB, old="a", root_uri=ROOT_URI, identity="b")

    def refused() -> None:
        with pytest.raises(FencedError if reason == "fence" else ConflictError):
            log.destinations.move(_move(), expected=binding, fences=fences)

    assert log.changes_nothing(refused)


def test_a_root_gets_one_identity_whoever_makes_it(place: Place) -> None:
    assert read_identity(place.fs, place.root) is None
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _number: make_identity(place.fs, place.root, uuid.uuid4()), range(8)))
    assert set(made) == {read_identity(place.fs, place.root)}
    assert place.list_all() == [IDENTITY_NAME]
    require_identity(place.fs, place.root, made[0])
    require_identity(place.fs, place.root, None)
    for wrong in (lambda: require_identity(place.fs, place.root, uuid.uuid4().hex), lambda: _require_gone(place)):
        with pytest.raises(RetryableError, match="has gone away"):
            wrong()


def _require_gone(place: Place) -> None:
    identity = read_identity(place.fs, place.root)
    place.remove(place.at(IDENTITY_NAME))
    require_identity(place.fs, place.root, identity)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"identity": 5}', b'{"identity": "x"}'])
def test_a_file_that_says_nothing_is_an_error_and_is_never_replaced(place: Place, content: bytes) -> None:
    path = place.write(place.at(IDENTITY_NAME), content)
    for look in (
        lambda: read_identity(place.fs, place.root),
        lambda: make_identity(place.fs, place.root, uuid.uuid4()),
    ):
        with pytest.raises(CorruptionError, match="does not say which destination"):
            look()
    assert place.read(path) == content
