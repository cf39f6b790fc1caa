"""Copies beside jobs of rows: neither publishes into the other's destination, and a copy of one is no such thing."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import ErrorFamily, RejectedError
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, files_of, look_at, opening
from tests.support.database_pool import DatabasePool
from tests.support.kinds import OBJECTS
from tests.support.lake import Lake, make_lake
from tests.support.object_lake import ObjectLake
from tests.support.postgres import migrated_database
from tests.support.s3_servers import S3Server

pytestmark = pytest.mark.turns(of=8)

job = copy_lake.job


ROWS = "numbered_rows"


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    made.tree.mkdir()
    return made


@dataclass(frozen=True)
class RowLake(Lake):
    """Rows whose source lies beside the source of the copies."""

    def source_of(self, urn: str) -> Path:
        return Path(self.directory, "rows", f"{self.urns.index(urn)}.jsonl")


def rows_at(lake: CopyLake, at: str) -> Lake:
    Path(lake.directory, at).mkdir(exist_ok=True)
    made = RowLake(lake.database_url, lake.directory, kind=ROWS, at=at, job_name="rows")
    for urn in made.urns:
        made.add_rows(urn, 13)
    return made


def run_rows(lake: Lake) -> None:
    world = lake.open_world()
    try:
        assert not world.run().failed
    finally:
        world.close()


@pytest.mark.parametrize("at", ["lake", "."])
def test_no_tree_lies_in_a_destination_of_rows(lake: CopyLake, job: Open, at: str) -> None:
    run_rows(rows_at(lake, at))
    originals = look_at(lake.tree)

    with pytest.raises(RejectedError, match=r"destination: .* where a job publishes rows"):
        job().run()

    assert look_at(lake.tree) == originals


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("include", [(), ("*.bin", "*.log")])
@pytest.mark.parametrize("to", ["", "shop", "shop/albums"])
def test_a_destination_of_rows_in_the_tree_is_left_alone(
    lake: CopyLake, job: Open, to: str, include: tuple[str, ...]
) -> None:
    run_rows(rows_at(lake, "lake/shop"))
    originals = look_at(lake.tree)

    report = job(
        {"datasets": [{"urn": "albums", "to": to}, {"urn": "logs/app"}] if to else [{"urn": "albums", "to": to}]},
        deletes="all",
        include=include,
    ).run()

    (failed,) = report.failed
    assert (failed.urn, failed.error_family) == ("albums", ErrorFamily.REJECTED)
    assert "publishes rows" in str(failed.error)
    assert {name: found for name, found in look_at(lake.tree).items() if not name.startswith("logs")} == originals


@pytest.mark.parametrize("at", ["lake", "lake/albums", "lake/other"])
def test_no_rows_are_published_into_a_tree(lake: CopyLake, job: Open, at: str) -> None:
    assert not job().run().failed
    originals = files_of(lake.tree)

    with pytest.raises(RejectedError, match=r"destination: .* to which the job 'crash' copies"):
        run_rows(rows_at(lake, at))

    assert files_of(lake.tree) == originals


def test_a_job_of_rows_whose_own_directory_is_a_tree(
    lake: CopyLake, job: Open, server: EmbeddedServer, database_pool: DatabasePool
) -> None:
    """The log of another deployment knows nothing of it."""
    assert not job({"destination": f"{lake.root}/rows"}).run().failed

    with (
        migrated_database(server, database_pool) as name,
        pytest.raises(RejectedError, match="to which the job 'crash' copies"),
    ):
        run_rows(replace(rows_at(lake, "lake"), database_url=server.url(name)))


@pytest.mark.parametrize("datasets", [[], [{"urn": "shop"}]], ids=["the whole tree", "a dataset"])
def test_a_destination_of_rows_can_be_copied(lake: CopyLake, job: Open, datasets: list[dict[str, str]]) -> None:
    rows = rows_at(lake, "source/shop")
    run_rows(rows)
    shutil.rmtree(lake.source / "albums")
    shutil.rmtree(lake.source / "logs")
    world = job({"datasets": datasets}, deletes="all")
    assert not world.run().failed
    rows.add_rows(rows.urns[0], 5)
    run_rows(rows)

    assert not world.run().failed
    assert not world.run().failed

    assert files_of(lake.tree) == files_of(lake.source)
    assert (lake.tree / "shop" / IDENTITY_NAME).is_file()


@pytest.mark.rotating
def test_in_a_bucket_neither_lies_in_the_other(
    versitygw: S3Server, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, bucket = dict(versitygw.environment), versitygw.make_bucket()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    copies = ObjectLake(database_url, str(tmp_path), environment=environment)
    copies.make_source()

    def rows_in(at: str) -> Lake:
        folder = tmp_path / at.replace("/", "_")
        folder.mkdir()
        options = {"at": at, "store": f"s3://{bucket}", "environment": environment, "job_name": folder.name}
        return make_lake(database_url, folder, (ROWS, OBJECTS), **options)

    run_rows(rows_in("mirror/shop"))
    with opening(copies) as job:
        with pytest.raises(RejectedError, match="publishes rows"):
            job({"destination": f"s3://{bucket}/mirror/shop/inside"}).run()
        whole = job({"destination": f"s3://{bucket}/mirror", "datasets": []}, deletes="all")
        assert ["publishes rows" in str(each.error) for each in whole.run().failed] == [True]

    with pytest.raises(RejectedError, match="to which the job 'crash' copies"):
        run_rows(rows_in("mirror/more"))
