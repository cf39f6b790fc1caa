"""Extraction on Spark: one read, one chain of transformations and one write for each attempt.

read -> converters -> late window -> output partitions -> row quality -> Parquet. Written rows are counted in the files'
footers, read rows are observed during the read. If Connect sends no observation, a second read counts the rows, so that
every attempt has a count that does not come from its files. If several datasets share a read, the source counts the
rows of each, or they are observed apart; if a converter may remove rows, the remaining rows are counted again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.errors import CorruptionError, GobblinError, RetryableError
from gobblin_assets.fs.file_system import FileSystem, RenameOutcome
from gobblin_assets.jobs.ingest.attempt_checks import position_columns, require_below, require_readable
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.attempt_files import ALONE, AttemptPlace, open_attempt_files
from gobblin_assets.rows.converters import convert
from gobblin_assets.rows.dataset_reader import read_published
from gobblin_assets.rows.hidden_columns import SHARE_COLUMN, parse_role_path, parse_share_path, published_path
from gobblin_assets.rows.late_rows import without_published
from gobblin_assets.rows.new_files import plan_file_rows_max
from gobblin_assets.rows.observation import Observed, ObservedPositions, observe_positions
from gobblin_assets.rows.optional_failures import count_in_files, list_optional
from gobblin_assets.rows.output_partitions import add_output_partitions, explain_partition_failure
from gobblin_assets.rows.parquet_writer import (
    WrittenDirectory,
    collect_output,
    refuse_blind_writers,
    write_parquet,
)
from gobblin_assets.rows.row_quality import (
    RowSplit,
    explain_row_failure,
    find_broken_policy,
    look_at_failed,
    split_rows,
)
from gobblin_assets.rows.row_samples import SAMPLES_MAX, RowFailures, open_sampler, sample_files
from gobblin_assets.rows.task_writer import TaskFiles, TaskWrite, write_by_tasks
from gobblin_assets.run.job_kind import Output, Staged, UnitPlan, WorkOrder
from gobblin_assets.run.slices import partition_text
from gobblin_assets.sources.source_port import read_plan_of
from gobblin_assets.spark.cancellation import (
    Cancellation,
    describe_interruption,
    find_session_identity,
    open_cancellation,
)
from gobblin_assets.spark.errors import is_server_gone, spark_families

_DATA_DIRECTORY: Final = "files"
_SHARED_DIRECTORY: Final = "shared"


class SparkExtractor:
    """``Worker`` over one session, which all tasks of a run share."""

    def __init__(
        self, spark: SparkSession, fs: FileSystem, published: PublishedFiles, *, umask: int | None = None
    ) -> None:
        """``umask``: of ``fs``, for tasks that open it themselves."""
        self._spark = spark
        self._fs = fs
        self._umask = umask
        self._published = published
        self._cancellation: Cancellation = open_cancellation(spark)
        self._identity = find_session_identity(spark)
        self._is_server_gone = False

    def describe_interruption(self, tag: str, plans: Sequence[UnitPlan]) -> Mapping[str, object] | None:  # noqa: ARG002  the port's
        return describe_interruption(self._identity, tag)

    def cancel(self, tag: str) -> None:
        self._cancellation.cancel(tag)

    def do(self, order: WorkOrder) -> Staged:
        if not order.units:
            return self._describe(order, (), _Written(None, {}, self._plan_schemas(order), (), ()), rows_read=0)
        directory = f"{order.directory}/{_DATA_DIRECTORY}"
        self._fs.make_directories(order.directory)
        written = self._write_explained(
            [order], lambda: (read_plan_of(order.plan).reader.read(self._spark, order.units), None), directory
        )
        high = None if written.observed is None else written.observed.high
        require_below(order, high)
        found = self._collect(directory, written) if order.names is None else written.directories
        share = [(each.partition_path, each) for each in found]
        return self._describe(order, share, written, rows_read=written.row_counts[ALONE])

    def do_together(self, orders: Sequence[WorkOrder]) -> Sequence[Staged]:
        """One write into the first attempt's directory; then a rename gives each attempt its share."""
        first = orders[0]
        if first.plan.sharing is None:
            return [self.do(order) for order in orders]
        directory = f"{first.directory}/{_SHARED_DIRECTORY}"
        for order in orders if first.names is not None else (first,):
            self._fs.make_directories(order.directory)
        parts = [(read_plan_of(order.plan), order.units) for order in orders]

        def read() -> tuple[DataFrame, Mapping[str, int] | None]:
            rows = read_plan_of(first.plan).reader.read_together(self._spark, parts)
            return rows.frame, rows.row_counts

        written = self._write_explained(orders, read, directory)
        shares: dict[str, list[tuple[str, WrittenDirectory]]] = {}
        for found in self._collect(directory, written) if first.names is None else written.directories:
            name, partition_path = parse_share_path(found.partition_path)
            shares.setdefault(name, []).append((partition_path, found))
        extracted = [self._hand_out(order, directory, shares.pop(_share_of(order), []), written) for order in orders]
        if others := (shares.keys() | written.row_counts.keys()) - {_share_of(order) for order in orders}:
            raise CorruptionError(f"a read of {len(orders)} datasets gave rows of others: {', '.join(sorted(others))}")
        if first.names is None:
            # A rename is durable when both of its directories are synced; the engine syncs the target directories.
            self._fs.sync_directories([directory])
            self._fs.remove_tree(directory)
        return extracted

    def _collect(self, directory: str, written: "_Written") -> list[WrittenDirectory]:
        found = collect_output(self._fs, directory)
        if sum(each.row_count for each in found) < sum(written.row_counts.values()):
            refuse_blind_writers(self._spark, self._fs.to_uri(directory))
        return found

    def _plan_schemas(self, order: WorkOrder) -> Mapping[Role, t.StructType]:
        """The schemas that files would have. Spark only analyses the query."""
        rules, urn = read_plan_of(order.plan), order.plan.urn
        with spark_families(f"find the columns of {urn}"):
            frame = convert(rules.reader.read(self._spark, ()), rules.spec.converters, dataset=urn)
            schemas = _split(self._divide(order, frame)[0], order).schemas
        require_readable([order], [each.jsonValue() for each in schemas.values()])
        return schemas

    def _hand_out(
        self,
        order: WorkOrder,
        shared: str,
        share: Sequence[tuple[str, WrittenDirectory]],
        written: "_Written",
    ) -> Staged:
        if share and order.names is None:
            share = self._take_share(order, shared, share)
        return self._describe(order, share, written, rows_read=written.row_counts.get(_share_of(order), 0))

    def _take_share(
        self, order: WorkOrder, shared: str, share: Sequence[tuple[str, WrittenDirectory]]
    ) -> list[tuple[str, WrittenDirectory]]:
        """Move the order's files into its own attempt, and say where they are then."""
        directory = f"{order.directory}/{_DATA_DIRECTORY}"
        self._fs.make_directories(order.directory)
        source = f"{shared}/{SHARE_COLUMN}={_share_of(order)}"
        if self._fs.rename_no_replace(source, directory) is not RenameOutcome.RENAMED:
            # The process that took the dataset over has moved the files while this process slept.
            raise RetryableError(f"{order.plan.urn}: what was written is gone: {source}", path=source)
        return [(path, replace(found, path=f"{directory}/{path}" if path else directory)) for path, found in share]

    def _describe(
        self,
        order: WorkOrder,
        share: Sequence[tuple[str, WrittenDirectory]],
        written: "_Written",
        *,
        rows_read: int,
    ) -> Staged:
        """``share``: the directories of the order, each with its path below the share."""
        spec = read_plan_of(order.plan).spec
        placed = [(*parse_role_path(path), found) for path, found in share]
        outputs = tuple(
            Output(role, found.path, published_path(role, path, spec.writer), found.files, found.steps)
            for role, path, found in placed
        )
        optional = list_optional(spec.quality.rows)
        if order.names is None:
            sampler = open_sampler(spec, _types_in(written.schemas, Role.QUARANTINE), written.partition_columns)
            samples = sample_files(self._fs, outputs, sampler)
            failures = count_in_files(self._fs, outputs, optional)
        else:
            samples = [text for _role, _path, found in placed for text in found.samples]
            counted = [found.optional_failures for role, _path, found in placed if role is Role.DATA]
            failures = {name: sum(each.get(name, 0) for each in counted) for name in optional}
        return Staged(
            outputs=outputs,
            rows_read=rows_read,
            file_schemas={role: schema.jsonValue() for role, schema in written.schemas.items()},
            columns=_types_in(written.schemas, Role.DATA),
            observed_high=None if written.observed is None else written.observed.high,
            samples=tuple(samples[:SAMPLES_MAX]),
            optional_failures=failures,
        )

    def _write_explained(self, orders: Sequence[WorkOrder], read: "_Read", directory: str) -> "_Written":
        order = orders[0]
        if self._is_server_gone:
            raise RetryableError("Spark's server is gone", hint="The next run starts where this one did.")
        try:
            with self._cancellation.tagged(order.tag):
                return self._write(orders, *read(), directory)
        except RetryableError as error:
            # The write's error says only that it failed; its cause may say why, and what to correct.
            cause = error.__cause__ or error
            self._learn(order, cause)
            raise _explain(order, cause, self._look_at_failed(orders, read, cause)) from error
        except GobblinError:
            raise
        except Exception as error:
            self._learn(order, error)
            raise _explain(order, error, self._look_at_failed(orders, read, error)) from error

    def _look_at_failed(self, orders: Sequence[WorkOrder], read: "_Read", error: BaseException) -> RowFailures | None:
        """Rows that failed a policy; None for another failure, for several datasets, or if the look itself fails."""
        order, name = orders[0], find_broken_policy(error)
        policy = next((each for each in read_plan_of(order.plan).spec.quality.rows if each.name == name), None)
        if policy is None or len(orders) > 1:
            return None
        try:
            with self._cancellation.tagged(order.tag), spark_families("look at the rows that failed"):
                frame, _positions = self._observed(order, read()[0], ())
                return look_at_failed(self._divide(order, frame)[0], policy, read_plan_of(order.plan).spec)
        except Exception:  # noqa: BLE001  the failure is known; an error of counting must not hide it
            return None

    def _divide(self, order: WorkOrder, frame: DataFrame) -> tuple[DataFrame, Sequence[str]]:
        spec = read_plan_of(order.plan).spec
        return add_output_partitions(frame, spec.writer, dataset=order.plan.urn, now=order.started_at)

    def _write(
        self, orders: Sequence[WorkOrder], raw: DataFrame, given: Mapping[str, int] | None, directory: str
    ) -> "_Written":
        order = orders[0]
        spec = read_plan_of(order.plan).spec
        is_shared = SHARE_COLUMN in raw.columns
        shares = [_share_of(each) for each in orders] if is_shared and given is None else ()
        frame, observed = self._observed(order, raw, shares)
        divided, partition_columns = self._divide(order, frame)
        split = _split(divided, order)
        require_readable(orders, [each.jsonValue() for each in split.schemas.values()])
        rows_max = plan_file_rows_max(
            divided.schema.jsonValue(),
            file_bytes_max=spec.writer.file_bytes_max,
            file_rows_max=spec.writer.file_rows_max,
        )
        columns = (*split.partition_columns, *partition_columns)
        if order.names is None:
            write_parquet(
                split.frame,
                self._fs.to_uri(directory),
                partition_columns=columns,
                file_rows_max=rows_max,
                compression=spec.writer.compression,
            )
            found: Sequence[WrittenDirectory] = ()
        else:
            place = self._fs.to_uri(directory)
            tasks = TaskWrite(
                self._open_files(orders, place, split, columns), columns, rows_max, spec.writer.compression
            )
            rules = read_plan_of(order.plan)
            # A converter makes wider rows of those that the reader holds, and a sort or a join mixes them.
            rows_held = None if spec.converters or columns or rules.late_key else rules.rows_held
            found = write_by_tasks(split.frame, tasks, dataset=order.plan.urn, place=place, rows_held=rows_held)
        seen = observed.get()
        if not is_shared:
            counts = {ALONE: _count(split.frame) if seen is None else seen.row_count}
        elif given is None and seen is not None:
            counts = dict(seen.by_share)
        elif given is not None and all(link.where is None and link.function is None for link in spec.converters):
            counts = dict(given)
        else:
            counts = _count_shares(split.frame)
        return _Written(seen, counts, split.schemas, found, columns)

    def _open_files(
        self, orders: Sequence[WorkOrder], place: str, split: RowSplit, columns: Sequence[str]
    ) -> Callable[[], TaskFiles]:
        """The function that a task calls to make its files."""
        is_shared = len(orders) > 1
        aside = _types_in(split.schemas, Role.QUARANTINE)
        places = {}
        for order in orders:
            if order.names is not None:
                spec = read_plan_of(order.plan).spec
                sampler = open_sampler(spec, aside, columns)
                share = _share_of(order) if is_shared else ALONE
                places[share] = AttemptPlace(order.directory, order.names, spec.writer, sampler)
        return partial(open_attempt_files, place, self._umask, places, is_shared=is_shared)

    def _observed(self, order: WorkOrder, raw: DataFrame, shares: Sequence[str]) -> tuple[DataFrame, ObservedPositions]:
        """The rows to publish, observed once: of two nested observations Connect may give back only the outer one.

        If nothing removes rows, the source's own rows and their positions are observed. Otherwise the remaining
        rows are counted, and positions are observed only if no converter can have changed them.
        """
        links = read_plan_of(order.plan).spec.converters
        late = any(unit.reread_from is not None for unit in order.units)
        if not late and all(link.where is None and link.function is None for link in links):
            observed, positions = observe_positions(raw, position_columns(order), shares=shares)
            return convert(observed, links, dataset=order.plan.urn), positions
        left = self._without_late(convert(raw, links, dataset=order.plan.urn), order)
        return observe_positions(left, () if links else position_columns(order), shares=shares)

    def _without_late(self, frame: DataFrame, order: WorkOrder) -> DataFrame:
        """Leave out rows that an earlier sequence published, if this attempt reads below the watermark."""
        plan = order.plan
        late = next((unit for unit in order.units if unit.reread_from is not None), None)
        if late is None or late.reread_from is None or late.interval is None or late.interval.low is None:
            return frame
        published = read_published(
            self._spark,
            plan.urn,
            job=order.job,
            published=self._published,
            partition=partition_text(plan.partition),
        )
        rules = read_plan_of(plan)
        if published is None or rules.watermark_column is None:
            return frame
        return without_published(
            frame,
            published,
            key=rules.late_key,
            watermark_column=rules.watermark_column,
            low=late.interval.low,
            reread_from=late.reread_from,
            tiebreak_column=None if rules.spec.watermark is None else rules.spec.watermark.key_column,
            dataset=plan.urn,
        )

    def _learn(self, order: WorkOrder, error: BaseException) -> None:
        # Otherwise each later try would wait for the client's timeout to learn the same.
        self._is_server_gone = self._is_server_gone or is_server_gone(error)
        if isinstance(error, Exception):
            read_plan_of(order.plan).reader.learn(error)


def _explain(order: WorkOrder, error: BaseException, failures: RowFailures | None) -> BaseException:
    urn = order.plan.urn
    known = explain_row_failure(error, dataset=urn, failures=failures)
    known = known or explain_partition_failure(error, dataset=urn)
    if known is not None:
        return known
    if isinstance(error, GobblinError) or not isinstance(error, Exception):
        return error
    return read_plan_of(order.plan).reader.explain(error)


def _split(divided: DataFrame, order: WorkOrder) -> RowSplit:
    spec = read_plan_of(order.plan).spec
    rules = spec.writer.event_time
    event_time_name = None if rules is None else rules.name
    return split_rows(divided, spec.quality.rows, dataset=order.plan.urn, event_time_name=event_time_name)


_Read = Callable[[], tuple[DataFrame, Mapping[str, int] | None]]
"""The rows to write, and the number of rows of each share, if the source knows it."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The files of an order.

    ``row_counts``: how many rows should be in the files, by share; ``ALONE`` is the only share of one order.
    ``directories``: what tasks finished, where the tasks wrote the files themselves. ``partition_columns``: not in the
    files.
    """

    observed: Observed | None
    row_counts: Mapping[str, int]
    schemas: Mapping[Role, t.StructType]
    directories: Sequence[WrittenDirectory]
    partition_columns: Sequence[str]


def _types_in(schemas: Mapping[Role, t.StructType], role: Role) -> dict[str, str]:
    """The role's columns, each with its type as Spark writes it; none where there can be no such rows."""
    return {each.name: each.dataType.simpleString() for each in schemas.get(role, t.StructType())}


def _count(frame: DataFrame) -> int:
    with spark_families("count the rows that were read"):
        return frame.count()


def _count_shares(frame: DataFrame) -> dict[str, int]:
    with spark_families("count the rows that were read"):
        counted = frame.groupBy(SHARE_COLUMN).agg(f.count(f.lit(1)).alias("rows")).collect()
    return {row[SHARE_COLUMN]: row["rows"] for row in counted}


def _share_of(order: WorkOrder) -> str:
    if order.plan.sharing is None:
        raise CorruptionError(f"{order.plan.urn} is read together with others, and its plan shares with none")
    return order.plan.sharing.name
