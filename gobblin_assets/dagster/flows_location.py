"""The code location ``flows``: the datasets of all jobs that came as tickets, as the assets of one op.

    GOBBLIN_EXECUTOR                    the executor's name, under which its runs are reported
    GOBBLIN_JDBC_<NAME>_URL, _USER, …   connections, as for the code location ``runner``
    GOBBLIN_DATABASE_URL, GOBBLIN_HOME  where the commit log is, which has the tickets

A job looks as its last ticket says. A run of these assets makes tickets of its own, and claims them: so the log has
reports of it as of any other, and JobMonitor goes on with what dies. Loading connects to the log alone, except that a
copy that finds its datasets by itself looks for them once.

A run's process loads the location again, since Dagster has it so. Tickets of services are run by ``runner``, which
loads none of this.
"""

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, Never

import dagster as dg

from gobblin_assets.dagster.code_location import build_not_loaded_sensor
from gobblin_assets.dagster.environment import resources_from_environment
from gobblin_assets.dagster.factory import is_run
from gobblin_assets.dagster.flows_reloading import FlowsWatch, LoadedTickets, start_reloading
from gobblin_assets.dagster.job_assets import leave_out_expected_outputs
from gobblin_assets.dagster.layout import JobLayout
from gobblin_assets.dagster.materialization import materialize
from gobblin_assets.dagster.naming import group_name_of, output_name_of
from gobblin_assets.dagster.outcomes import decide_error
from gobblin_assets.dagster.partitions import find_run_range
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.dagster.run_config import GobblinRunConfig, decide_run_mode
from gobblin_assets.dagster.runner_location import read_executor_name
from gobblin_assets.dagster.ticket_layouts import TicketLayouts
from gobblin_assets.dagster.ticket_runs import TicketsRun
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.job_ticket import (
    JobTicket,
    SentTicket,
    TicketId,
    TicketSelection,
    TicketShape,
    TicketVerb,
    names_of_job_uri,
)
from gobblin_assets.model.urn import JobName, Role
from gobblin_assets.run.log import open_log
from gobblin_assets.state.tickets import LastTicket, TicketStore

ASSETS_MAX: Final = 10_000
"""Jobs that the location shows. Each costs a process that loads it 2 ms, and the page of all assets more."""

FLOWS_OP: Final = "flows"

ASKED_BY: Final = "dagster"
"""In the tickets of runs that are begun here: services take them for executions of their flows."""

LOOKING_S_MAX: Final = 30.0
"""So long jobs may look for their datasets while the location loads; the others are shown at the next load."""


class FlowsConfig(dg.Config):
    """Run configuration of flows' assets. ``mode``: append, refresh or auto; default: the tag gobblin/mode, else auto.

    A partition that is published is read again only by refresh.
    """

    mode: str | None = None


@dataclass(frozen=True, slots=True)
class FlowJob:
    """A job as its last ticket says."""

    name: JobName
    ticket: JobTicket
    layout: JobLayout


@dataclass(frozen=True, slots=True)
class FoundFlows:
    """The jobs to show, and in a line each what is not shown. ``loaded``: the tickets that say so; None: unknown."""

    jobs: Sequence[FlowJob]
    refused: Sequence[str]
    loaded: LoadedTickets | None


def find_flows(tickets: TicketStore, *, assets_max: int = ASSETS_MAX) -> FoundFlows:
    """The jobs of the log's tickets by name, without those that were removed."""
    layouts = TicketLayouts(searches=False)
    names = _list_shown(layouts.look(tickets))
    refused = [f"{len(names) - assets_max} more jobs than {assets_max}"] if len(names) > assets_max else []
    until_s = time.monotonic() + LOOKING_S_MAX
    found = layouts.find(tickets, names[:assets_max], until_s=until_s)
    jobs = []
    for name, each in found.items():
        if each.layout is None or each.ticket is None:
            refused.append(f"{name}: {each.refused}")
        else:
            jobs.append(FlowJob(name, each.ticket, each.layout))
    return FoundFlows(jobs, refused, {name: (each.ticket_id, each.ticket) for name, each in found.items()})


def _list_shown(last: Mapping[JobName, LastTicket | None]) -> list[JobName]:
    return sorted(name for name, each in last.items() if each is not None and not each.is_delete)


def choose_flows(tickets: TicketStore, *, assets_max: int = ASSETS_MAX) -> Mapping[JobName, LastTicket]:
    """The last tickets of the jobs that ``find_flows`` would find now."""
    last = tickets.list_last_tickets()
    return {name: each for name in _list_shown(last)[:assets_max] if (each := last[name]) is not None}


def build_flows_definitions(flows: FoundFlows, environment: Mapping[str, str]) -> dg.Definitions:
    """One op with all datasets of runs; those of workers, and the sources, are shown without it."""
    executor = read_executor_name(environment)
    jobs = order_jobs(flows.jobs)
    specs = {job.name: _list_specs(job, hops) for job, hops in jobs}
    shown = [spec for job, _hops in jobs if job.ticket.shape is TicketShape.WORKER for spec in specs[job.name]]
    runs = [job for job, _hops in jobs if job.ticket.shape is TicketShape.RUN and specs[job.name]]
    sources = {spec.key: spec for job, _hops in jobs for spec in job.layout.sources.values()}
    own = [spec for job in runs for spec in specs[job.name]]
    return dg.Definitions(
        assets=[*([_build_assets(runs, own, executor)] if own else []), *shown, *sources.values()],
        sensors=[build_not_loaded_sensor(flows.refused)] if flows.refused else [],
        resources=resources_from_environment([], environment),
        executor=dg.in_process_executor,
    )


def order_jobs(jobs: Sequence[FlowJob]) -> list[tuple[FlowJob, Mapping[str, Sequence[dg.AssetKey]]]]:
    """Each job behind those whose datasets it copies, with the keys of these by the trees that it reads.

    Jobs that copy from each other in a circle are shown without these dependencies.
    """
    places: dict[str, list[tuple[JobName, dg.AssetKey]]] = {}
    for job in jobs:
        for (urn, role), shown in job.layout.shown.items():
            if role is Role.DATA:
                for place in _list_places(shown.uri, job.layout.program.root_uri(job.layout.job)):
                    places.setdefault(place, []).append((job.name, job.layout.get_key(urn)))
    hops: dict[JobName, dict[str, list[tuple[JobName, dg.AssetKey]]]] = {}
    for job in jobs:
        trees = {shown.source_tree.uri for shown in job.layout.shown.values() if shown.source_tree is not None}
        found = {tree: [each for each in _find_published(places, tree) if each[0] != job.name] for tree in trees}
        hops[job.name] = {tree: parents for tree, parents in found.items() if parents}
    parents_of = {name: {parent for each in trees.values() for parent, _key in each} for name, trees in hops.items()}
    while True:
        try:
            order = list(TopologicalSorter(parents_of).static_order())
            break
        except CycleError as error:
            for name in error.args[1]:
                parents_of[name] = set()
    by_name = {job.name: job for job in jobs}
    return [
        (
            by_name[name],
            {tree: [key for parent, key in each if parent in parents_of[name]] for tree, each in hops[name].items()},
        )
        for name in order
    ]


def _list_places(uri: str, root: str) -> Iterator[str]:
    """The directory of a dataset, and those above it, down from the job's root."""
    place, root = uri.rstrip("/"), root.rstrip("/")
    yield place
    while place.startswith(f"{root}/"):
        place = place.rpartition("/")[0]
        yield place


def _find_published(
    places: Mapping[str, Sequence[tuple[JobName, dg.AssetKey]]], tree: str
) -> Sequence[tuple[JobName, dg.AssetKey]]:
    """The datasets that are published into the tree, below it, or into a directory above it."""
    place = tree.rstrip("/")
    while place and not place.endswith(":/"):
        if place in places:
            return places[place]
        place = place.rpartition("/")[0]
    return ()


def _list_specs(job: FlowJob, hops: Mapping[str, Sequence[dg.AssetKey]]) -> list[dg.AssetSpec]:
    group, flow, _name = names_of_job_uri(job.ticket.uri)
    found = []
    for (urn, role), spec in job.layout.specs.items():
        tree = job.layout.shown[urn, role].source_tree
        parents = [] if tree is None else hops.get(tree.uri, ())
        found.append(
            spec.replace_attributes(
                group_name=job.layout.datasets[urn].group or group_name_of(group),
                metadata={**spec.metadata, "gobblin/flow_group": group, "gobblin/flow": flow},
                deps=[*spec.deps, *(dg.AssetDep(key) for key in parents)],
            )
        )
    return found


def _build_assets(jobs: Sequence[FlowJob], specs: Sequence[dg.AssetSpec], executor: str) -> dg.AssetsDefinition:
    own = {spec.key for spec in specs} | {spec.key for job in jobs for spec in job.layout.sources.values()}
    outer = list(dict.fromkeys(dep.asset_key for spec in specs for dep in spec.deps if dep.asset_key not in own))
    inputs = {f"upstream_{number}": key for number, key in enumerate(outer)}
    checks = {name: check for job in jobs for name, check in job.layout.build_checks().items()}
    outputs = {output_name_of(spec.key): spec.key for spec in specs}

    def run_flows(context: dg.AssetExecutionContext, config: FlowsConfig) -> Iterator[Never]:
        leave_out_expected_outputs(context)
        _run_selected(context, config, jobs, executor)
        # A generator that yields nothing: a result of the step would stand for the whole range of partitions.
        yield from ()

    op = dg.op(
        name=FLOWS_OP,
        description="Datasets of flows. A run makes tickets of its own for them.",
        ins={name: dg.In(dg.Nothing) for name in inputs},
        out={
            **{name: dg.Out(dg.Nothing, is_required=False) for name in outputs},
            **{name: dg.Out(is_required=False) for name in checks},
        },
        required_resource_keys={STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY},
    )(run_flows)
    return dg.AssetsDefinition(
        node_def=op,
        keys_by_input_name=inputs,
        keys_by_output_name=outputs,
        specs=list(specs),
        can_subset=True,
        check_specs_by_output_name=checks,
        backfill_policy=dg.BackfillPolicy.single_run(),
    )


def _run_selected(
    context: dg.AssetExecutionContext, config: FlowsConfig, jobs: Sequence[FlowJob], executor: str
) -> None:
    """Assets, else checks alone. Raises Failure as ``TicketsRun``."""
    if not context.selected_asset_keys:
        asked = {key.asset_key.path[0] for key in context.selected_asset_check_keys}
        for job in jobs:
            if job.name in asked:
                materialize(context, job.layout, GobblinRunConfig())
        return
    asked = {key.path[0] for key in context.selected_asset_keys}
    try:
        tickets = [_make_ticket(context, config, job, executor) for job in jobs if job.name in asked]
    except GobblinError as error:
        raise decide_error(error, retry_number=context.retry_number) from error
    TicketsRun(context.op_execution_context).run(tickets)


def _make_ticket(context: dg.AssetExecutionContext, config: FlowsConfig, job: FlowJob, executor: str) -> SentTicket:
    """RejectedError if the run's partitions are not those of the job's selected datasets."""
    layout = job.layout
    selection = layout.plan_selection(context.selected_asset_keys, find_run_range(context.run.tags), context.instance)
    keys = dict.fromkeys(each.key for partitions in selection.values() for each in partitions)
    return SentTicket(
        TicketId(uuid.uuid5(uuid.UUID(context.run.run_id), f"{job.name}\0{context.retry_number}")),
        TicketVerb.ADD,
        executor,
        job.ticket,
        TicketSelection(
            datasets=tuple(selection),
            partitions=tuple(key for key in keys if key is not None),
            mode=decide_run_mode(config.mode, context.run.tags),
        ),
        asked_by=ASKED_BY,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """The definitions that Dagster loads. Without the log there are no flows until it answers; a run needs them."""
    begun_s = time.monotonic()
    try:
        with open_log() as log:
            flows = find_flows(log.stores.tickets)
    except GobblinError as error:
        if is_run():
            raise
        flows = FoundFlows([], [f"all jobs, until the log can be read: {error}"], None)
    definitions = build_flows_definitions(flows, os.environ)
    if not is_run():
        start_reloading(FlowsWatch(flows.loaded, choose_flows), load_s=time.monotonic() - begun_s)
    return definitions
