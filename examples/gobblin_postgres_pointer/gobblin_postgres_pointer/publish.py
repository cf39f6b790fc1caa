"""Publish a folder of Parquet files as the newest version of a dataset, and move its pointer, both or neither.

    python -m gobblin_postgres_pointer.publish --job maps --dataset cities --lake file:///lake --files ./export \\
        --pointers POINTERS_URL

The log is that of GOBBLIN_DATABASE_URL, or the embedded one. Kill it anywhere: the next publication, or
`gobblin-assets commit recover`, ends what it left. The folder's files are copied, and stay as they are.
"""

import argparse
import shutil
import sys
from pathlib import Path

from pyarrow import parquet as pq
from sqlalchemy import Engine

from gobblin_assets.commit.attempts import final_name, staging_directory
from gobblin_assets.commit.markers import check_log
from gobblin_assets.commit.operations import LogOperations
from gobblin_assets.commit.postgres import PostgresCommitStepStore, PostgresDestinationStore
from gobblin_assets.commit.recovery import recover_dataset
from gobblin_assets.commit.relocation import Place
from gobblin_assets.commit.segment import combine_digests, encode_segments
from gobblin_assets.commit.sequence import NewAttempt, NewSequence, Publication, SealOrder, StagedAttempt
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.commit.store import SequenceSealer
from gobblin_assets.db.engine import connect
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.path_names import encode_segment, list_upwards, path_of
from gobblin_assets.model.state import AttemptId, RunId, SequenceId, WorkingState
from gobblin_assets.model.urn import DatasetUrn, JobName, Role, parse_job_name, parse_urn
from gobblin_assets.settings import read_settings
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder
from gobblin_assets.state.postgres import PostgresDatasetStore, PostgresLeaseStore, PostgresRunStore
from gobblin_postgres_pointer.step import MovePointer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name in ("job", "dataset", "lake", "files", "pointers"):
        parser.add_argument(f"--{name}", required=True)
    asked = parser.parse_args()
    engine = connect(read_settings(), _say)
    try:
        publication = publish(
            engine,
            parse_job_name(asked.job),
            parse_urn(asked.dataset),
            lake=asked.lake,
            files=Path(asked.files),
            pointers=asked.pointers,
        )
    finally:
        engine.dispose()
    _say(f"version {publication.version}: {publication.file_count} files, {publication.row_count} rows")


def publish(engine: Engine, job: JobName, urn: DatasetUrn, *, lake: str, files: Path, pointers: str) -> Publication:
    """``pointers`` names the environment variable with the URL of the pointers' database."""
    clock = SystemClock()
    commits, datasets, runs = PostgresCommitStepStore(engine), PostgresDatasetStore(engine), PostgresRunStore(engine)
    run_id = RunId(clock.new_id())
    operations = LogOperations(
        store=commits,
        leases=PostgresLeaseStore(engine),
        open_file_system=open_file_system,
        interrupt=lambda _attempt: None,
        clock=clock,
        holder=Holder("gobblin_postgres_pointer", run_id),
        say=_say,
    )
    fs, root = open_file_system(lake)
    place = Place(PostgresDestinationStore(engine), commits, datasets, open_file_system, fs, root, job)
    found = place.look()
    if not isinstance(found, str):
        fs.make_destination(root)
        place.settle(found, clock.new_id)
    runs.begin(NewRun(run_id, job, "example"))
    dataset_id = datasets.register(job, [urn])[urn]
    with operations.hold(dataset_id, urn) as (keeper, lease):
        check_log(commits, fs, root, job, urn, lease)
        # Before anything new: what an earlier process sealed is ended first.
        recovered = recover_dataset(operations.driver(keeper), operations.abandonment(), lease)
        if recovered.blocked is not None:
            raise ConflictError(f"sequence {recovered.blocked.sequence_id} is BLOCKED and waits for a person")
        state = datasets.load(job, [urn])[urn]
        new = NewSequence(
            SequenceId(clock.new_id()), dataset_id, run_id, "", Mode.REFRESH, replaces=True, fence=lease.fence,
            root_uri=lake,
        )  # fmt: skip
        staged = _stage(commits, new, job, urn, fs, root, files, pointers)
        _seal(commits, new, staged, state.version)
        publication = operations.driver(keeper).publish(new.sequence_id, lease)
    runs.end(run_id, WorkingState.COMMITTED, error=None, figures={})
    return publication


def _stage(
    commits: SequenceSealer,
    new: NewSequence,
    job: JobName,
    urn: DatasetUrn,
    fs: FileSystem,
    root: str,
    files: Path,
    pointers: str,
) -> StagedAttempt:
    attempt_id = AttemptId(SystemClock().new_id())
    directory = staging_directory("/".join((root, *encode_segment(job))), attempt_id)
    commits.begin(new)
    commits.register_attempt(
        NewAttempt(attempt_id, new.sequence_id, new.dataset_id, new.fence, 0, 1, staging_path=directory)
    )
    target = f"{path_of(root, job, urn)}/{final_name(new.sequence_id, 0)}"
    source = f"{directory}/{Role.DATA.value}"
    steps: list[CommitStep] = [
        RenameDirectory(source, target, _copy(fs, root, files, source)),
        # After the files: its order in the segment is the order in which they are carried out.
        MovePointer(pointers, f"{job}/{urn}", target, str(new.sequence_id)),
    ]
    segments = tuple(encode_segments(steps, role=Role.DATA, partition=""))
    staged = StagedAttempt(
        attempt_id, new.sequence_id, new.fence, segments, tuple(SystemClock().new_id() for _segment in segments)
    )
    commits.stage(staged)
    return staged


def _copy(fs: FileSystem, root: str, files: Path, source: str) -> tuple[DataFile, ...]:
    names = sorted(path.name for path in files.glob("*.parquet"))
    if not names:
        raise RejectedError(
            f"expected *.parquet files in {files}, found none", field="files", hint="Name their folder."
        )
    fs.make_directories(source)
    for name in names:
        shutil.copyfile(files / name, Path(source, name))
    fs.make_durable(f"{source}/{name}" for name in names)
    fs.sync_directories(list_upwards([source], root))
    copied = []
    for name in names:
        identity = fs.find_identity(f"{source}/{name}")
        if identity is None:
            raise ConflictError(f"{source}/{name} is gone", path=f"{source}/{name}")
        copied.append(DataFile(name, identity, pq.read_metadata(f"{source}/{name}").num_rows))
    return tuple(copied)


def _seal(commits: SequenceSealer, new: NewSequence, staged: StagedAttempt, base_version: int) -> None:
    commits.seal(
        SealOrder(
            sequence_id=new.sequence_id,
            dataset_id=new.dataset_id,
            partition=new.partition,
            fence=new.fence,
            base_version=base_version,
            winners=(staged.attempt_id,),
            digest=combine_digests(segment.digest for segment in staged.segments),
            segment_count=len(staged.segments),
            row_count=sum(segment.row_count for segment in staged.segments),
            moves=(),
            complete=True,
        )
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
