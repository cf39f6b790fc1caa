"""The parts that a run of a copy needs, from the environment."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from gobblin_assets.commit.published.current import NO_NAMES, CurrentNames, sort_current
from gobblin_assets.commit.published.published_port import PublishedFiles, PublishedSegment
from gobblin_assets.commit.sequence import AttemptRecord
from gobblin_assets.destinations.claims import claim_path
from gobblin_assets.destinations.fixed_names.given_names import NamedObjects, NamedTree
from gobblin_assets.events.outbox import open_events
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.objects import HoldsObjects, ObjectFiles
from gobblin_assets.fs.registry import is_object_store, open_file_system
from gobblin_assets.jobs.copy.budgets import CopyBudget
from gobblin_assets.jobs.copy.copy_kind import CopyKind, IsOurs
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.copy_trees import CopyTreesByUri, require_source
from gobblin_assets.jobs.copy.file_staging import FileStaging
from gobblin_assets.jobs.copy.parsing import (
    CopyDataset,
    find_copy_datasets,
    is_over_network,
    open_source_tree,
    without_sets,
)
from gobblin_assets.jobs.copy.source_ledger import LedgerOfLog, SourceLedger, reads_ledger
from gobblin_assets.jobs.copy.targets import FindPublished, ObjectTargets
from gobblin_assets.jobs.copy.transfer.choice import ChosenTransfer, SparkSessions
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.transfer.rates import SharedCopyRate
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferWay
from gobblin_assets.jobs.copy.uploading import REQUESTS_PER_WORKER, ObjectStaging, open_planned
from gobblin_assets.jobs.copy.worker import CopyWorker
from gobblin_assets.model.clock import Clock, SystemClock
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.destination import Destination, DestinationRequest
from gobblin_assets.run.own_process import look_for_garbage_seldom
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.stores import Stores
from gobblin_assets.state.rate_shares import SharedRate


@dataclass(slots=True)
class KnownFiles:
    """The published files of one dataset, as the log says: read once for each version. Its file sets are planned one
    after another. Few of them are in memory.
    """

    published: PublishedFiles
    job: JobName
    _kept: tuple[DatasetUrn, int, CurrentNames] | None = field(default=None, init=False)

    def find(self, urn: DatasetUrn) -> CurrentNames:
        """What is returned does not change later."""
        kept = self._kept
        if kept is not None and kept[0] == urn:
            # Of no partition: the version alone.
            now = self.published.find(self.job, urn, role=Role.DATA, partitions=())
            if now is not None and now.version == kept[1]:
                return kept[2]
        self._kept = None
        found = self.published.scan(self.job, urn, role=Role.DATA, read=_read)
        if found is None:
            return NO_NAMES
        self._kept = urn, *found
        return found[1]


def _read(version: int, segments: Iterator[PublishedSegment]) -> tuple[int, CurrentNames]:
    return version, sort_current(segments)


@contextmanager
def open_copy_run(
    job: CopySpec,
    stores: Stores,
    say: Callable[[str], None],
    on_publication: Callable[[DatasetReport], None],
    spark: SparkSessions | None = None,
    *,
    known: Mapping[DatasetUrn, CopyDatasetSpec] = MappingProxyType({}),
) -> Iterator[RunPorts]:
    """The ports of a run of ``job``. Its datasets are found now; of ``known``, those that are gone have no file sets.

    ``spark`` None: nothing is copied by Spark.
    """
    fs, root = open_file_system(job.destination)
    clock = SystemClock()
    gone = {urn: CopyDataset(spec, without_sets(spec)) for urn, spec in known.items()}
    found = list_copy_datasets(job)
    if not found or not all(reads_ledger(each.spec) for each in found.values()):
        # A job that has published nothing may not have made its root.
        _require_source_at_first(job, fs, root)
    ledger = LedgerOfLog(stores.published, stores.destinations, job.source)
    datasets = {**gone, **found}
    if not found:
        say(f"the finder found no dataset below {job.source}")
    request = DestinationRequest(JobName(job.job), job.destination, fs, root, stores, open_file_system, clock.new_id)
    places = {urn: each.found.destination for urn, each in datasets.items()}
    rate = _open_rate(job, stores, clock, say)
    destination: Destination
    with look_for_garbage_seldom(), LocalTransfer() as local:
        if isinstance(fs, HoldsObjects):
            objects = NamedObjects(request, keep_s=job.trash_keep_s, places=places)
            destination, kind = objects, _copy_to_objects(job, fs.objects, objects, stores, datasets, say, rate, ledger)
        else:
            files, published = require_named_files(fs), KnownFiles(stores.published, JobName(job.job))
            reuse_s = 0.0 if isinstance(files, StagingFiles) else job.reuse_keep_s
            destination = NamedTree(request, keep_s=job.trash_keep_s, places=places, reuse_s=reuse_s)
            # Executors have no access to stores and clusters: what gives it stays in this process.
            is_far = is_object_store(job.source) or is_over_network(job.source) or is_over_network(job.destination)
            way = TransferWay.LOCAL if is_far else job.transfer
            transfer = ChosenTransfer(way, local, spark, say)
            staging = FileStaging(
                files,
                transfer,
                workers=job.workers,
                rereads=job.verify == "reread",
                journals=job.reuse_keep_s > 0,
            )
            kind = CopyKind(
                datasets=datasets,
                trees=CopyTreesByUri(job),
                files=files,
                root=root,
                is_ours=find_published_by(published),
                make_worker=lambda: CopyWorker(staging, clock, say, rate),
                new_id=clock.new_id,
                budget=CopyBudget(job.files_per_run_max, job.bytes_per_run_max),
                ledger=ledger,
            )
        yield RunPorts(
            stores=stores,
            destination=destination,
            open_file_system=open_file_system,
            kind=kind,
            interrupt=_interrupt_nothing if spark is None else spark.interrupt,
            clock=clock,
            say=say,
            on_publication=on_publication,
            events=open_events(job, stores, clock, say),
        )


def _require_source_at_first(job: CopySpec, fs: FileSystem, root: str) -> None:
    """A job whose source is wrong must not claim its destination. A later run has work to complete there, even so."""
    if fs.find_identity(claim_path(root)) is None:
        require_source(*open_source_tree(job.source, job.defaults))


def _copy_to_objects(
    job: CopySpec,
    objects: ObjectFiles,
    destination: NamedObjects,
    stores: Stores,
    datasets: Mapping[DatasetUrn, CopyDataset],
    say: Callable[[str], None],
    rate: SharedCopyRate | None,
    ledger: SourceLedger,
) -> CopyKind:
    clock, known = SystemClock(), KnownFiles(stores.published, JobName(job.job))

    def find_known(root: str) -> FindPublished:
        """The files that were published there last, as the log says."""
        places = ((urn, destination.place_of(urn)) for urn in datasets)
        inside = [known.find(urn) for urn, place in places if root == place or root.startswith(f"{place}/")]
        if len(inside) == 1:
            return inside[0].find
        return lambda path: next((found for each in inside if (found := each.find(path)) is not None), None)

    return CopyKind(
        datasets=datasets,
        trees=CopyTreesByUri(job, ObjectTargets(objects, find_known)),
        files=None,
        root=destination.root,
        is_ours=find_published_by(known),
        make_worker=lambda: CopyWorker(
            ObjectStaging(objects, destination.place_of, open_planned, job.workers * REQUESTS_PER_WORKER),
            clock,
            say,
            rate,
        ),
        new_id=clock.new_id,
        budget=CopyBudget(job.files_per_run_max, job.bytes_per_run_max),
        ledger=ledger,
    )


def _open_rate(job: CopySpec, stores: Stores, clock: Clock, say: Callable[[str], None]) -> SharedCopyRate | None:
    if job.rate is None:
        return None
    rate = SharedRate(job.rate.name, job.rate.bytes_per_s, job.rate.files_per_s, job.rate.shares)
    return SharedCopyRate(stores.rate_shares, rate, clock, say, ttl_s=job.lease.ttl_s)


def _interrupt_nothing(_attempt: AttemptRecord) -> None:
    return


def list_copy_datasets(job: CopySpec) -> Mapping[DatasetUrn, CopyDataset]:
    """Every dataset of the job, as written or as its finder finds them now."""
    return find_copy_datasets(job, dt.datetime.now(dt.UTC))


def find_published_by(known: KnownFiles) -> IsOurs:
    """Ask the log which files the job published last; once for a dataset."""

    def of_dataset(urn: DatasetUrn) -> Callable[[str, FileIdentity], bool]:
        current = known.find(urn)

        def is_ours(path: str, identity: FileIdentity) -> bool:
            found = current.find(path)
            return found is not None and found.matches(identity)

        return is_ours

    return of_dataset
