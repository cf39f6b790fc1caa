"""Copies of datasets by the ledger of the job that publishes them: exactly its active files, at one version."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.failpoints import Failpoint
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.source_ledger import VERSIONS_TRIED_MAX, LedgerFiles, LedgerOfLog
from gobblin_assets.jobs.copy.worker import CopyWorker
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.job_kind import Staged, WorkOrder
from gobblin_assets.run.run_values import DatasetReport
from tests.support.copy_lake import CopyWorld
from tests.support.kinds import OBJECTS
from tests.support.lake import Rows, World, start_worker
from tests.support.ledger_copies import URN, KeptLake, Mirror, make_mirror, path_below, read_directory
from tests.support.s3_servers import S3Server
from tests.support.shares import often, rotating

pytestmark = pytest.mark.turns(of=6)

ROWS = 13


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> KeptLake:
    made = KeptLake(database_url, str(tmp_path), lease_ttl_s=2.0)
    Path(made.root).mkdir()
    for urn in made.urns:
        made.add_rows(urn, ROWS)
    return made


@pytest.fixture
def world(lake: KeptLake) -> Iterator[World]:
    opened = lake.open_world()
    yield opened
    opened.close()


@pytest.fixture
def mirror(lake: KeptLake) -> Mirror:
    return make_mirror(lake)


@pytest.fixture
def copy(mirror: Mirror) -> Iterator[CopyWorld]:
    opened = mirror.open_world()
    yield opened
    opened.close()


@pytest.fixture
def published(world: World) -> World:
    """The first lake, once it has published."""
    assert not world.run().failed
    return world


def refresh(lake: KeptLake, *, grace_s: float = 3_600.0) -> None:
    """Publish all rows again; without grace, the files of before are gone at once."""
    lake.add_rows(URN, 2)
    opened = replace(lake, retire_grace_s=grace_s).open_world()
    assert not opened.run(mode=Mode.REFRESH, urns=[URN]).failed
    opened.close()


def source_rows(lake: KeptLake) -> Rows:
    return Counter(lake.source_rows(URN))


def find(reports: tuple[DatasetReport, ...], urn: str = URN) -> DatasetReport:
    return next(each for each in reports if each.urn == urn)


def copy_well(copy: CopyWorld) -> DatasetReport:
    report = copy.run()
    assert not report.failed, [each.error for each in report.failed]
    return find(report.datasets)


def find_version(copy: CopyWorld) -> int:
    found = copy.stores.published.find(JobName("crash"), DatasetUrn(URN), role=Role.DATA)
    assert found is not None
    return found.version


@pytest.mark.core
def test_a_copy_has_the_active_files_of_one_version_and_no_others(
    lake: KeptLake, world: World, mirror: Mirror, copy: CopyWorld
) -> None:
    note = copy_well(copy).notes[0]
    assert note == "the job crash has published nothing of orders yet"
    assert not mirror.rows()

    assert not world.run().failed
    first = copy_well(copy)
    assert mirror.rows() == source_rows(lake)
    assert f"by the ledger of the job crash: version {find_version(copy)} of orders" in first.notes[0]

    lake.add_rows(URN, 5)
    assert not world.run(mode=Mode.REFRESH).failed
    listed = read_directory(Path(lake.root) / path_below("crash", URN))
    assert listed == source_rows(lake) + Counter(lake.source_rows(URN)[:13]), "a listing has what was retired, too"
    second = copy_well(copy)
    assert mirror.rows() == source_rows(lake)
    assert second.publication is not None
    assert second.publication.watermarks["version"][1] == str(find_version(copy))
    third = copy_well(copy)
    assert third.publication is not None
    assert third.publication.file_count == 0
    assert third.publication.watermarks == {"version": (str(find_version(copy)),) * 2}


@pytest.mark.core
def test_a_lake_in_a_bucket_is_copied_by_its_ledger(
    lake: KeptLake, versitygw: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in versitygw.environment.items():
        monkeypatch.setenv(name, value)
    stored = replace(
        lake, destination=OBJECTS, store=f"s3://{versitygw.make_bucket()}", environment=versitygw.environment
    )
    source, mirror = stored.open_world(), make_mirror(stored)
    copy = mirror.open_world()
    for _time in range(2):
        assert not source.run(mode=Mode.REFRESH).failed
        copy_well(copy)
        assert mirror.rows() == source_rows(lake)
        lake.add_rows(URN, 2)
    source.close()
    copy.close()


def fail(copy: CopyWorld) -> DatasetReport:
    report = copy.run(urns=[URN])
    assert report.failed
    return find(report.datasets)


@pytest.mark.parametrize("without_deletes", [False, True])
def test_a_dataset_that_became_empty_is_emptied_without_a_confirmation(
    lake: KeptLake, published: World, mirror: Mirror, *, without_deletes: bool
) -> None:
    made = replace(mirror, options={**mirror.options, "defaults": {"manifest": {"job": "crash"}}})
    opened = (made if without_deletes else mirror).open_world()
    copy_well(opened)
    lake.source_of(URN).write_text("", encoding="utf-8")
    assert not published.run(mode=Mode.REFRESH).failed
    copy_well(opened)
    assert bool(mirror.rows()) is without_deletes
    opened.close()


def test_files_that_are_cleaned_while_they_are_listed_are_those_of_a_newer_version(
    lake: KeptLake, published: World, mirror: Mirror, copy: CopyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [2, VERSIONS_TRIED_MAX + 1]
    read = LedgerOfLog.read

    def read_and_clean(ledger: LedgerOfLog, dataset: CopyDatasetSpec) -> LedgerFiles | None:
        found = read(ledger, dataset)
        if times[0] > 0 and dataset.urn == URN:
            times[0] -= 1
            refresh(lake, grace_s=0)
        return found

    monkeypatch.setattr(LedgerOfLog, "read", read_and_clean)
    copy_well(copy)
    assert mirror.rows() == source_rows(lake)
    times.pop(0)
    failed = fail(copy)
    assert failed.error_family is ErrorFamily.RETRYABLE
    assert "retire_grace_s" in str(failed.error)


def test_files_that_are_cleaned_while_they_are_copied_are_left_to_a_later_run(
    lake: KeptLake, published: World, mirror: Mirror, copy: CopyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = CopyWorker.do

    def clean_and_do(worker: CopyWorker, order: WorkOrder) -> Staged:
        refresh(lake, grace_s=0)
        return do(worker, order)

    with monkeypatch.context() as patched:
        patched.setattr(CopyWorker, "do", clean_and_do)
        assert fail(copy).error_family is ErrorFamily.RETRYABLE
        assert not mirror.rows()
    copy_well(copy)
    assert mirror.rows() == source_rows(lake)


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("harm", [lose, cut, link])
def test_a_file_that_the_ledger_has_and_the_source_lacks_is_no_silent_loss(
    lake: KeptLake, published: World, mirror: Mirror, copy: CopyWorld, harm: Callable[[Path], None]
) -> None:
    harm(Path(published.published_paths(URN)[0]))
    skipping = {**mirror.options["defaults"], "links": "skip"}
    copy.lake = replace(mirror, options={**mirror.options, "defaults": skipping})
    failed = fail(copy)
    assert failed.error_family is ErrorFamily.CORRUPTION
    assert "published file" in str(failed.error)
    assert not mirror.rows()


def test_a_ledger_of_another_log_is_refused_and_the_directory_can_be_listed(
    lake: KeptLake, published: World, mirror: Mirror
) -> None:
    refresh(lake)
    # What a job of another log has published looks so.
    (Path(lake.root) / "other" / "data").mkdir(parents=True)
    (Path(lake.root) / path_below("crash", URN)).rename(Path(lake.root) / path_below("other", URN))
    opened = mirror.write_manifest(job="other").open_world()
    failed = fail(opened)
    opened.close()
    assert failed.error_family is ErrorFamily.REJECTED
    assert "this log knows no job other" in str(failed.error)
    assert "by: listing" in str(failed.error)

    opened = mirror.write_manifest(job="other", by="listing").open_world()
    assert not opened.run(urns=[URN]).failed
    opened.close()
    copied = read_directory(mirror.tree / path_below("other", URN))
    assert copied == source_rows(lake) + Counter(lake.source_rows(URN)[:ROWS])


def test_a_source_that_is_not_where_the_job_publishes_is_refused(
    lake: KeptLake, published: World, mirror: Mirror, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    opened = replace(mirror, options={**mirror.options, "source": str(tmp_path / "elsewhere")}).open_world()
    assert f"the job crash publishes to file://{lake.root}" in str(fail(opened).error)
    opened.close()


@pytest.mark.parametrize(
    ("point", "count"),
    [
        often(Failpoint.STAGE_COMMITTED, 1),
        often(Failpoint.STEP_AFTER, 2),
        *(rotating(point, 1) for point in (Failpoint.SEAL_COMMITTED, Failpoint.FINISHED_BEFORE_EVENTS)),
    ],
)
def test_a_copy_that_is_killed_becomes_that_of_the_version_of_then(
    lake: KeptLake, published: World, mirror: Mirror, copy: CopyWorld, point: Failpoint, count: int
) -> None:
    copy_well(copy)
    refresh(lake)
    worker = start_worker(mirror, failpoint=f"{point}=kill@{count}")
    assert worker.wait() == -signal.SIGKILL
    refresh(lake, grace_s=0)
    copy.expire_leases()
    copy_well(copy)
    assert mirror.rows() == source_rows(lake)


@pytest.mark.every_run
@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"datasets": [{"urn": URN, "path": "a"}]}, "datasets[0].path"),
        ({"datasets": [{"urn": URN, "include": ["*.parquet"]}]}, "datasets[0].include"),
        ({"datasets": [{"urn": URN, "files_per_run_max": 5}]}, "datasets[0].files_per_run_max"),
        ({"datasets": [{"urn": URN, "converters": ["gzip"]}]}, "datasets[0].converters"),
        ({"datasets": [{"urn": URN, "on_change": "leave_out"}]}, "datasets[0].on_change"),
        ({"datasets": [{"urn": URN, "manifest": {"job": "a/b"}}]}, "datasets[0].manifest.job"),
        ({"bytes_per_run_max": 5}, "bytes_per_run_max"),
        ({"source": "gs://bucket/lake"}, "source"),
        ({"datasets": [], "finder": {"kind": "glob"}}, "defaults.manifest"),
    ],
)
def test_what_would_copy_less_than_a_version_is_refused(mirror: Mirror, options: dict[str, Any], field: str) -> None:
    with pytest.raises(RejectedError) as caught:
        replace(mirror, options={**mirror.options, **options}).copy_job()
    assert caught.value.field == field
    assert caught.value.hint
