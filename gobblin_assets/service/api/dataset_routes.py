"""Routes of ``/api/v1`` for what jobs publish, for their past executions, and for what processes said."""

import datetime as dt
import hashlib
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, Field

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.api.representations import PastExecutionBody, show_past_execution
from gobblin_assets.service.api.request_parts import (
    Asker,
    Key,
    Parts,
    read_dataset_cursor,
    read_execution_cursor,
    read_text_cursor,
    write_cursor,
)
from gobblin_assets.service.dagster_links import DagsterRun
from gobblin_assets.service.guarded_jobs import (
    PAGE_DATASETS_MAX,
    PAGE_PARTITIONS_MAX,
    PAGE_PAST_MAX,
    AwayLog,
    DatasetDetails,
    PublishedDataset,
)
from gobblin_assets.service.specs import FlowKey, parse_flow_key
from gobblin_assets.state.overview import PartitionLine, WatermarkLine

dataset_routes = APIRouter(prefix="/api/v1", tags=["datasets"])


class DatasetBody(BaseModel):
    """A dataset, by the job that publishes it and its URN."""

    urn: str
    job_name: str
    flow_group: str
    flow_name: str
    node: str
    executor: str
    log: str = Field(description="The name of the log in the topology; empty for the service's own database.")
    is_current: bool = Field(description="False: of a job name from before a replan.")
    state: str = Field(description="BLOCKED, WRITING, PUBLISHED or EMPTY.")
    version: int
    published_at: dt.datetime | None
    partitions: int
    rows: int | None = Field(description="Null, like files and bytes, of copies, whose files replace each other.")
    files: int | None
    bytes: int | None
    open_sequence: str | None
    held_by: str | None
    last_outcome: str | None
    last_error: str | None
    last_ended_at: dt.datetime | None


class AwayLogBody(BaseModel):
    """A log that did not answer, and the jobs whose datasets are left out therefore."""

    log: str
    reason: str
    jobs: list[str]


class DatasetsBody(BaseModel):
    """A page of datasets. ``next``: the cursor of the next page, also of a search that has found nothing up to here."""

    datasets: list[DatasetBody]
    away: list[AwayLogBody]
    next: str | None


class PartitionBody(BaseModel):
    """A partition with its last publication; null for a dataset without partitions."""

    partition: str | None
    published_at: dt.datetime
    sequence_id: str
    mode: str
    is_complete: bool
    published_rows: int
    published_files: int
    rows: int | None
    files: int | None
    bytes: int | None


class WatermarkBody(BaseModel):
    """The published position of a key; null for a snapshot, which has none."""

    key: str
    partition: str | None
    watermark: str | None
    moved_at: dt.datetime | None


class OpenSequenceBody(BaseModel):
    """A publication that has not ended."""

    sequence_id: str
    partition: str | None
    state: str
    failed_tries: int
    last_error: str | None
    created_at: dt.datetime


class DatasetDetailsBody(BaseModel):
    """A dataset with a page of its partitions, the greatest first."""

    dataset: DatasetBody
    partitions: list[PartitionBody]
    watermarks: list[WatermarkBody]
    open_sequences: list[OpenSequenceBody]
    next: str | None


class PastExecutionsBody(BaseModel):
    """Executions of a job, the latest first."""

    executions: list[PastExecutionBody]
    next: str | None


class OutputBody(BaseModel):
    """The last lines that the process of an attempt said, without secrets."""

    attempt: int
    updated_at: dt.datetime
    lines: list[str]


class AssetLinkBody(BaseModel):
    """A dataset that the run published, and its page in Dagster."""

    urn: str
    url: str | None


class DagsterRunBody(BaseModel):
    """The run of a job's last attempt in Dagster, with some datasets that it published."""

    run_id: str
    url: str | None
    assets: list[AssetLinkBody]


class JobOutputBody(BaseModel):
    """What the processes of a job said, the latest attempt first. ``away``: why it is not known.

    ``dagster_run``: if a Dagster ran the last attempt.
    """

    job_name: str
    away: str | None
    outputs: list[OutputBody]
    dagster_run: DagsterRunBody | None


@dataset_routes.get("/datasets")
def list_datasets(
    parts: Parts,
    user: Asker,
    node: Annotated[str | None, Query(description="Those that are published to this node.")] = None,
    flow_group: Annotated[str | None, Query(description="With flow_name: those of this flow.")] = None,
    flow_name: Annotated[str | None, Query()] = None,
    prefix: Annotated[str, Query(description="The begin of URNs.")] = "",
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_DATASETS_MAX)] = PAGE_DATASETS_MAX,
) -> DatasetsBody:
    """List what the jobs of flows have published, by job and URN. A log that is away hides its own datasets only."""
    page = parts.jobs.list_datasets(
        user,
        flow=read_flow_filter(flow_group, flow_name),
        node=node,
        prefix=prefix,
        after=read_dataset_cursor(cursor),
        limit=limit,
    )
    return DatasetsBody(
        datasets=[_show_dataset(each) for each in page.datasets],
        away=[_show_away(each) for each in page.away],
        next=write_cursor(page.after),
    )


@dataset_routes.get("/datasets/{job_name}/{urn}")
def get_dataset(
    parts: Parts,
    user: Asker,
    job_name: str,
    urn: str,
    cursor: Annotated[str | None, Query(description="`next` of the page of partitions before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_PARTITIONS_MAX)] = PAGE_PARTITIONS_MAX,
) -> DatasetDetailsBody:
    """Get a dataset with its partitions, its watermarks and what is open."""
    before = read_text_cursor(cursor)
    return show_details(parts.jobs.get_dataset(user, unquote(job_name), unquote(urn), before=before, limit=limit))


@dataset_routes.get("/flows/{group}/{name}/jobs/{job_name}")
def list_past_executions(
    parts: Parts,
    user: Asker,
    key: Key,
    job_name: str,
    cursor: Annotated[str | None, Query(description="`next` of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_PAST_MAX)] = PAGE_PAST_MAX,
) -> PastExecutionsBody:
    """List the executions of one of the flow's jobs, the latest first."""
    page = parts.jobs.page_past(user, key, unquote(job_name), after=read_execution_cursor(cursor), limit=limit)
    return PastExecutionsBody(
        executions=[show_past_execution(each) for each in page.executions], next=write_cursor(page.after)
    )


@dataset_routes.get("/flows/{group}/{name}/executions/{execution_id}/jobs/{number}/log", response_model=JobOutputBody)
def get_job_log(
    parts: Parts,
    user: Asker,
    key: Key,
    execution_id: int,
    number: int,
    response: Response,
    ticket: Annotated[int | None, Query(ge=1, description="The number of one of the job's earlier tickets.")] = None,
    if_none_match: Annotated[
        str | None, Header(description="The ETag of what you have: 304 if it is so still.")
    ] = None,
) -> Any:
    """Get the last lines that the processes of a job said, of the latest attempts at its last ticket."""
    found = parts.jobs.get_output(user, key, execution_id, number, ticket=ticket)
    body = JobOutputBody(
        job_name=found.job.job_name,
        away=found.away or None,
        outputs=[
            OutputBody(attempt=each.attempt, updated_at=each.updated_at, lines=each.lines.split("\n"))
            for each in found.outputs
        ],
        dagster_run=None if found.dagster_run is None else _show_dagster_run(found.dagster_run),
    )
    etag = f'"{hashlib.sha256(body.model_dump_json().encode()).hexdigest()[:32]}"'
    if if_none_match == etag:
        return Response(status_code=304, headers={"ETag": etag})
    response.headers["ETag"] = etag
    return body


def _show_dagster_run(run: DagsterRun) -> DagsterRunBody:
    assets = [AssetLinkBody(urn=each.urn, url=each.url) for each in run.assets]
    return DagsterRunBody(run_id=run.run_id, url=run.url, assets=assets)


def read_flow_filter(group: str | None, name: str | None) -> FlowKey | None:
    if not group and not name:
        return None
    if not group or not name:
        raise RejectedError(
            "expected both flow_group and flow_name",
            field="flow_group" if not group else "flow_name",
            hint="Give both.",
        )
    return parse_flow_key(group, name)


def show_details(details: DatasetDetails) -> DatasetDetailsBody:
    return DatasetDetailsBody(
        dataset=_show_dataset(details.dataset),
        partitions=[_show_partition(each) for each in details.partitions],
        watermarks=[_show_watermark(each) for each in details.watermarks],
        open_sequences=[
            OpenSequenceBody(
                sequence_id=str(each.sequence_id),
                partition=each.partition or None,
                state=each.state,
                failed_tries=each.failed_tries,
                last_error=each.last_error,
                created_at=each.created_at,
            )
            for each in details.open_sequences
        ],
        next=write_cursor(details.before),
    )


def _show_dataset(dataset: PublishedDataset) -> DatasetBody:
    job, line = dataset.job, dataset.line
    return DatasetBody(
        urn=line.urn,
        job_name=job.job_name,
        flow_group=job.flow.group,
        flow_name=job.flow.name,
        node=job.node,
        executor=job.executor,
        log=job.log,
        is_current=job.is_current,
        state=dataset.condition.value,
        version=line.version,
        published_at=line.published_at,
        partitions=line.partitions,
        rows=line.rows,
        files=line.files,
        bytes=line.file_bytes,
        open_sequence=None if line.open_sequence is None else str(line.open_sequence),
        held_by=line.held_by,
        last_outcome=line.last_outcome,
        last_error=line.last_error,
        last_ended_at=line.last_ended_at,
    )


def _show_away(away: AwayLog) -> AwayLogBody:
    return AwayLogBody(log=away.log, reason=away.reason, jobs=[each.job_name for each in away.jobs])


def _show_partition(line: PartitionLine) -> PartitionBody:
    return PartitionBody(
        partition=line.partition or None,
        published_at=line.published_at,
        sequence_id=str(line.sequence_id),
        mode=line.mode,
        is_complete=line.complete,
        published_rows=line.published_rows,
        published_files=line.published_files,
        rows=line.rows,
        files=line.files,
        bytes=line.file_bytes,
    )


def _show_watermark(line: WatermarkLine) -> WatermarkBody:
    return WatermarkBody(
        key=line.key,
        partition=line.partition or None,
        watermark=None if line.watermark is None else str(line.watermark),
        moved_at=line.moved_at,
    )
