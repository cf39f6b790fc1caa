"""Copies of datasets by the ledger of the job that publishes them: exactly its active files, at one version."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.model.extract import Mode
from gobblin_assets.run.run_values import DatasetReport
from tests.support.copy_lake import CopyWorld
from tests.support.lake import Rows, World
from tests.support.ledger_copies import URN, KeptLake, Mirror, make_mirror, path_below, read_directory


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> KeptLake:
    made = KeptLake(database_url, str(tmp_path))
    Path(made.root).mkdir()
    for urn in made.urns:
        made.add_rows(urn, 13)
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


def source_rows(lake: KeptLake) -> Rows:
    return Counter(lake.source_rows(URN))


def find(reports: tuple[DatasetReport, ...], urn: str = URN) -> DatasetReport:
    return next(each for each in reports if each.urn == urn)


def copy_well(copy: CopyWorld) -> DatasetReport:
    report = copy.run()
    assert not report.failed, [each.error for each in report.failed]
    return find(report.datasets)


def find_version(copy: CopyWorld) -> int:
    found = copy.stores.published.find("crash", URN, role="data")  # type: ignore[arg-type]  # as texts
    assert found is not None
    return found.version


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
    assert copy_well(copy).publication.file_count == 0  # type: ignore[union-attr]  # it ran
