"""The command that shows how far a sink is: its workers, its lanes, and for change logs the slot that they follow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from gobblin_assets.cli.connections import job_file_argument
from gobblin_assets.cli.lazy_commands import example
from gobblin_assets.cli.output import json_option, print_json, print_table, say
from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.ingest.running import read_job
from gobblin_assets.jobs.sink.lane_shares import lanes_in_use
from gobblin_assets.jobs.sink.running import open_log_connection, read_sink_datasets
from gobblin_assets.jobs.sink.sink_rules import is_one_stream, lag_unit_of
from gobblin_assets.jobs.sink.stream_status import (
    DatasetStatus,
    StreamStatus,
    find_stream_status,
    open_copied_logs,
    say_kept,
)
from gobblin_assets.model.state import DatasetId, DatasetState
from gobblin_assets.model.urn import DatasetUrn, JobName
from gobblin_assets.model.watermark import Watermark
from gobblin_assets.model.wording import count_of, join_some
from gobblin_assets.run.log import Log, open_log
from gobblin_assets.sources.log_port import CopiedLog
from gobblin_assets.spec.job_spec import DatasetSpec, JobSpec
from gobblin_assets.state.sinks import SinkWorkerRow, sum_lags

_OPEN_MAX: Final = 256


class _LaneLine(NamedTuple):
    dataset: DatasetUrn
    lane: int
    held_by: str | None
    publications: int
    open: str | None
    vnodes: Mapping[str, str | None]


class _BackOffLine(NamedTuple):
    """A dataset or a lane that backs off. ``lane`` None: the whole dataset. ``worker``: that leaves it alone."""

    dataset: DatasetUrn
    lane: int | None
    worker: str
    error: str


@click.command(epilog=example("sink status jobs/clicks.yaml"))
@job_file_argument
@json_option
def status(job_file: Path, as_json: bool) -> None:  # noqa: FBT001  an option that click passes by name
    """Show workers and lanes, and why some back off.

    Also how far they are, and of a change log its slot.
    """
    job = read_job(job_file)
    specs, name = read_sink_datasets(job), JobName(job.job)
    with open_log(say) as log:
        states = dict(sorted(log.stores.datasets.load(name, list(specs)).items()))
        live = log.stores.sink_workers.list_live(name)
        found = log.stores.lanes.load(*(state.dataset_id for state in states.values()))
        lanes = _list_lanes(log, name, states, found, _open_copied(job, specs))
        back_offs = _list_back_offs(live, states, found)
        status = _find_stream_status(log, job, specs, states)
    lags = _list_lags(states, live, status)
    workers = [worker.owner for worker in live]
    if as_json:
        stream = {"stream": status and status.stream, "datasets": status and status.datasets}
        said = {
            "workers": workers,
            "lags": lags,
            "lanes": [each._asdict() for each in lanes],
            "rests": [each._asdict() for each in back_offs],
        }
        print_json({**said, **(stream if is_one_stream(job) else {})})
        return
    say(f"{count_of(len(workers), 'live worker', 'live workers')}: {', '.join(workers) or 'none'}")
    if status is not None:
        _print_stream(status)
    rows = [
        (
            *each[:5],
            lags[each.dataset],
            ", ".join(f"{vnode} up to {at or 'nothing yet'}" for vnode, at in each.vnodes.items()),
        )
        for each in lanes
    ]
    # The lag is that of the dataset; of topics, as far as its lanes are held.
    behind = f"{lag_unit_of(job)} behind"
    print_table("lanes", ("dataset", "lane", "held by", "publications", "open", behind, "vnodes"), rows)
    _print_back_offs(back_offs)


def _open_copied(job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec]) -> Mapping[DatasetUrn, CopiedLog]:
    try:
        return open_copied_logs(job, specs, open_log_connection(job)) if is_one_stream(job) else {}
    except GobblinError:
        # It is said with the slot; positions are then the numbers that the log has.
        return {}


def _list_lanes(
    log: Log,
    name: JobName,
    states: Mapping[DatasetUrn, DatasetState],
    found: Mapping[DatasetId, DatasetLanes],
    copied: Mapping[DatasetUrn, CopiedLog],
) -> list[_LaneLine]:
    open_ = {each.lane_id: each for each in log.stores.commits.list_open(name, limit=_OPEN_MAX)}
    return [
        _LaneLine(
            urn,
            lane.number,
            lane.owner if lane.is_live else None,
            lane.version,
            open_[lane.lane_id].state.value if lane.lane_id in open_ else None,
            {vnode: _write_place(copied.get(urn), at) for vnode, at in lane.vnodes.items()},
        )
        for urn, state in states.items()
        for lane in lanes_in_use(found[state.dataset_id])
    ]


def _write_place(copied: CopiedLog | None, at: Watermark | None) -> str | None:
    if copied is not None and at is not None and isinstance(at.value, int):
        return copied.write_place(at.value)
    return None if at is None else str(at)


def _list_back_offs(
    live: Sequence[SinkWorkerRow],
    states: Mapping[DatasetUrn, DatasetState],
    found: Mapping[DatasetId, DatasetLanes],
) -> list[_BackOffLine]:
    """What nobody works on. What one worker leaves alone, another one may have taken."""
    urns = {state.dataset_id: urn for urn, state in states.items()}
    free = {
        lane.lane_id: lane.number
        for state in states.values()
        for lane in lanes_in_use(found[state.dataset_id])
        if not lane.is_live
    }
    idle = {each.dataset_id for each in found.values() if any(lane.lane_id in free for lane in each.lanes)}
    return [
        _BackOffLine(
            urns[each.dataset_id], None if each.lane_id is None else free[each.lane_id], worker.owner, each.error
        )
        for worker in live
        for each in worker.back_offs
        if each.dataset_id in idle and (each.lane_id is None or each.lane_id in free)
    ]


def _print_back_offs(back_offs: Sequence[_BackOffLine]) -> None:
    """What has hit several at once is one line."""
    if not back_offs:
        return
    alike: dict[tuple[str, str], list[str]] = {}
    for each in back_offs:
        name = each.dataset if each.lane is None else f"{each.dataset} lane {each.lane}"
        alike.setdefault((each.worker, each.error), []).append(name)
    rows = [(join_some(names), worker, error) for (worker, error), names in alike.items()]
    print_table("backing off after a failure", ("what", "worker", "error"), rows)


def _find_stream_status(
    log: Log, job: JobSpec, specs: Mapping[DatasetUrn, DatasetSpec], states: Mapping[DatasetUrn, DatasetState]
) -> StreamStatus | None:
    """None for topics: nothing is asked there. What the log says of a stream is shown without its server as well."""
    if not is_one_stream(job):
        return None
    found = log.stores.sink_windows.look([state.dataset_id for state in states.values()])
    looks = {urn: found[state.dataset_id] for urn, state in states.items() if state.dataset_id in found}
    try:
        return find_stream_status(job, specs, open_log_connection(job), states, looks)
    except GobblinError as error:
        say(f"the slot could not be looked at: {error}")
        return None


def _list_lags(
    states: Mapping[DatasetUrn, DatasetState], live: Sequence[SinkWorkerRow], status: StreamStatus | None
) -> Mapping[DatasetUrn, int | None]:
    if status is None:
        return {urn: sum_lags(live, state.dataset_id) for urn, state in states.items()}
    return {urn: status.datasets.get(urn, DatasetStatus()).lag_bytes for urn in states}


def _print_stream(status: StreamStatus) -> None:
    stream = status.stream
    columns = ("slot", "read", "log kept", "confirmed up to", "bytes kept")
    kept = stream.status or "there is no such slot"
    print_table("slot", columns, [(stream.name, stream.is_read, kept, stream.confirmed, stream.retained_bytes)])
    if status.kept_for and not stream.is_lost:
        say(f"{say_kept(stream)}: for {join_some(status.kept_for)}")
    rows = [
        (urn, each.copy, each.position or each.progress or "to be copied", each.lag_bytes, each.lag_s)
        for urn, each in status.datasets.items()
    ]
    print_table("tables", ("dataset", "copy", "published up to", "bytes behind", "seconds behind"), rows)
