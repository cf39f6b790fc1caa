"""Tables of Iceberg to which rows are appended, each append with the mark of its lane in one commit.

A commit requires that the table has the snapshot at which the mark was looked at. Every change of a mark makes a
snapshot, even if it gives a publication up: a property alone would let the append of a paused process pass. pyiceberg
itself would repeat a refused commit on the newer snapshot, without a look at the mark. So each commit is tried only
once here.
"""

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

import psycopg
import pyarrow as pa
from pyiceberg.catalog import WAREHOUSE_LOCATION, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import (
    PY_IO_IMPL,
    S3_ACCESS_KEY_ID,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_REGION,
    S3_REQUEST_TIMEOUT,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.iceberg.catalog_address import CatalogAddress, read_catalog_address
from gobblin_assets.destinations.iceberg.data_files import DataFiles, DurableFiles
from gobblin_assets.destinations.iceberg.iceberg_columns import iceberg_columns, require_iceberg_columns
from gobblin_assets.destinations.iceberg.lane_properties import (
    adopted_marks,
    count_loaded_rows,
    find_lane_mark,
    moved_mark,
    refusing_mark,
)
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, PlaceGoneError, decide_batch, require_row_count
from gobblin_assets.destinations.load_rows import TableBatch
from gobblin_assets.destinations.table_names import LoadedTable
from gobblin_assets.errors import (
    ConflictError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.failpoints import Failpoint, reach

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

_TRIES: Final = 50
"""Of one commit, while others come first."""

_WAIT_S_MAX: Final = 0.1

_FILE: Final = "file://"

_FORMAT_VERSION: Final = 2

_MERGE: Final = (TableProperties.MANIFEST_MERGE_ENABLED, TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT)

_SEQUENCE: Final = "gobblin.sequence"
"""In the summary of a snapshot, for people: the publication that made it."""

# A sink commits often, and each commit leaves a file of metadata that names all snapshots, and a manifest.
_OF_NEW_TABLES: Final = MappingProxyType(
    {
        TableProperties.FORMAT_VERSION: str(_FORMAT_VERSION),
        TableProperties.MANIFEST_MERGE_ENABLED: "true",
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    }
)


class _Catalog(SqlCatalog):
    """A catalog whose sessions are ours: no parameter comes from elsewhere, and its properties have no secret."""

    def __init__(self, address: CatalogAddress) -> None:
        files = f"{DurableFiles.__module__}.{DurableFiles.__qualname__}"
        properties = {WAREHOUSE_LOCATION: address.warehouse, PY_IO_IMPL: files, **_reach_store(address)}
        MetastoreCatalog.__init__(self, address.catalog, **properties)
        self.engine = create_engine(
            "postgresql+psycopg://", creator=address.open_catalog_session, pool_pre_ping=True, hide_parameters=True
        )
        try:
            self._init_catalog()
        except (ProgrammingError, IntegrityError):
            # Another process made the tables at this moment.
            self._init_catalog()

    def _load_file_io(self, properties: Mapping[str, str] = _NOTHING, location: str | None = None) -> DurableFiles:
        """Not what the properties of a table say, which may name any module."""
        del properties, location
        return DurableFiles(self.properties)


class _Append(Transaction):
    """A transaction that copies the table's metadata where something of it changes.

    pyiceberg's own copies all of it, with every snapshot, fifteen times for each commit.
    """

    @property
    def table_metadata(self) -> TableMetadata:
        return super().table_metadata if self._updates else self._table.metadata


@dataclass(slots=True)
class IcebergTables:
    """``MarkedRows`` of one catalog. One thread at a time uses it; it connects when it is first needed."""

    address: CatalogAddress
    _catalog: SqlCatalog | None = field(default=None, init=False)

    def close(self) -> None:
        if self._catalog is not None:
            with suppress(DBAPIError):
                self._catalog.engine.dispose()
            self._catalog = None

    def require(self, tables: Iterable[LoadedTable]) -> None:
        """Connect, and raise if the catalog, the warehouse or one of the tables can't be loaded."""
        with self._judging():
            with self._open().engine.connect() as session:
                is_standby = session.execute(text("SELECT pg_is_in_recovery()")).scalar()
            if is_standby:
                raise RejectedError(
                    "the server is a standby, which takes no commits",
                    field=self.address.variable("URL"),
                    hint="Name the primary, or both with targetServerType=primary.",
                )
            for table in tables:
                found = self._find(table)
                if found is not None:
                    _require_kind(table, found)

    def find_mark(self, place: MarkPlace) -> LaneMark | None:
        with self._judging():
            table = self._find(_table_of(place))
        return None if table is None else find_lane_mark(table.properties, place)

    def find_gone(self, table: LoadedTable) -> str | None:
        """A table that was made anew has no marks of what was loaded: only one that is not there is told apart."""
        with self._judging():
            return f"{table} is gone" if self._find(table) is None else None

    def adopt(self, table: LoadedTable, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Let the table, which is made unless it exists, go on behind these marks. Marks that are there stay.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        for _ in range(_TRIES):
            with self._judging():
                found = self._find(table) or self._make(table, Schema())
                properties = adopted_marks(found.properties, marks, row_count)
                if not properties or self._change(found, properties, (), {}):
                    return
        raise _CrowdedError(table)

    def count_loaded(self, place: MarkPlace) -> int:
        """The rows that all lanes of the dataset have loaded, whichever lane ``place`` is of."""
        with self._judging():
            table = self._find(_table_of(place))
        return 0 if table is None else count_loaded_rows(table.properties, place)

    def count_rows(self, table: LoadedTable) -> int:
        """How many rows the table has, whoever wrote them. Reads data only where rows were deleted."""
        with self._judging():
            found = self._find(table)
            return 0 if found is None else found.scan().count()

    def prepare(self, batch: TableBatch, columns: pa.Schema) -> None:
        wanted = iceberg_columns(columns)
        for _ in range(_TRIES):
            with self._judging():
                table = self._find_or_make(batch, wanted)
                _require_kind(batch.table, table)
                if not require_iceberg_columns(str(batch.table), table.schema(), wanted):
                    return
                with suppress(CommitFailedException), table.update_schema() as update:
                    update.union_by_name(wanted)
        raise _CrowdedError(batch.table)

    def load(self, batch: TableBatch, rows: Iterable[pa.RecordBatch]) -> None:
        table = self._look(batch)
        written = DataFiles(table)
        try:
            with self._judging():
                written.write(rows)
            require_row_count(batch, written.row_count)
        except GobblinError:
            written.remove()
            raise
        reach(Failpoint.LOAD_COPIED)
        try:
            self._append(batch, table, written.files)
            reach(Failpoint.LOAD_COMMITTED)
        except (ConflictError, _CrowdedError):
            # Each commit was refused, and there will be no other one of these files.
            written.remove()
            raise
        except (OutcomeUnknownError, RetryableError, ConnectionError):
            # The answer to a commit may be lost on its way.
            self.close()
            mark = self.find_mark(batch.mark)
            if decide_batch(mark, batch) is not StepVerdict.DONE:
                raise

    def _look(self, batch: TableBatch) -> Table:
        """The table with a snapshot at which the mark lets the publication in."""
        with self._judging():
            table = self._find_of(batch)
        if table is None:
            raise RetryableError(f"{batch.table} was removed")
        _require_kind(batch.table, table)
        mark = find_lane_mark(table.properties, batch.mark)
        if decide_batch(mark, batch) is not StepVerdict.DO:
            raise ConflictError(f"{batch.mark} refuses sequence {batch.sequence_id}")
        return table

    def _append(self, batch: TableBatch, table: Table, files: Sequence[DataFile]) -> None:
        """``table``: as it was looked at. Files that were written are used again after somebody else came first."""
        for _ in range(_TRIES):
            mark = moved_mark(table.properties, batch)
            if self._commit(batch, table, mark, files, Failpoint.LOAD_BEFORE_COMMIT):
                return
            table = self._look(batch)
        raise _CrowdedError(batch.table)

    def give_up(self, batch: TableBatch) -> bool:
        for _ in range(_TRIES):
            with self._judging():
                # A process that was paused before it made the table must find the mark.
                table = self._find_or_make(batch, Schema())
            mark = find_lane_mark(table.properties, batch.mark)
            verdict = decide_batch(mark, batch)
            if verdict is not StepVerdict.DO:
                return verdict is not StepVerdict.DONE
            refusing = refusing_mark(table.properties, batch)
            if self._commit(batch, table, refusing, (), Failpoint.GIVE_UP_BEFORE_COMMIT):
                return True
        raise _CrowdedError(batch.table)

    def _commit(
        self, batch: TableBatch, table: Table, mark: Mapping[str, str], files: Sequence[DataFile], before: Failpoint
    ) -> bool:
        """Change the mark and add the files, on the snapshot that ``table`` has. False: somebody else came first."""
        return self._change(table, mark, files, {_SEQUENCE: batch.sequence_id}, before)

    def _change(
        self,
        table: Table,
        properties: Mapping[str, str],
        files: Sequence[DataFile],
        summary: dict[str, str],
        before: Failpoint | None = None,
    ) -> bool:
        self._try_once(table)
        with self._judging():
            transaction = _Append(table)
            update = transaction.update_snapshot(summary)
            merges = property_as_bool(table.properties, *_MERGE)
            with update.merge_append() if merges else update.fast_append() as snapshot:
                for file in files:
                    snapshot.append_data_file(file)
            transaction.set_properties(dict(properties))
            if before is not None:
                reach(before)
            try:
                transaction.commit_transaction()
            except CommitFailedException:
                time.sleep(random.uniform(0, _WAIT_S_MAX))  # noqa: S311  so that two processes don't meet again
                return False
        return True

    def _try_once(self, table: Table) -> None:
        """Let pyiceberg not repeat what is refused. It asks the copy of the table in memory, which nobody else sees."""
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"

    def _open(self) -> SqlCatalog:
        warehouse = self.address.warehouse
        if self.address.store is None and not Path(warehouse.removeprefix(_FILE)).is_dir():
            raise OutcomeUnknownError(
                f"the warehouse {warehouse} is not there",
                hint=f"Make it, mount it, or correct {self.address.variable('WAREHOUSE')}. It is asked again.",
            )
        if self._catalog is None:
            self._catalog = _Catalog(self.address)
        return self._catalog

    def _find(self, table: LoadedTable) -> Table | None:
        try:
            found = self._open().load_table(_identifier(table))
        except NoSuchTableError:
            return None
        if TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL in found.properties:
            raise RejectedError(
                f"{table} has the property {TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL}, which names code to run",
                field="into",
                hint="Remove the property.",
            )
        return found

    def _find_or_make(self, batch: TableBatch, columns: Schema) -> Table:
        return self._find_of(batch) or self._make(batch.table, columns)

    def _find_of(self, batch: TableBatch) -> Table | None:
        """PlaceGoneError if the lane had a mark, which was in the table: then it is not made again."""
        table = self._find(batch.table)
        if table is None and batch.is_marked:
            raise PlaceGoneError(f"{batch.table}, which had {batch.mark}, is gone", batch.mark.dataset)
        return table

    def _make(self, table: LoadedTable, columns: Schema) -> Table:
        catalog = self._open()
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            catalog.create_namespace(_identifier(table)[:-1])
        with suppress(TableAlreadyExistsError):
            return catalog.create_table(_identifier(table), columns, properties=dict(_OF_NEW_TABLES))
        found = self._find(table)
        if found is None:
            raise RejectedError(
                f"{table} is a view", field="into", hint="Name a namespace in which it is a table, or is not yet."
            )
        return found

    @contextmanager
    def _judging(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            if isinstance(error.orig, psycopg.Error):
                raise self.address.judge(error.orig) from None
            raise
        except PermissionError as error:
            raise RejectedError(
                f"{error.filename or 'a file'} is closed to this process",
                field=self.address.variable("WAREHOUSE"),
                hint="Give the user that runs this the right to read and write there.",
            ) from error
        except OSError as error:
            # Not counted as a failed try: however long it lasts, nobody has to unblock anything.
            raise OutcomeUnknownError(
                f"the warehouse {self.address.warehouse} failed: {error}",
                hint="Check that it is there, has room, and can be read and written. It is asked again.",
            ) from error


class _CrowdedError(RetryableError):
    """Others came first, each time."""

    def __init__(self, table: LoadedTable) -> None:
        super().__init__(f"{table} was changed by others {_TRIES} times while a commit was tried", passes=True)


@contextmanager
def open_iceberg_tables(name: str) -> Iterator[IcebergTables]:
    """The tables of the catalog of a connection, by its name."""
    tables = IcebergTables(read_catalog_address(name))
    try:
        yield tables
    finally:
        tables.close()


def _reach_store(address: CatalogAddress) -> dict[str, str]:
    """How pyiceberg reaches the bucket. Without keys, it asks AWS's own chain."""
    if address.store is None:
        return {}
    store = address.store
    named = {
        S3_ENDPOINT: store.endpoint_url,
        S3_REGION: store.region,
        S3_ACCESS_KEY_ID: store.access_key_id,
        S3_SECRET_ACCESS_KEY: store.secret_access_key,
        S3_SESSION_TOKEN: store.session_token,
        S3_CONNECT_TIMEOUT: "10",
        S3_REQUEST_TIMEOUT: "60",
    }
    return {name: value for name, value in named.items() if value is not None}


def _table_of(place: MarkPlace) -> LoadedTable:
    namespace, _, name = place.marks.rpartition(".")
    return LoadedTable(namespace, name)


def _identifier(table: LoadedTable) -> tuple[str, ...]:
    return (*table.schema.split("."), table.table)


def _require_kind(name: LoadedTable, table: Table) -> None:
    if table.format_version != _FORMAT_VERSION:
        raise RejectedError(
            f"{name} has the version {table.format_version} of Iceberg's format; expected {_FORMAT_VERSION}",
            field="into",
            hint="Name a namespace in which it has that version, or where it does not exist yet.",
        )
    if not table.spec().is_unpartitioned():
        raise RejectedError(
            f"{name} has partitions, by {', '.join(each.name for each in table.spec().fields)}",
            field="into",
            hint="Let the sink append to a table without partitions, and divide the rows from there.",
        )
