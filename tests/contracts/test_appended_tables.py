"""Tables of Iceberg with a catalog in a real Postgres: values as they were, columns as they are, durable commits."""

import contextlib
import copy
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType, TimestampType
from sqlalchemy import text

from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.iceberg.append_step import AppendToTable
from gobblin_assets.destinations.iceberg.catalog_address import CatalogAddress, read_catalog_address
from gobblin_assets.destinations.iceberg.iceberg_tables import IcebergTables
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import CorruptionError, OutcomeUnknownError, RejectedError, RetryableError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.files import DataFile
from tests.contracts.test_marked_tables import KINDS, numbered
from tests.support.iceberg_rows import CATALOG, iceberg_variables, list_data_files
from tests.support.postgres import Database

TABLE = LoadedTable("lake.shop", "Order_rows")


def batch_of(row_count: int, version: int = 1, lane: int = 0) -> TableBatch:
    place = MarkPlace(str(TABLE), "root", "job", "a.b:c/ž", lane)
    return TableBatch(TABLE, place, version, str(uuid.uuid4()), row_count)


@pytest.fixture
def address(fresh_database: Database, tmp_path: Path) -> CatalogAddress:
    """The database's own settings are not those that a commit needs."""
    with fresh_database.connect() as session:
        session.execute(f'ALTER DATABASE "{fresh_database.database}" SET synchronous_commit = off')
    return read_catalog_address(CATALOG, iceberg_variables(fresh_database, f"file://{tmp_path}"))


@pytest.fixture
def tables(address: CatalogAddress) -> Iterator[IcebergTables]:
    with contextlib.closing(IcebergTables(address)) as opened:
        yield opened


def load(tables: IcebergTables, rows: pa.RecordBatch, version: int = 1, lane: int = 0) -> None:
    batch = batch_of(rows.num_rows, version, lane)
    tables.prepare(batch, rows.schema)
    tables.load(batch, [rows.slice(0, 1), rows.slice(1)])


def find(tables: IcebergTables) -> Table:
    table = tables._find(TABLE)
    assert table is not None
    return table


def make(tables: IcebergTables, *columns: NestedField, **options: Any) -> None:
    catalog = tables._open()
    catalog.create_namespace_if_not_exists(("lake", "shop"))
    catalog.create_table(("lake", "shop", "Order_rows"), Schema(*columns), **options)


def values_of(tables: IcebergTables, column: str) -> list[object]:
    return [row[column] for row in find(tables).scan().to_arrow().sort_by("n").to_pylist()]


def test_each_value_is_in_the_table_as_it_was(tables: IcebergTables) -> None:
    longest = max(len(values) for _kind, values in KINDS.values())
    values = {name: [*given, *[None] * (longest - len(given))] for name, (_kind, given) in KINDS.items()}
    arrays = [pa.array(values[name], kind) for name, (kind, _given) in KINDS.items()]

    load(tables, pa.record_batch([pa.array(range(longest)), *arrays], names=["n", *KINDS]))

    (path,) = list_data_files(find(tables))[1]
    stored = pq.read_table(path.removeprefix("file://"))
    for name, expected in values.items():
        assert stored.column(name).to_pylist() == expected, name
        # pyiceberg reads a list of records that is null as an empty one.
        assert name == "records" or values_of(tables, name) == expected, name


def test_files_have_the_ids_of_columns_that_other_readers_go_by(tables: IcebergTables) -> None:
    load(tables, numbered("a.b", pa.array([[{"x": 1}]], pa.list_(pa.struct([("x", pa.int32())])))))

    table = find(tables)
    (path,) = list_data_files(table)[1]
    columns = pq.read_schema(path.removeprefix("file://"))
    element = columns.field("a.b").type.value_field
    found = [each.metadata[b"PARQUET:field_id"] for each in (*columns, element, element.type.field(0))]
    names = ("n", "a.b", "a.b.element", "a.b.element.x")
    assert found == [str(table.schema().find_field(name).field_id).encode() for name in names]
    assert table.scan("n = 0").count() == 1
    assert table.scan("n > 5").count() == 0


def test_a_column_that_joins_later_is_null_in_earlier_rows(tables: IcebergTables) -> None:
    load(tables, numbered("a", pa.array([{"x": "x"}])))
    wider = pa.struct([("y", pa.float32()), ("x", pa.string())])
    more = pa.record_batch([pa.array([1]), pa.array([{"y": 1.5, "x": "z"}], wider), pa.array([2.5])], ["n", "a", "b"])

    load(tables, more, version=2)
    load(tables, numbered("b", pa.array([7.5])), version=3)

    assert sorted(map(str, values_of(tables, "b"))) == ["2.5", "7.5", "None"]
    assert {"x": "x", "y": None} in values_of(tables, "a")
    assert {"x": "z", "y": 1.5} in values_of(tables, "a")


@pytest.mark.parametrize(
    ("existing", "kind", "becomes"),
    [
        (LongType(), pa.int32(), LongType()),
        (IntegerType(), pa.int64(), LongType()),
        (DecimalType(10, 2), pa.decimal128(12, 2), DecimalType(12, 2)),
        (DecimalType(12, 2), pa.decimal128(10, 2), DecimalType(12, 2)),
        (DecimalType(12, 3), pa.decimal128(10, 2), None),
        (StringType(), pa.binary(), None),
        (StringType(), pa.int32(), None),
        (TimestampType(), pa.timestamp("us", tz="UTC"), None),
        (LongType(), pa.float64(), None),
        (StringType(), pa.list_(pa.string()), None),
    ],
    ids=str,
)
def test_an_existing_column_holds_each_value_or_becomes_wider(
    tables: IcebergTables, existing: IcebergType, kind: pa.DataType, becomes: IcebergType | None
) -> None:
    make(tables, NestedField(1, "n", LongType(), required=False), NestedField(2, "a", existing, required=False))
    rows = numbered("a", pa.array([None], kind))

    if becomes is not None:
        load(tables, rows)
        assert find(tables).schema().find_type("a") == becomes
        assert values_of(tables, "a") == [None]
        return
    with pytest.raises(RejectedError, match=r"^into: lake\.shop\.Order_rows has the column 'a' as") as raised:
        load(tables, rows)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ([NestedField(1, "n", LongType(), required=True)], {}, "'n', which may not be null"),
        ([NestedField(1, "other", LongType(), required=True)], {}, "'other', which may not be null"),
        (
            [NestedField(1, "n", LongType(), required=False)],
            {"partition_spec": PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))},
            "has partitions, by n",
        ),
        ([NestedField(1, "n", LongType(), required=False)], {"properties": {"format-version": "1"}}, "version 1 of"),
    ],
    ids=str,
)
def test_what_can_t_take_the_rows_is_refused(
    tables: IcebergTables, columns: list[NestedField], options: dict[str, Any], said: str
) -> None:
    # pyiceberg takes the version out of the properties that it is given.
    make(tables, *columns, **copy.deepcopy(options))

    with pytest.raises(RejectedError, match=rf"^into: lake\.shop\.Order_rows .*{said}") as raised:
        load(tables, numbered("a", pa.array(["x"])))

    assert raised.value.hint
    assert list_data_files(find(tables)) == (set(), set())


def test_a_type_that_iceberg_does_not_have_is_refused(tables: IcebergTables) -> None:
    with pytest.raises(RejectedError, match=r"^into: rows have a column of Arrow's type timestamp\[ns\]"):
        load(tables, numbered("a", pa.array([None], pa.timestamp("ns"))))


def test_rows_that_are_not_those_that_were_sealed_leave_nothing_behind(tables: IcebergTables) -> None:
    rows = numbered("a", pa.array(["x", "y"]))
    batch = batch_of(3)
    tables.prepare(batch, rows.schema)

    with pytest.raises(CorruptionError, match="hold 2 rows, and 3 were sealed"):
        tables.load(batch, [rows])

    assert list_data_files(find(tables)) == (set(), set())
    assert tables.find_mark(batch.mark) is None


def test_files_are_cut_at_the_size_that_the_table_asks_for(tables: IcebergTables) -> None:
    make(
        tables,
        NestedField(1, "n", LongType(), required=False),
        properties={"write.target-file-size-bytes": "1", "commit.retry.num-retries": "9"},
    )
    rows = pa.record_batch([pa.array(range(100))], names=["n"])
    other = pa.record_batch([pa.array(range(100)), pa.nulls(100, pa.int64())], names=["n", "m"])
    batch = batch_of(200)
    tables.prepare(batch, other.schema)

    tables.load(batch, iter([rows, other]))

    assert len(list_data_files(find(tables))[0]) == 2
    assert tables.count_rows(TABLE) == tables.count_loaded(batch.mark) == 200
    assert find(tables).properties["commit.retry.num-retries"] == "9"


def test_files_of_one_publication_may_have_different_columns(
    tables: IcebergTables, fresh_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in iceberg_variables(fresh_database, f"file://{tmp_path}").items():
        monkeypatch.setenv(name, value)
    fs, root = open_file_system(str(tmp_path))
    files = []
    for name in ("a", "b"):
        path = f"{root}/{name}.parquet"
        pq.write_table(pa.table({"n": [1, 2], name: [3, 4]}), path)
        identity = fs.find_identity(path)
        assert identity is not None
        files.append(DataFile(path, identity, 2))
    step = AppendToTable(CATALOG, batch_of(4), tuple(files))
    codec = get_kind(step.kind).codec
    columns = codec.to_columns([step], 0)
    assert list(codec.from_rows(zip(*columns, strict=True))) == [step]

    with StepPorts(open_file_system) as ports:
        world = StepWorld(fs, ports)
        step.prepare(world)
        assert step.verify(world) is StepVerdict.DO
        step.execute(world)
        assert step.verify(world) is StepVerdict.DONE

    assert sorted(map(str, values_of(tables, "a"))) == ["3", "4", "None", "None"]
    assert sorted(map(str, values_of(tables, "b"))) == ["3", "4", "None", "None"]


def test_a_column_that_is_dropped_while_rows_come_is_not_left_out(tables: IcebergTables) -> None:
    rows = numbered("a", pa.array(["x"]))
    batch = batch_of(1)
    tables.prepare(batch, rows.schema)
    with find(tables).update_schema() as update:
        update.delete_column("a")

    with pytest.raises(RetryableError, match="has lost the columns 'a'"):
        tables.load(batch, [rows])

    assert list_data_files(find(tables)) == (set(), set())


def test_no_code_and_no_place_that_a_table_names_is_used(tables: IcebergTables) -> None:
    make(
        tables,
        NestedField(1, "n", LongType(), required=False),
        properties={"py-io-impl": "no.such.module.Files", "write.data.path": "s3://bucket/data"},
    )
    rows = pa.record_batch([pa.array([1])], names=["n"])
    with pytest.raises(RejectedError, match=r"has files at s3:bucket/data.*, outside of the warehouse"):
        tables.load(batch_of(1), [rows])

    with find(tables).transaction() as transaction:
        transaction.set_properties(
            {"write.py-location-provider.impl": "pyiceberg.table.locations.SimpleLocationProvider"}
        )

    with pytest.raises(RejectedError, match="which names code to run"):
        tables.load(batch_of(1), [rows])


def test_lanes_that_append_at_once_all_get_in(address: CatalogAddress) -> None:
    def work(lane: int) -> LaneMark | None:
        with contextlib.closing(IcebergTables(address)) as tables:
            for version in (1, 2, 3):
                load(tables, numbered(f"of_{lane}", pa.array([lane, lane])), version, lane)
            return tables.find_mark(batch_of(0, lane=lane).mark)

    with ThreadPoolExecutor(3) as pool:
        marks = list(pool.map(work, range(3)))

    assert [mark and mark.version for mark in marks] == [3, 3, 3]
    with contextlib.closing(IcebergTables(address)) as tables:
        named, on_disk = list_data_files(find(tables))
        assert len(named) == 9
        assert on_disk == named
        assert tables.count_rows(TABLE) == tables.count_loaded(batch_of(0).mark) == 18


def test_commits_are_durable_and_a_paused_one_is_ended_before_others_give_up_waiting(
    tables: IcebergTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("gobblin_assets.destinations.iceberg.data_files.sync_directory", synced.append)
    load(tables, numbered("a", pa.array(["x"])))
    names = ("synchronous_commit", "idle_in_transaction_session_timeout", "lock_timeout")

    with tables._open().engine.connect() as session:
        settings = [session.execute(text(f"SHOW {name}")).scalar() for name in names]

    assert settings == ["on", "20s", "30s"]
    place = find(tables).location().removeprefix("file://")
    assert {f"{place}/data", f"{place}/metadata", place, str(Path(place).parents[1])} <= set(synced)


def test_a_catalog_that_is_elsewhere_says_no_secret(address: CatalogAddress, fresh_database: Database) -> None:
    variables = iceberg_variables(fresh_database, address.warehouse)
    away = read_catalog_address(
        CATALOG, {**variables, "GOBBLIN_ICEBERG_LAKEHOUSE_URL": "postgresql://127.0.0.1:1/gone"}
    )

    with pytest.raises(OutcomeUnknownError, match="is out of reach") as raised:
        IcebergTables(away).find_mark(batch_of(0).mark)

    assert "GOBBLIN_ICEBERG_LAKEHOUSE_URL" in raised.value.hint
    assert fresh_database.password not in f"{raised.value} {away} {raised.value.hint}"
