"""Compaction of the small world of ``tests.support.lake``: a few lines of pyarrow take Spark's place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gobblin_assets import failpoints
from gobblin_assets.commit.sequence import Publication
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.run.compaction import Compaction
from gobblin_assets.run.job_kind import Output, RewriteOrder
from gobblin_assets.run.run_values import RunPorts, RunRequest
from gobblin_assets.spec.job_spec import CompactionSpec
from gobblin_assets.state.datasets import NewRun
from tests.support.forks import FORKS
from tests.support.lake import JOB, Lake, Worker, World

ALL = CompactionSpec(files_min=2, quiet_s=0.0)


class ArrowRewriter:
    """Writes all rows into one file, except ``loses`` of them."""

    def __init__(self, root: str, *, loses: int = 0) -> None:
        self._fs, _root = open_file_system(root)
        self._loses = loses

    def describe_interruption(self, tag: str) -> Mapping[str, object] | None:
        return None

    def rewrite(self, order: RewriteOrder) -> Sequence[Output]:
        tables = [pq.ParquetFile(file.path).read() for segment in order.segments for file in segment.files()]
        table = pa.concat_tables(tables)
        path = Path(order.directory, "part-0.parquet")
        path.parent.mkdir(parents=True)
        pq.write_table(table.slice(self._loses), path, write_page_checksum=True)
        identity = self._fs.find_identity(str(path))
        if identity is None:
            # Another process took the dataset over while this one slept, and put the directory aside.
            raise FileNotFoundError(f"{path} is gone")
        file = DataFile(path.name, identity, table.num_rows - self._loses)
        return [Output(order.role, order.directory, "", (file,))]


class CompactingWorld(World):
    """A world whose runs and streams compact everything that they may."""

    def _request(self, urns: Sequence[str], *, mode: Mode, by_hand: bool) -> RunRequest:
        request = super()._request(urns, mode=mode, by_hand=by_hand)
        return replace(request, job=request.job.model_copy(update={"compaction": ALL}))

    def _ports(self) -> RunPorts:
        ports = super()._ports()
        return replace(ports, kind=replace(ports.kind, make_rewriter=lambda: ArrowRewriter(self.lake.root)))


def compact(world: World, urn: str, *, loses: int = 0) -> Publication | None:
    """Compact the dataset's files, as the command does."""
    operations, lake = world.operations(), world.lake
    name, job = DatasetUrn(urn), JobName(JOB)
    run_id = operations.holder.run_id
    world.stores.runs.begin(NewRun(run_id, job, "test"))
    with operations.hold(world.stores.datasets.load(job, [name])[name].dataset_id, name) as (keeper, lease):
        compaction = Compaction(
            job=lake.job(),
            run_id=run_id,
            store=world.stores.commits,
            driver=operations.driver(keeper),
            published=world.stores.published,
            destination=world.open_destination(),
            clock=SystemClock(),
            say=world.lines.append,
            require=keeper.require,
            open_rewriter=lambda: ArrowRewriter(lake.root, loses=loses),
        )
        return compaction.compact(name, "", lease, spec=ALL)


def start_compaction(lake: Lake, failpoint: str) -> Worker:
    """Compact every dataset in a process of its own."""
    log = Path(lake.directory, f"{failpoint}.log")
    process = FORKS.Process(target=_work, args=(lake, failpoint, str(log)))
    process.start()
    return Worker(process, log)


def _work(lake: Lake, failpoint: str, log: str) -> None:
    world = World(lake)
    failpoints.arm(failpoint, log)
    for urn in lake.urns:
        compact(world, urn)
