"""Writes base generations of change logs: ``gobblin-assets sink compact``, and the same in Dagster.

The base's dataset is held, and not the log's: workers go on publishing meanwhile. Changes that they publish after the
look at the log come after the base. A process that is killed leaves an open sequence, as in every publication, and the
earlier base.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from gobblin_assets.commit.markers import check_log
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.destinations.registry import open_destination
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.jobs.programs import OpenFiles
from gobblin_assets.jobs.sink.sink_ports import SinkSpark
from gobblin_assets.jobs.sink.sink_rules import is_one_stream
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import DatasetUrn, JobName, Role, parse_urn
from gobblin_assets.rows.base_generations import name_base
from gobblin_assets.rows.current_reader import CurrentView, find_current
from gobblin_assets.rows.observation import observe_positions
from gobblin_assets.rows.parquet_writer import collect_output, refuse_blind_writers, write_parquet
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.job_kind import Output
from gobblin_assets.run.maintenance_run import HeldDataset, MaintenanceRun
from gobblin_assets.run.replacement import Replacement, ReplacementOrder, WrittenAnew
from gobblin_assets.run.stores import Stores
from gobblin_assets.spark.cancellation import describe_interruption, find_session_identity, open_cancellation
from gobblin_assets.spark.errors import spark_families
from gobblin_assets.spec.job_spec import BasesSpec, DatasetSpec, JobSpec
from gobblin_assets.state.leases import Lease

_COMPRESSION: Final = "zstd"


@dataclass(frozen=True, slots=True)
class BaseWriting:
    """The writing of bases of one job, whose datasets are change logs; ``fs`` and ``root`` are its destination's.

    ``spark`` is used only if there is something to write.
    """

    job: JobSpec
    specs: Mapping[DatasetUrn, DatasetSpec]
    stores: Stores
    spark: SinkSpark
    destination: Destination
    fs: FileSystem
    root: str
    clock: Clock
    say: Callable[[str], None]

    def carry_out(
        self, maintenance: MaintenanceRun, urns: Sequence[DatasetUrn], *, changes_min: int | None = None
    ) -> tuple[Sequence[Publication], Mapping[DatasetUrn, GobblinError]]:
        """Write a base of each log that has enough changes behind its last one; what was published, and what failed.

        ``changes_min`` None: as the job says. What has no rows of a table, or not yet, is left out, and said. Files of
        earlier bases whose grace is over are removed.
        """
        enough = self._find_minimum() if changes_min is None else changes_min
        failures: dict[DatasetUrn, GobblinError] = {}
        due: dict[DatasetUrn, DatasetUrn] = {}
        for urn in urns:
            try:
                base = self._require_free_name(urn)
                if self._is_due(urn, enough):
                    due[base] = urn
            except GobblinError as error:
                failures[urn] = error
        name = JobName(self.job.job)
        ids = self.stores.datasets.register(name, list(due))

        def check(urn: DatasetUrn, lease: Lease) -> None:
            check_log(self.stores.commits, self.fs, self.root, name, urn, lease)

        def work(held: HeldDataset) -> Sequence[Publication]:
            return self._write(held, due[held.urn], enough)

        self.destination.require()
        done, failed = maintenance.publish_each("base", ids, check, work)
        self._clean(maintenance, urns)
        return done, {**failures, **{due[base]: error for base, error in failed.items()}}

    def _find_minimum(self) -> int:
        return (self.job.sink.bases or BasesSpec()).changes_min

    def _find(self, urn: DatasetUrn) -> CurrentView:
        return find_current(self.stores.published, JobName(self.job.job), urn)

    def _is_due(self, urn: DatasetUrn, enough: int) -> bool:
        try:
            view = self._find(urn)
        except RejectedError as error:
            self.say(f"{urn}: no base, since {error.message}")
            return False
        return self._is_long(urn, view, enough)

    def _is_long(self, urn: DatasetUrn, view: CurrentView, enough: int) -> bool:
        if view.copies_max is not None:
            self.say(f"{urn}: no new base, since a copy of the table is being made")
            return False
        behind = view.changes_behind
        is_due = behind >= max(1, enough)
        if not is_due:
            self.say(f"{urn}: no new base, {behind:,} changes are behind the last one")
        return is_due

    def _require_free_name(self, urn: DatasetUrn) -> DatasetUrn:
        base = parse_urn(name_base(urn))
        if base in self.specs:
            raise RejectedError(
                f"{base!a} is a dataset of the job, and the name of the bases of {urn!a}",
                field=f"datasets[{base}].urn",
                hint="Give the dataset another name.",
            )
        return base

    def _write(self, held: HeldDataset, urn: DatasetUrn, enough: int) -> Sequence[Publication]:
        replacement = Replacement(
            job=self.job,
            run_id=held.run_id,
            store=self.stores.commits,
            driver=held.driver,
            destination=self.destination,
            clock=self.clock,
            say=self.say,
            require=held.require,
        )
        replacement.require_directories(held.urn)
        version = replacement.find_version(held.lease)
        # Another process may have written one, before the lease was ours.
        view = self._find(urn)
        if not self._is_long(urn, view, enough):
            return ()
        self.say(f"{urn}: a base is written, since {view.changes_behind:,} changes are behind the last one")
        session = self.spark.get_session(self.job)
        with spark_families(f"write a base of {urn}"):
            rebuilt = view.rebuild(session)
        origin = view.describe_base(rebuilt)
        if origin is None:
            return ()
        spec = self.specs[urn].writer
        is_parquet = FileFormat(self.job.sink.format) is FileFormat.PARQUET
        work = _BaseWork(session, self.fs, rebuilt.rows, spec.compression if is_parquet else _COMPRESSION)
        publication = replacement.publish(
            ReplacementOrder(
                urn=held.urn,
                partition="",
                lease=held.lease,
                base_version=version,
                moves=(),
                open_work=lambda: work,
                compaction={"base_of": urn, "changes": view.changes_behind},
                details={"source_facts": origin.write(), "notes": [f"the rows of {urn} at {origin.place}"]},
            )
        )
        self.say(f"{urn}: a base of {publication.row_count:,} rows in {publication.file_count:,} files")
        return (publication,)

    def _clean(self, maintenance: MaintenanceRun, urns: Sequence[DatasetUrn]) -> None:
        known = self.stores.datasets.load(JobName(self.job.job), [name_base(urn) for urn in urns])
        for urn, state in known.items():
            try:
                maintenance.operations.clean(
                    state,
                    root_uri=self.destination.root_uri,
                    retire_grace_s=self.job.retire_grace_s,
                    fold=self.job.log.bounds,
                )
            except GobblinError as error:
                self.say(f"{urn}: what earlier bases left is removed by the next one: {error}")


def open_base_writing(
    job: JobSpec,
    specs: Mapping[DatasetUrn, DatasetSpec],
    stores: Stores,
    spark: SinkSpark,
    say: Callable[[str], None],
    open_files: OpenFiles = open_file_system,
) -> BaseWriting:
    """RejectedError for a job whose datasets are no change logs."""
    if not is_one_stream(job):
        raise RejectedError(
            "only change logs of databases have bases",
            field="source.type",
            hint="Files of other datasets are compacted by: gobblin-assets compact JOB_FILE.",
        )
    fs, root = open_files(job.destination, umask=job.umask)
    clock = SystemClock()
    destination = open_destination(
        DestinationRequest(JobName(job.job), job.destination, fs, root, stores, open_files, clock.new_id)
    )
    return BaseWriting(job, specs, stores, spark, destination, fs, root, clock, say)


@dataclass(frozen=True, slots=True)
class _BaseWork:
    session: SparkSession
    fs: FileSystem
    rows: DataFrame
    compression: str

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        return describe_interruption(find_session_identity(self.session), tag)

    def write(self, directory: str, tag: str) -> Sequence[WrittenAnew]:
        with open_cancellation(self.session).tagged(tag):
            observed, counted = observe_positions(self.rows, ())
            write_parquet(observed, self.fs.to_uri(directory), compression=self.compression)
            seen = counted.get()
            row_count = self._count() if seen is None else seen.row_count
        found = collect_output(self.fs, directory)
        self._require_whole(directory, row_count, sum(each.row_count for each in found))
        outputs = [Output(Role.DATA, each.path, each.partition_path, each.files) for each in found]
        return [WrittenAnew(Role.DATA, self.rows.schema.jsonValue(), outputs)]

    def _count(self) -> int:
        with spark_families("count the rows of a base"):
            return self.rows.count()

    def _require_whole(self, directory: str, rows_read: int, rows_written: int) -> None:
        if rows_written == rows_read:
            return
        refuse_blind_writers(self.session, self.fs.to_uri(directory))
        raise RetryableError(
            f"a base has {rows_read:,} rows, and its files hold {rows_written:,}",
            hint="Nothing of it is published, and the base of before stands. The next one is written anew.",
            rows_read=rows_read,
            rows_written=rows_written,
        )
