"""Rows in a bucket, and what only a bucket can do: uploads that vanish, strangers, ETags that say nothing, moves."""

import dataclasses
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from gobblin_assets.commit import cleanup
from gobblin_assets.commit.cleanup import Cleanup
from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.commit.published.verification import Damage, Fault, Verification, VerificationProgress
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.errors import CorruptionError, FencedError, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.fs.object_listings import LISTING_WORTH
from gobblin_assets.fs.objects import ObjectEntry, RemoveOutcome, UploadId
from gobblin_assets.fs.registry import REQUESTS_AT_ONCE, open_file_system, open_object_store
from gobblin_assets.fs.s3.object_files import S3ObjectFiles
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.dataset_reader import locate_files
from gobblin_assets.state.leases import Holder, Lease
from tests.crash.test_kills import kill_at, open_sequence
from tests.crash.test_moves import relocate
from tests.support.compacting import CompactingWorld, compact
from tests.support.kinds import DIRECTORIES, IN_A_STORE, OBJECTS
from tests.support.lake import JOB, Lake, World, make_root
from tests.support.s3_servers import S3Server

pytestmark = [pytest.mark.parametrize("lake", IN_A_STORE, indirect=True, ids="-".join), pytest.mark.turns(of=4)]


@pytest.fixture
def sealed(lake: Lake, world: World) -> SequenceId:
    """A sequence that was sealed, and of which nothing is published."""
    kill_at(lake, f"{Failpoint.SEAL_COMMITTED}=kill")
    world.expire_leases()
    return open_sequence(world)


def targets(world: World, sequence_id: SequenceId) -> list[str]:
    segments = list(world.stores.commits.read_segments(sequence_id))
    steps = [step for each in segments for step in decode_segment(each.payload, each.digest)]
    return [path for step in steps for path, _identity, _rows in step.published()]


def state_of(world: World, sequence_id: SequenceId) -> str:
    return world.stores.commits.get(sequence_id).state


def add_rows(lake: Lake) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, 5)


def verify(world: World) -> list[Fault]:
    stores, clock, job = world.stores, SystemClock(), JobName(JOB)
    progress = VerificationProgress(clock, lambda _line: None)
    verification = Verification(stores.commits, stores.published, open_file_system, world.lake.root, job, progress)
    states = stores.datasets.load(job, list(map(DatasetUrn, world.lake.urns))).values()
    return [fault for each in states for fault in verification.verify(each.urn, each.dataset_id, checksums=True).faults]


@pytest.mark.rotating
def test_an_upload_that_the_bucket_s_rules_removed_blocks_its_dataset_alone(
    lake: Lake, world: World, sealed: SequenceId
) -> None:
    store, root = open_object_store(lake.root, "destination")
    for upload in list(store.list_uploads(root)):
        if upload.path in targets(world, sealed):
            store.abort_upload(upload.path, upload.upload)

    report = world.run()

    (failed,) = report.failed
    assert failed.urn == world.stores.commits.get(sealed).urn
    assert "its upload is gone" in str(failed.error)
    assert state_of(world, sealed) == "BLOCKED"
    assert world.watermark(next(urn for urn in lake.urns if urn != failed.urn)) == 13
    world.operations().abandon(sealed, reason="read it again")
    assert not world.run().failed
    world.check_exactly_once()


@pytest.mark.rotating
def test_a_stranger_at_a_file_s_name_is_never_overwritten_and_never_removed(
    lake: Lake, world: World, sealed: SequenceId
) -> None:
    first, *others = targets(world, sealed)
    lake.files.write(first, b"mine")

    world.run()

    assert state_of(world, sealed) == "BLOCKED"
    world.operations().abandon(sealed, reason="give up")
    assert lake.files.read(first) == b"mine"
    assert not set(others) & set(world.stored_files())
    assert not world.run().failed
    assert [(fault.path, fault.damage) for fault in verify(world)] == [(first, Damage.UNKNOWN)]
    lake.files.remove(first)
    world.check_exactly_once()


@pytest.mark.rare
def test_files_whose_etags_nobody_knows_are_verified_retired_and_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ETags of a store that encrypts are none of the bytes."""
    monkeypatch.setattr("gobblin_assets.rows.attempt_files.expected_etag", lambda _parts: None)
    world.run()
    assert verify(world) == []

    assert not world.run(mode=Mode.REFRESH).failed

    world.run()
    world.check_exactly_once()
    assert verify(world) == []


def test_what_somebody_did_to_published_files_is_found(lake: Lake, world: World) -> None:
    world.run()
    files, published = lake.files, world.published_paths(lake.urns[0])
    content = files.read(published[1])
    files.remove(published[0])
    files.write(published[1], bytes(len(content)))
    files.write(published[2], content + b"x")
    stranger = f"{published[3].rpartition('/')[0]}/stranger.parquet"
    files.write(stranger, b"mine")

    found = {fault.path: fault.damage for fault in verify(world)}

    damages = (Damage.MISSING, Damage.REPLACED, Damage.LENGTH, Damage.UNKNOWN)
    assert found == dict(zip([*published[:3], stranger], damages, strict=True))


@pytest.mark.rotating
def test_uploads_that_became_files_are_not_aborted(lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for urn in lake.urns:
        lake.add_rows(urn, 60)
    aborted: list[str] = []
    abort = S3ObjectFiles.abort_upload

    def note(self: S3ObjectFiles, path: str, upload: UploadId) -> bool:
        aborted.append(path)
        return abort(self, path, upload)

    monkeypatch.setattr(S3ObjectFiles, "abort_upload", note)

    assert not world.run().failed

    assert not [path for path in aborted if "/rehearsal-" not in path]
    world.check_exactly_once()


def test_readers_ask_a_store_for_all_files_together(lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    urn = lake.urns[0]
    lake.add_rows(urn, 60)
    world.run()
    found = world.stores.published.find(JobName(JOB), DatasetUrn(urn), role=Role.DATA)
    assert found is not None
    segments = [dataclasses.replace(each, file_schema={"type": "struct", "fields": []}) for each in found.segments]
    looked: list[str] = []
    look = S3ObjectFiles.find_object

    def note(self: S3ObjectFiles, path: str) -> ObjectEntry | None:
        looked.append(path)
        return look(self, path)

    monkeypatch.setattr(S3ObjectFiles, "find_object", note)

    groups = locate_files(segments, JobName(JOB), DatasetUrn(urn), Role.DATA)

    published = world.published_paths(urn)
    assert len(published) > LISTING_WORTH
    assert sorted(uri for uris in groups.values() for uri in uris) == sorted(f"s3:/{path}" for path in published)
    assert looked == [min(published)]
    for change, said in ((b"", "is damaged"), (None, "is missing")):
        lake.files.remove(published[1])
        if change is not None:
            lake.files.write(published[1], change)
        with pytest.raises(CorruptionError, match=said):
            locate_files(segments, JobName(JOB), DatasetUrn(urn), Role.DATA)


@pytest.fixture
def replaced(lake: Lake, world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of a dataset that was read again; the next cleanup is to remove them."""
    urn = lake.urns[0]
    lake.add_rows(urn, 60)
    world.run()
    old = world.published_paths(urn)
    with monkeypatch.context() as patch:
        patch.setattr(PostgresCommitStepStore, "list_removable", lambda *_arguments, **_options: ())
        world.run(mode=Mode.REFRESH, urns=[urn])
    assert set(old) <= set(world.stored_files())
    return old


def clean(world: World) -> None:
    states = world.stores.datasets.load(JobName(JOB), list(map(DatasetUrn, world.lake.urns)))
    for state in states.values():
        world.operations().clean(state, root_uri=world.lake.root, retire_grace_s=0.0)


def test_replaced_files_are_removed_side_by_side(
    world: World, replaced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, under_way, most = threading.Lock(), [0], [0]
    remove = S3ObjectFiles.remove_object

    def note(self: S3ObjectFiles, path: str, etag: str) -> RemoveOutcome:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.02)
        with lock:
            under_way[0] -= 1
        return remove(self, path, etag)

    monkeypatch.setattr(S3ObjectFiles, "remove_object", note)
    clean(world)

    assert not set(replaced) & set(world.stored_files())
    assert 1 < most[0] <= REQUESTS_AT_ONCE
    world.check_exactly_once()


def test_a_removal_of_many_files_notices_that_the_dataset_was_taken_over(
    world: World, replaced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "REMOVED_TOGETHER", 4)
    remove, removed = S3ObjectFiles.remove_object, list[str]()

    def note(self: S3ObjectFiles, path: str, etag: str) -> RemoveOutcome:
        removed.append(path)
        return remove(self, path, etag)

    def require(lease: Lease) -> None:
        if set(removed) & set(replaced):
            raise FencedError("somebody else has the dataset", fence=lease.fence)

    monkeypatch.setattr(S3ObjectFiles, "remove_object", note)
    urn = DatasetUrn(world.lake.urns[0])
    dataset_id = world.stores.datasets.load(JobName(JOB), [urn])[urn].dataset_id
    leases = world.stores.leases.take([dataset_id], Holder("test", RunId(uuid.uuid4())), ttl_s=60.0)
    cleaning = Cleanup(world.stores.commits, open_file_system, lambda _attempt: None, require)
    with pytest.raises(FencedError):
        cleaning.clean(leases[0], root_uri=world.lake.root, retire_grace_s=0.0)

    assert len(set(replaced) & set(world.stored_files())) == len(replaced) - 4
    world.expire_leases()
    clean(world)
    world.check_exactly_once()


@pytest.mark.rare
def test_cleanup_again_and_again_takes_nothing_that_is_published(lake: Lake, world: World) -> None:
    world.run()
    add_rows(lake)
    kill_at(lake, f"{Failpoint.EVENTS_BEFORE_CLEANUP}=kill")
    world.expire_leases()
    before = set(world.stored_files())
    assert world.staging_left()

    for _again in range(2):
        clean(world)

    assert {path for path in before if "/.staging/" not in path} == set(world.stored_files())
    world.check_exactly_once()


@pytest.mark.rare
def test_a_compaction_is_refused_before_it_begins_and_a_run_goes_on_without(lake: Lake, world: World) -> None:
    world.run()
    add_rows(lake)
    compacting = CompactingWorld(lake)

    assert not compacting.run().failed

    assert sum("are published one by one" in line for line in compacting.lines) == len(lake.urns)
    compacting.close()
    with pytest.raises(RejectedError, match="can't be compacted"):
        compact(world, lake.urns[0])
    world.check_exactly_once()
    assert world.scalar("SELECT count(*) FROM gobblin.commit_sequence WHERE state <> 'DONE'") == 0


@pytest.fixture(params=[OBJECTS, DIRECTORIES])
def old_home(request: pytest.FixtureRequest, lake: Lake) -> Iterator[World]:
    """The lake in a bucket or on a disk, before it moves to another bucket."""
    here = lake
    if request.param == DIRECTORIES:
        here = dataclasses.replace(lake, destination=DIRECTORIES, store="")
        make_root(here)
    opened = World(here)
    yield opened
    opened.close()


@pytest.mark.rare
def test_a_job_moves_to_another_bucket_with_its_objects(old_home: World, lake: Lake, versitygw: S3Server) -> None:
    """Copies of objects get other ETags, and the names are the same."""
    here = old_home.lake
    assert not old_home.run().failed
    assert not old_home.run(mode=Mode.REFRESH).failed
    there = World(dataclasses.replace(here, destination=OBJECTS, store=f"s3://{versitygw.make_bucket()}"))
    with pytest.raises(RejectedError, match="are not at s3://"):
        relocate(old_home, there.lake.root)
    new_root = open_file_system(there.lake.root)[1]
    old_root = open_file_system(here.root)[1]
    for path in here.files.list_all():
        there.lake.files.write(new_root + path.removeprefix(old_root), here.files.read(path))

    relocate(old_home, there.lake.root)

    add_rows(here)
    assert not there.run().failed
    for urn in here.urns:
        assert there.rows_of(urn) == Counter(here.source_rows(urn))
    assert verify(there) == []
    assert not there.run(mode=Mode.REFRESH).failed
    there.run()
    for urn in here.urns:
        assert there.rows_of(urn) == Counter(here.source_rows(urn))
    assert verify(there) == []
    assert there.staging_left() == []
    with pytest.raises(RejectedError, match="the log has the job crash at"):
        old_home.run()
    there.close()
