"""Runs that Dagster takes for alive, and whose processes died: they are reported as failed.

A code server reports its own run as failed when the run's process dies. If both die, a run that holds leases is found
by its leases, which ran out. A run may die before it registers in the log, or after its work in the log is done. Such a
run is found by its process. Otherwise it would hold one of the instance's slots as long as a run may last. The process
is looked up in this host's list of processes; for a run on another host only time decides.
"""

import datetime as dt
import json
import multiprocessing
import os
import socket
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.definitions.assets.job.asset_job import IMPLICIT_ASSET_JOB_NAME
from dagster._core.storage.tags import GRPC_INFO_TAG

from gobblin_assets.dagster.instances import find_last_heard_s, reporting
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.run_config import find_sink_s, find_stream_s
from gobblin_assets.model.state import WorkingState
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.stores import Stores
from gobblin_assets.spark.processes import find_start_mark, find_started_at_s
from gobblin_assets.state.datasets import LapsedRun
from gobblin_assets.state.leases import RAN_OUT

LAPSED_PER_TICK_MAX: Final = 50

_NAMED_STATES: Final = frozenset({
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
    # Of the command line.
    dg.DagsterRunStatus.MANAGED,
})  # fmt: skip

PROCESS_TAG: Final = "gobblin/process"
"""Which processes work on a run, written by the run itself before its resources are made."""

UNSEEN_S_MAX: Final = 21_600.0
"""Time without an event after which a run on another host is lost: others' assets may be at work before ours."""

STARTING_S_MAX: Final = 900.0
"""For a run without a process yet: three times what the shipped dagster.yaml gives a start."""

RUNS_PER_TICK_MAX: Final = 100

_EVENTS_READ_MAX: Final = 20
_CLOCK_MARGIN_S: Final = 5.0
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1"})
_LOOKED_AT: Final = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def report_dead_runs(
    instance: dg.DagsterInstance,
    stores: Stores,
    lapsed: Iterable[LapsedRun],
    seen: Mapping[str, float],
    now: dt.datetime,
    *,
    idle_s_max: float,
) -> dict[str, float]:
    """Report those as failed whose process died. Returns the others: by run, since when it holds no lease.

    ``seen``: what the look before returned.

    A run that let a lease run out is dead at once. A run without any lease may be waiting for its turn, which it says
    every now and then: it counts as dead after it had no lease, and Dagster heard nothing of it, for ``idle_s_max``. A
    stream takes a lost lease again, and may wait for others as long as it runs. A worker of a sink takes others, too,
    and it says that it lives, also without a lease: the log lists it only when it has not said so for as long as leases
    last.
    """
    idle: dict[str, float] = {}
    for run in lapsed:
        dagster_run = instance.get_run_by_id(run.dagster_run_id)
        stream_s = None if dagster_run is None else find_stream_s(dagster_run.run_config, run.job)
        since_s = seen.get(str(run.run_id), now.timestamp())
        patience_s = idle_s_max if stream_s is None or run.lease_ran_out else idle_s_max + stream_s
        takes_again = dagster_run is not None and _takes_leases_again(dagster_run, run.job)
        if now.timestamp() - since_s > patience_s:
            record = instance.get_run_record_by_id(run.dagster_run_id)
            since_s = since_s if record is None else max(since_s, find_last_heard_s(instance, record))
        if (run.lease_ran_out and not takes_again) or now.timestamp() - since_s > patience_s:
            _report_dead(instance, stores, run, dagster_run)
        else:
            idle[str(run.run_id)] = since_s
    return idle


def report_ended_runs(layout: JobLayout, instance: dg.DagsterInstance, stores: Stores) -> None:
    """Report the runs of this instance whose leases ran out as failed, for deployments without a running sensor.

    Streams and workers of sinks may take a lost lease again: they are left to the sensor, which waits longer.
    RetryableError if Dagster does not take the report.
    """
    job = JobName(layout.job.job)
    ended = [run for run in stores.runs.list_lapsed(job, limit=LAPSED_PER_TICK_MAX) if run.lease_ran_out]
    if not ended:
        return
    with reporting(dg.AssetKey(job)):
        for run in ended:
            dagster_run = instance.get_run_by_id(run.dagster_run_id)
            if dagster_run is not None and not _takes_leases_again(dagster_run, job):
                _report_dead(instance, stores, run, dagster_run)


def _takes_leases_again(run: dg.DagsterRun, job: JobName) -> bool:
    return any(find(run.run_config, job) is not None for find in (find_stream_s, find_sink_s))


def _report_dead(instance: dg.DagsterInstance, stores: Stores, lapsed: LapsedRun, run: dg.DagsterRun | None) -> None:
    if run is not None and run.status in _NAMED_STATES:
        instance.report_run_failed(
            run, f"The process of this run ({lapsed.owner}) died: its lease ran out. What it had sealed is recovered."
        )
    stores.runs.end(lapsed.run_id, WorkingState.FAILED, error=RAN_OUT, figures={})


class Life(StrEnum):
    """The state of a run's process. UNSEEN: it can't be checked from here."""

    ALIVE = "ALIVE"
    DEAD = "DEAD"
    UNSEEN = "UNSEEN"


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """The identity of a process: ``host`` names the list of processes, ``start`` tells reused numbers apart."""

    host: str
    pid: int
    start: str


@dataclass(frozen=True, slots=True)
class Announced:
    """The process on the code server's host, as Dagster's own event names it."""

    pid: int
    at_s: float


def describe_this_process() -> str:
    """The tag's text: this process and, if Dagster forked it, its parent.

    The parent is the code server, which reports the death of its run, or the run's own process, which outlives a
    step's.
    """
    pids = [os.getpid(), *([] if multiprocessing.parent_process() is None else [os.getppid()])]
    return json.dumps([[_host(), pid, find_start_mark(pid) or ""] for pid in pids])


def read_marks(text: str | None) -> list[ProcessMark]:
    """The marks in a tag; none if the tag is not ours."""
    try:
        return [ProcessMark(str(host), int(pid), str(start)) for host, pid, start in json.loads(text or "[]")]
    except (ValueError, TypeError):
        return []


def decide_life(
    marks: Sequence[ProcessMark],
    announced: Announced | None,
    *,
    host: str,
    find_start: Callable[[int], str | None],
    find_started_at: Callable[[int], float | None],
) -> Life:
    """Any existing process keeps a run alive. ``announced``: only for a run whose code server is on this host."""
    known = [mark for mark in marks if mark.host == host and mark.start]
    if any(find_start(mark.pid) == mark.start for mark in known):
        return Life.ALIVE
    if announced is not None:
        started_at_s = find_started_at(announced.pid)
        # A process that began after the event is another process with the same number.
        if started_at_s is not None and started_at_s <= announced.at_s + _CLOCK_MARGIN_S:
            return Life.ALIVE
    if len(known) < len(marks) or (announced is None and not marks):
        return Life.UNSEEN
    return Life.DEAD


def decide_lost(life: Life, status: dg.DagsterRunStatus, *, unchanged_s: float) -> bool:
    """Whether a run that the log does not know as working is over. ``unchanged_s``: since its last event."""
    if status is dg.DagsterRunStatus.STARTING:
        return unchanged_s > STARTING_S_MAX and life is not Life.ALIVE
    return life is Life.DEAD or (life is Life.UNSEEN and unchanged_s > UNSEEN_S_MAX)


def report_lost_runs(
    instance: dg.DagsterInstance,
    jobs: Collection[str],
    has_asset: Callable[[dg.AssetKey], bool],
    list_working: Callable[[Collection[str]], Collection[str]],
    now: dt.datetime,
) -> list[str]:
    """Report the lost runs of these jobs and assets as failed; their ids. ``list_working``: which the log knows."""
    found = instance.get_run_records(dg.RunsFilter(statuses=_LOOKED_AT), limit=RUNS_PER_TICK_MAX, ascending=True)
    ours = [each for each in found if _is_ours(each.dagster_run, jobs, has_asset)]
    if not ours:
        return []
    working = list_working([each.dagster_run.run_id for each in ours])
    lost = []
    for record in ours:
        run = record.dagster_run
        if run.run_id in working:
            continue
        life = decide_life(
            read_marks(run.tags.get(PROCESS_TAG)),
            _find_announced(instance, run),
            host=_host(),
            find_start=find_start_mark,
            find_started_at=find_started_at_s,
        )
        if not decide_lost(life, run.status, unchanged_s=now.timestamp() - find_last_heard_s(instance, record)):
            continue
        # Read after its process was seen dead: a run that has ended meanwhile has said so.
        again = instance.get_run_by_id(run.run_id)
        if again is not None and again.status is run.status and not list_working([run.run_id]):
            instance.report_run_failed(again, _explain(life))
            lost.append(run.run_id)
    return lost


def _explain(life: Life) -> str:
    seen = "Its process is gone" if life is Life.DEAD else "Its process has sent no event for a long time"
    return f"{seen}, and the commit log knows of no work of this run. What it had sealed is recovered."


def _is_ours(run: dg.DagsterRun, jobs: Collection[str], has_asset: Callable[[dg.AssetKey], bool]) -> bool:
    if run.job_name == IMPLICIT_ASSET_JOB_NAME:
        return any(map(has_asset, run.asset_selection or ()))
    return run.job_name in jobs


def _find_announced(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Announced | None:
    if not _is_launched_here(run.tags.get(GRPC_INFO_TAG)):
        return None
    events = instance.get_records_for_run(
        run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT, limit=_EVENTS_READ_MAX
    ).records
    return _read_pid(record.event_log_entry for record in events)


def _is_launched_here(address: str | None) -> bool:
    """Whether a code server on this host launched the run: the one that evaluates this tick, or another one."""
    try:
        return json.loads(address or "{}").get("host") in _LOCAL_HOSTS
    except ValueError:
        return False


def _read_pid(entries: Iterable[dg.EventLogEntry]) -> Announced | None:
    for entry in entries:
        event = entry.dagster_event
        metadata = {} if event is None else event.engine_event_data.metadata
        pid = metadata.get("pid")
        if pid is not None and str(pid.value).isdecimal():
            return Announced(int(str(pid.value)), entry.timestamp)
    return None


def _host() -> str:
    """A container has a list of processes of its own."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()
