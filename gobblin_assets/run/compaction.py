"""Compaction: the small files of a partition are rewritten as few large files, which replace it as a refresh does.

The promise. Readers find the same rows before and after, each once, in the same roles and directories. Ledger and
watermarks do not change, so that late windows and windows of logs go on as before.

Who is authoritative. The log, as for any sequence: the same code begins, stages, seals, executes, finishes and recovers
a compaction. It replaces exactly the files that were read. For this, the dataset is held as a whole, and the seal
compares the version of lane 0 with the version before the files were listed. So files that were published since are
never retired.

What keeps rows from being lost. Files of different schemas stay apart, each written with its own schema and version.
Rows are counted in the footers of the new files, and compared with the log; a checksum that does not depend on their
order is compared as well. If either differs, the compaction is never sealed.

Events. Dagster gets no materialization, because the data did not change.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedPartition, PublishedSegment
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.commit.store import SequenceSealer
from gobblin_assets.errors import ConflictError, CorruptionError, GobblinError
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.state import RunId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination
from gobblin_assets.run.job_kind import Output, RewriteOrder, Rewriter
from gobblin_assets.run.job_rules import CompactionRules, JobRules
from gobblin_assets.run.replacement import Replacement, ReplacementOrder, WrittenAnew
from gobblin_assets.run.run_values import RunPorts, RunRequest
from gobblin_assets.state.leases import Lease


@dataclass(frozen=True, slots=True)
class _Group:
    """Segments of one role and schema, which are written together."""

    role: Role
    segments: tuple[PublishedSegment, ...]

    @property
    def version(self) -> int:
        return max(segment.version for segment in self.segments)

    @property
    def row_count(self) -> int:
        return sum(segment.row_count for segment in self.segments)


def plan_compaction(partitions: Sequence[PublishedPartition], spec: CompactionRules) -> list[PublishedPartition]:
    """The partitions at rest with many small files, the one with most files first."""
    found = [
        each
        for each in partitions
        if each.file_count >= max(2, spec.files_min)
        and each.quiet_s >= spec.quiet_s
        and 2 * -(-each.file_bytes // spec.file_bytes_target) <= each.file_count
    ]
    return sorted(found, key=lambda each: (-each.file_count, each.partition))


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of datasets that the caller holds; ``driver`` and ``require`` are those of its leases.

    ``open_rewriter`` is called only if there is something to write. ``run_id``: the run of the compaction.
    """

    job: JobRules
    run_id: RunId
    store: SequenceSealer
    driver: Driver
    published: PublishedFiles
    destination: Destination
    clock: Clock
    say: Callable[[str], None]
    require: Callable[[Lease], None]
    open_rewriter: Callable[[], Rewriter]

    def compact_all(self, leases: Mapping[DatasetUrn, Lease], spec: CompactionRules) -> None:
        """``compact_rested`` for each dataset without open sequences; a failure is reported and left to the next."""
        for urn, lease in leases.items():
            try:
                if not self.driver.store.find_unfinished(lease.dataset_id):
                    self.compact_rested(urn, lease, spec)
            except GobblinError as error:
                self.say(f"{urn}: its compaction is left to the next run: {error}")

    def compact_rested(self, urn: DatasetUrn, lease: Lease, spec: CompactionRules) -> list[Publication]:
        """Compact the partitions at rest of a leased dataset without open sequences. RejectedError as ``compact``."""
        self._open_replacement().require_directories(urn)
        found = plan_compaction(self.published.list_partitions(JobName(self.job.job), urn), spec)
        done = []
        for each in found[: spec.partitions_per_run_max]:
            label = f"{urn} [{each.partition}]" if each.partition else urn
            self.say(f"{label}: {each.file_count:,} files of {each.file_bytes:,} bytes are written anew")
            publication = self.compact(urn, each.partition, lease, spec=spec)
            if publication is not None:
                self.say(f"{label}: compacted to {publication.file_count:,} files")
                done.append(publication)
        return done

    def compact(self, urn: DatasetUrn, partition: str, lease: Lease, *, spec: CompactionRules) -> Publication | None:
        """Compact one partition of a leased dataset without open sequences. None: the partition has no files.

        Raises:
            RejectedError: the destination can't take rewritten files.
            ConflictError: another process published meanwhile.
            CorruptionError: a file is not what the log says, or the rows written are not those read.

        """
        replacement = self._open_replacement()
        replacement.require_directories(urn)
        base_version = replacement.find_version(lease)
        groups = self._list_groups(JobName(self.job.job), urn, partition)
        if not groups:
            return None
        file_count = sum(segment.file_count for group in groups for segment in group.segments)
        return replacement.publish(
            ReplacementOrder(
                urn=urn,
                partition=partition,
                lease=lease,
                base_version=base_version,
                moves=self.driver.store.list_no_op_moves(lease.dataset_id, partition),
                open_work=lambda: _Rewriting(JobName(self.job.job), urn, groups, self.open_rewriter(), spec),
                compaction={"files_before": file_count},
                details={"notes": [f"{file_count} files of published rows were rewritten"]},
            )
        )

    def _open_replacement(self) -> Replacement:
        return Replacement(
            job=self.job,
            run_id=self.run_id,
            store=self.store,
            driver=self.driver,
            destination=self.destination,
            clock=self.clock,
            say=self.say,
            require=self.require,
        )

    def _list_groups(self, job: JobName, urn: DatasetUrn, partition: str) -> list[_Group]:
        """All files to replace, as of one version of the dataset."""
        versions: set[int] = set()
        groups: list[_Group] = []
        for role in Role:
            found = self.published.find(job, urn, role=role, partitions=[partition])
            if found is None:
                continue
            versions.add(found.version)
            of_schema: dict[str, list[PublishedSegment]] = defaultdict(list)
            for segment in found.segments:
                of_schema[repr(segment.file_schema)].append(segment)
            groups += [_Group(role, tuple(segments)) for segments in of_schema.values()]
        if len(versions) > 1:
            raise ConflictError(
                f"{urn} was published to while its files were listed", hint="Compact it again.", urn=urn
            )
        return groups


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """Each group's rows, by the rewriter, into a directory of its own."""

    job: JobName
    urn: DatasetUrn
    groups: Sequence[_Group]
    rewriter: Rewriter
    spec: CompactionRules

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        return self.rewriter.describe_interruption(tag)

    def write(self, directory: str, tag: str) -> Sequence[WrittenAnew]:
        return [
            WrittenAnew(
                group.role,
                group.segments[0].file_schema,
                self._rewrite(group, f"{directory}/{number}", tag),
                group.version,
            )
            for number, group in enumerate(self.groups)
        ]

    def _rewrite(self, group: _Group, directory: str, tag: str) -> Sequence[Output]:
        found = self.rewriter.rewrite(
            RewriteOrder(self.job, self.urn, group.role, group.segments, directory, self.spec.file_bytes_target, tag)
        )
        written = sum(file.row_count for each in found for file in each.files)
        if written != group.row_count:
            raise CorruptionError(
                f"{self.urn}: {written:,} rows were written, but {group.row_count:,} are published ({group.role})",
                hint="Nothing was replaced. `gobblin-assets verify --checksums` checks the files.",
                urn=self.urn,
            )
        return found


def open_compaction(
    request: RunRequest, ports: RunPorts, run_id: RunId, driver: Driver, require: Callable[[Lease], None]
) -> Compaction | None:
    """The compaction of a run. None: its job kind does not rewrite files."""
    if not ports.kind.can_rewrite:
        return None
    return Compaction(
        job=request.job,
        run_id=run_id,
        store=ports.stores.commits,
        driver=driver,
        published=ports.stores.published,
        destination=ports.destination,
        clock=ports.clock,
        say=ports.say,
        require=require,
        open_rewriter=ports.kind.open_rewriter,
    )
