"""Compaction: the small files of a partition are rewritten as few large files, which replace it as a refresh does.

The promise. Readers find the same rows before and after, each once, in the same roles and directories. Ledger and
watermarks do not change, so that late windows and windows of logs go on as before.

Who is authoritative. The log, as for any sequence: the same code begins, stages, seals, executes, finishes and recovers
a compaction. It replaces exactly the files that were read: the dataset is held as a whole, and the seal compares the
version of its lane 0 with that before they were listed, so files that were published since are never retired.

What keeps rows from being lost. Files of different schemas stay apart, each written with its own schema and version.
Rows are counted in the footers of the new files, and compared with the log; a checksum that does not depend on their
order is compared as well. If either differs, the compaction is never sealed.

Events. Dagster gets no materialization, because the data did not change.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.published.port import PublishedFiles, PublishedPartition, PublishedSegment
from gobblin_assets.commit.segment import Segment, combine_digests, encode_segments
from gobblin_assets.commit.sequence import COMPACTION, NewAttempt, NewSequence, Publication, SealOrder, StagedAttempt
from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.state import AttemptId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination, Target
from gobblin_assets.run.job_kind import Output, RewriteOrder, Rewriter
from gobblin_assets.run.job_rules import CompactionRules, JobRules
from gobblin_assets.run.run_values import RunPorts, RunRequest
from gobblin_assets.state.leases import Lease

_ERROR_TEXT_MAX: Final = 4_000


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
    """Compacts partitions of datasets that the caller holds; ``driver`` and ``require`` are those of its leases.

    ``open_rewriter`` is called only if there is something to write. ``run_id``: the run of the compaction.
    """

    job: JobRules
    run_id: RunId
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
        self._require_rewritable(urn)
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
        self._require_rewritable(urn)
        job = JobName(self.job.job)
        base_version = self._find_version(job, lease)
        groups = self._list_groups(job, urn, partition)
        if not groups:
            return None
        sequence_id = SequenceId(self.clock.new_id())
        moves = self.driver.store.list_standing_moves(lease.dataset_id, partition)
        new = NewSequence(
            sequence_id=sequence_id,
            dataset_id=lease.dataset_id,
            run_id=self.run_id,
            partition=partition,
            mode=Mode.REFRESH,
            replaces=True,
            fence=lease.fence,
            root_uri=self.destination.root_uri,
            lease_ttl_s=self.job.lease.ttl_s,
        )
        self.driver.store.begin(new)
        with self._aborting(sequence_id, lease):
            staged = self._stage(new, urn, groups, lease, spec)
            segments = staged.segments
            file_count = sum(segment.file_count for group in groups for segment in group.segments)
            order = SealOrder(
                sequence_id=sequence_id,
                dataset_id=lease.dataset_id,
                partition=partition,
                fence=lease.fence,
                base_version=base_version,
                winners=(staged.attempt_id,),
                digest=combine_digests(segment.digest for segment in segments),
                segment_count=len(segments),
                row_count=sum(segment.row_count for segment in segments),
                moves=tuple(moves),
                complete=True,
                details={
                    "uri": self.destination.uri_of(urn, Role.DATA),
                    COMPACTION: {"files_before": file_count},
                    "notes": [f"{file_count} files of published rows were rewritten"],
                },
            )
            reach(Failpoint.STAGED_BEFORE_SEAL)
            self.require(lease)
            self.driver.store.seal(order)
        publication = self.driver.publish(sequence_id, lease)
        self.driver.store.mark_announced(sequence_id)
        return publication

    def _require_rewritable(self, urn: DatasetUrn) -> None:
        """A rewriter reads again what it wrote, in staging, before that is published as whole directories."""
        if self.destination.names_for(Target(urn, "", SequenceId(self.clock.new_id()), 0)) is not None:
            raise RejectedError(
                f"files at {self.destination.root_uri} can't be compacted: they are published one by one",
                field="destination",
                hint="Have fewer, larger files from the start: less often, or with larger `split.work_unit_rows`. A "
                "refresh of a partition writes it anew.",
                urn=urn,
            )

    def _find_version(self, job: JobName, lease: Lease) -> int:
        """Of the lane whose fence the seal names; the files of all lanes are listed after it."""
        lanes = self.driver.store.look_at(job, [lease.dataset_id], []).lanes
        return next((lane.version for lane in lanes if lane.number == 0), 0)

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

    def _stage(
        self, new: NewSequence, urn: DatasetUrn, groups: Sequence[_Group], lease: Lease, spec: CompactionRules
    ) -> StagedAttempt:
        attempt = self._register(new, self.open_rewriter(), lease)
        try:
            written = [
                (group, number, self._rewrite(urn, group, f"{attempt.directory}/{number}", attempt, spec))
                for number, group in enumerate(groups)
            ]
            self._make_durable(attempt.directory, [each for _group, _number, found in written for each in found])
        except GobblinError as error:
            self._fail(attempt.attempt_id, error)
            raise
        except OSError as error:
            failure = RetryableError(f"{urn}: {error}", hint="The next compaction tries again.", urn=urn)
            self._fail(attempt.attempt_id, failure)
            raise failure from error
        segments = tuple(
            segment for group, number, found in written for segment in self._segments(new, urn, group, number, found)
        )
        staged = StagedAttempt(
            attempt_id=attempt.attempt_id,
            sequence_id=new.sequence_id,
            fence=lease.fence,
            segments=segments,
            segment_ids=tuple(self.clock.new_id() for _segment in segments),
        )
        self.require(lease)
        self.driver.store.stage(staged)
        return staged

    def _register(self, new: NewSequence, rewriter: Rewriter, lease: Lease) -> "_Attempt":
        """Record the attempt before its first byte, so that no staging is unknown."""
        attempt_id = AttemptId(self.clock.new_id())
        directory = self.destination.stage(attempt_id)
        tag = f"gobblin-{attempt_id.hex}"
        self.require(lease)
        self.driver.store.register_attempt(
            NewAttempt(
                attempt_id=attempt_id,
                sequence_id=new.sequence_id,
                dataset_id=new.dataset_id,
                fence=new.fence,
                multi_work_unit=0,
                try_number=1,
                staging_path=directory,
                tag=tag,
                interruption=rewriter.describe_interruption(tag),
            )
        )
        return _Attempt(attempt_id, directory, tag, rewriter)

    def _rewrite(
        self, urn: DatasetUrn, group: _Group, directory: str, attempt: "_Attempt", spec: CompactionRules
    ) -> Sequence[Output]:
        job = JobName(self.job.job)
        found = attempt.rewriter.rewrite(
            RewriteOrder(job, urn, group.role, group.segments, directory, spec.file_bytes_target, attempt.tag)
        )
        written = sum(file.row_count for each in found for file in each.files)
        if written != group.row_count:
            raise CorruptionError(
                f"{urn}: {written:,} rows were written, but {group.row_count:,} are published ({group.role})",
                hint="Nothing was replaced. `gobblin-assets verify --checksums` checks the files.",
                urn=urn,
            )
        return found

    def _make_durable(self, directory: str, written: Sequence[Output]) -> None:
        reach(Failpoint.ATTEMPT_WRITTEN)
        self.destination.make_durable({directory: written})
        reach(Failpoint.ATTEMPT_DURABLE)

    def _segments(
        self, new: NewSequence, urn: DatasetUrn, group: _Group, number: int, written: Sequence[Output]
    ) -> Iterator[Segment]:
        steps = self.destination.steps_for(written, Target(urn, new.partition, new.sequence_id, number))
        schema = group.segments[0].file_schema
        for segment in encode_segments(steps, role=group.role, partition=new.partition, file_schema=schema):
            yield replace(segment, version=group.version)

    @contextmanager
    def _aborting(self, sequence_id: SequenceId, lease: Lease) -> Iterator[None]:
        """Abort the sequence on an error if it was not sealed; leave it to recovery if it may have been sealed."""
        try:
            yield
        except (FencedError, OutcomeUnknownError):
            raise
        except GobblinError as error:
            try:
                self.driver.store.abort(sequence_id, fence=lease.fence, error=str(error)[:_ERROR_TEXT_MAX])
            except ConflictError:
                # It was sealed, and will be tried again.
                raise error from None
            except GobblinError as second:
                self.say(f"the compaction could not be aborted; the next run does it: {second}")
            raise

    def _fail(self, attempt_id: AttemptId, error: GobblinError) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_TEXT_MAX]
        try:
            self.driver.store.fail_attempt(attempt_id, error=text, cancelled=isinstance(error, FencedError))
        except GobblinError as second:
            self.say(f"the failure of an attempt could not be recorded: {second}")


@dataclass(frozen=True, slots=True)
class _Attempt:
    attempt_id: AttemptId
    directory: str
    tag: str
    rewriter: Rewriter


def open_compaction(
    request: RunRequest, ports: RunPorts, run_id: RunId, driver: Driver, require: Callable[[Lease], None]
) -> Compaction | None:
    """The compaction of a run. None: its job kind does not rewrite files."""
    if not ports.kind.can_rewrite:
        return None
    return Compaction(
        job=request.job,
        run_id=run_id,
        driver=driver,
        published=ports.stores.published,
        destination=ports.destination,
        clock=ports.clock,
        say=ports.say,
        require=require,
        open_rewriter=ports.kind.open_rewriter,
    )
