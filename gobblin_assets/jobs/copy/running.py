"""The parts that a run of a copy needs, from the environment."""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from gobblin_assets.commit.published.current import list_current
from gobblin_assets.commit.published.port import PublishedFiles
from gobblin_assets.destinations.named_tree import NamedTree
from gobblin_assets.fs.named_files import require_named_files
from gobblin_assets.fs.posix_tree import PosixTree
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec, CopySpec
from gobblin_assets.jobs.copy.kind import CopyKind, IsOurs
from gobblin_assets.jobs.copy.parsing import CopyDataset, find_copy_datasets, open_source_tree
from gobblin_assets.jobs.copy.transfer.local import LocalTransfer
from gobblin_assets.jobs.copy.worker import CopyWorker
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.run.run_values import DatasetReport, RunPorts
from gobblin_assets.run.stores import Stores


@dataclass(frozen=True, slots=True)
class PosixCopyTrees:
    """``CopyTrees`` on local disks and mounted file systems."""

    job: CopySpec

    def open_source(self, spec: CopyDatasetSpec) -> tuple[Tree, str]:
        return open_source_tree(self.job.source, spec)

    def open_destination(self, *, hidden: frozenset[str]) -> Tree:
        return PosixTree("destination", hidden=hidden)


@contextmanager
def open_copy_run(
    job: CopySpec, stores: Stores, say: Callable[[str], None], on_publication: Callable[[DatasetReport], None]
) -> Iterator[RunPorts]:
    """What a run of ``job`` needs. Its datasets are found now."""
    fs, root = open_file_system(job.destination)
    clock = SystemClock()
    datasets = list_copy_datasets(job)
    files = require_named_files(fs)
    destination = NamedTree(
        *(JobName(job.job), job.destination, fs, root, stores, open_file_system, clock.new_id),
        keep_s=job.trash_keep_s,
        places={urn: each.found.destination for urn, each in datasets.items()},
    )
    with LocalTransfer() as transfer:
        yield RunPorts(
            stores=stores,
            destination=destination,
            open_file_system=open_file_system,
            kind=CopyKind(
                datasets,
                PosixCopyTrees(job),
                files,
                root,
                find_published_by(stores.published, JobName(job.job)),
                lambda: CopyWorker(*(files, transfer, clock, say), workers=job.workers, rereads=job.verify == "reread"),
                clock.new_id,
            ),
            interrupt=lambda _attempt: None,
            clock=clock,
            say=say,
            on_publication=on_publication,
        )


def list_copy_datasets(job: CopySpec) -> Mapping[DatasetUrn, CopyDataset]:
    """Every dataset of the job, as written or as its finder finds them now."""
    return find_copy_datasets(job, dt.datetime.now(dt.UTC))


def find_published_by(published: PublishedFiles, job: JobName) -> IsOurs:
    """Ask the log which files the job published last; once for a dataset."""

    def of_dataset(urn: DatasetUrn) -> Callable[[str, FileIdentity], bool]:
        found = published.find(job, urn, role=Role.DATA)
        files = list_current(() if found is None else found.segments)
        current = {file.path: file.identity for _segment, file in files}

        def is_ours(path: str, identity: FileIdentity) -> bool:
            known = current.get(path)
            return known is not None and known.matches(identity)

        return is_ours

    return of_dataset
