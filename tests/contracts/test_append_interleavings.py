"""Loads of tables of Iceberg that are interrupted: what only Iceberg has, besides ``test_load_interleavings``."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.failpoints import Failpoint
from tests.contracts.test_load_interleavings import (
    DIES,
    GIVEN_UP,
    IN_COMMIT,
    MEETS,
    ORDERS,
    OVERTAKEN,
    ROW_COUNT,
    Publication,
    find_fault,
)
from tests.support.iceberg_rows import IcebergRows, iceberg_variables, list_data_files
from tests.support.postgres import Database
from tests.support.s3_servers import S3Server


@pytest.fixture
def place(fresh_database: Database, tmp_path: Path) -> IcebergRows:
    return IcebergRows(fresh_database, tmp_path)


@dataclass(frozen=True)
class StoredRows(IcebergRows):
    """``warehouse``: a directory of a bucket. ``store``: how the bucket is reached."""

    store: Mapping[str, str] = field(kw_only=True)

    @property
    def variables(self) -> Mapping[str, str]:
        return {**iceberg_variables(self.database, f"s3://{os.fspath(self.warehouse)}"), **self.store}


@pytest.mark.parametrize("way", [OVERTAKEN, MEETS, GIVEN_UP])
def test_the_first_snapshot_of_a_table_conflicts_too(place: IcebergRows, way: str) -> None:
    assert find_fault(Publication(place, None, 0), Failpoint.LOAD_BEFORE_COMMIT, way) is None


@pytest.mark.parametrize("way", [DIES, OVERTAKEN, MEETS, GIVEN_UP])
def test_a_warehouse_in_a_store_makes_no_difference(fresh_database: Database, moto: S3Server, way: str) -> None:
    place = StoredRows(fresh_database, Path(moto.make_bucket(), "tables"), store=moto.environment)

    assert find_fault(Publication(place, None, 0), IN_COMMIT, way) is None


def test_what_was_surely_refused_leaves_no_data_files(place: IcebergRows) -> None:
    assert find_fault(Publication(place, None, 0), Failpoint.LOAD_BEFORE_COMMIT, OVERTAKEN) is None

    named, on_disk = list_data_files(place.find(ORDERS))
    assert len(named) == 1
    assert on_disk == named


def test_what_is_given_up_before_there_is_a_table_stays_out(place: IcebergRows) -> None:
    publication = Publication(place, None, 0)

    publication.give_up()

    assert publication.is_given_up
    assert publication.load() is StepVerdict.CONFLICT
    later = Publication(place, None, 0)
    assert later.load() is StepVerdict.DONE
    assert later.count() == ROW_COUNT
