"""Publishes DataFrames through the real log, step by step, for tests of readers."""

import datetime as dt
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame
from sqlalchemy import Engine

from gobblin_assets.commit.attempts import final_name, staging_directory
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.postgres import PostgresCommitStepStore
from gobblin_assets.commit.segment import Segment, combine_digests, encode_segments
from gobblin_assets.commit.sequence import KeyMove, NewAttempt, NewSequence, SealOrder, StagedAttempt
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.destinations.files.rooted import target_directory
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.path_names import job_directory, path_of
from gobblin_assets.model.state import AttemptId, DatasetId, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, JobName, Role
from gobblin_assets.rows.hidden_columns import parse_role_path
from gobblin_assets.rows.output_partitions import add_output_partitions
from gobblin_assets.rows.parquet_writer import WrittenDirectory, collect_output, write_parquet
from gobblin_assets.rows.row_quality import RowSplit, split_rows
from gobblin_assets.spec.job_spec import RowPolicySpec, WriterSpec
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease
from gobblin_assets.state.postgres import PostgresDatasetStore, PostgresLeaseStore, PostgresRunStore

JOB = JobName("shop")


@dataclass
class Publisher:
    """One job of one destination. ``seal`` False leaves a sequence BUILDING, ``finish`` False leaves it PREPARED."""

    engine: Engine
    root: Path
    job: JobName = JOB
    published: int = field(default=0, init=False)

    def publish(
        self,
        frame: DataFrame,
        urn: str,
        *,
        partition: str = "",
        replaces: bool = False,
        writer: WriterSpec | None = None,
        policies: tuple[RowPolicySpec, ...] = (),
        details: Mapping[str, object] | None = None,
        seal: bool = True,
        finish: bool = True,
    ) -> None:
        name = DatasetUrn(urn)
        datasets, leases = PostgresDatasetStore(self.engine), PostgresLeaseStore(self.engine)
        store = PostgresCommitStepStore(self.engine)
        dataset_id = datasets.register(self.job, [name])[name]
        run_id, sequence_id, attempt_id = RunId(uuid.uuid4()), SequenceId(uuid.uuid4()), AttemptId(uuid.uuid4())
        PostgresRunStore(self.engine).begin(NewRun(run_id, self.job, "test"))
        (lease,) = leases.take([dataset_id], Holder("test", run_id), ttl_s=60.0)
        directory = staging_directory(job_directory(str(self.root), self.job), attempt_id)
        store.begin(
            NewSequence(sequence_id, dataset_id, run_id, partition, Mode.APPEND, replaces, lease.fence, str(self.root))
        )
        store.register_attempt(NewAttempt(attempt_id, sequence_id, dataset_id, lease.fence, 0, 1, directory))
        split, written = self._write(frame, directory, urn, writer or WriterSpec(), policies)
        segments = self._segments(split, written, name, partition, sequence_id)
        ids = tuple(uuid.uuid4() for _segment in segments)
        store.stage(StagedAttempt(attempt_id, sequence_id, lease.fence, segments, ids))
        self.published += 1
        if seal:
            version = datasets.load(self.job, [name])[name].version
            order = self._order(sequence_id, dataset_id, partition, lease, version, attempt_id, segments)
            store.seal(replace(order, details={**order.details, **(details or {})}))
        if seal and finish:
            Driver(store, open_file_system, lambda _lease: None).publish(sequence_id, lease)
        leases.release([lease])

    def _write(
        self, frame: DataFrame, directory: str, urn: str, writer: WriterSpec, policies: tuple[RowPolicySpec, ...]
    ) -> tuple[RowSplit, list[WrittenDirectory]]:
        partitioned, columns = add_output_partitions(frame, writer, dataset=urn, now=dt.datetime.now(dt.UTC))
        split = split_rows(partitioned, policies, dataset=urn)
        fs, _root = open_file_system(str(self.root))
        fs.make_directories(directory.rpartition("/")[0])
        write_parquet(split.frame, fs.to_uri(directory), partition_columns=(*split.partition_columns, *columns))
        return split, collect_output(fs, directory)

    def _segments(
        self,
        split: RowSplit,
        written: list[WrittenDirectory],
        urn: DatasetUrn,
        partition: str,
        sequence_id: SequenceId,
    ) -> tuple[Segment, ...]:
        segments: list[Segment] = []
        for role, schema in split.schemas.items():
            steps = []
            for output in written:
                found, below = parse_role_path(output.partition_path)
                if found is role:
                    role_path = path_of(str(self.root), self.job, urn, role)
                    target = target_directory(role_path, partition, below, final_name(sequence_id, 0))
                    steps.append(RenameDirectory(output.path, target, output.files))
            segments += encode_segments(steps, role=role, partition=partition, file_schema=schema.jsonValue())
        return tuple(segments)

    def _order(
        self,
        sequence_id: SequenceId,
        dataset_id: DatasetId,
        partition: str,
        lease: Lease,
        version: int,
        attempt_id: AttemptId,
        segments: tuple[Segment, ...],
    ) -> SealOrder:
        return SealOrder(
            sequence_id=sequence_id,
            dataset_id=dataset_id,
            partition=partition,
            fence=lease.fence,
            base_version=version,
            winners=(attempt_id,),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments),
            moves=(KeyMove(f"generation {self.published}", partition, None, None),),
            complete=True,
        )

    def files(self, urn: str, role: Role = Role.DATA) -> list[Path]:
        return sorted(Path(path_of(str(self.root), self.job, DatasetUrn(urn), role)).rglob("*.parquet"))
