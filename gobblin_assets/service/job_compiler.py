"""Tickets of hops: the job that a template makes of a flow's parameters and of the nodes at its ends."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import JobTicket
from gobblin_assets.service.job_plan import FlowPlan, JobNames, PlannedJob
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.placeholders import Fact, FilledJob, fill_job
from gobblin_assets.service.published_datasets import (
    choose_manifests,
    describe_manifests,
    give_datasets,
)
from gobblin_assets.service.routes import Hop
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.template_parameters import check_known, check_values, fill_in
from gobblin_assets.service.topology import ExecutorSpec, NodeState, Topology
from gobblin_assets.spec.job_parsing import parse_any_job

JOB_SCHEME: Final = "gobblin-job"

_NOT_OF_ADDRESSES: Final = re.compile(r"[/%\x00-\x20\x7f]")


class JobCompiler:
    """Makes the jobs of one flow's hops, with the tickets that executors understand."""

    def __init__(self, topology: Topology, spec: FlowSpec, names: JobNames) -> None:
        self._topology = topology
        self._spec = spec
        self._names = names
        self._given = check_values(spec.config.parameters)

    def require_known(self, templates: Sequence[JobTemplate]) -> None:
        """RejectedError for a parameter that none of the templates has."""
        check_known(self._given, [template.parameters for template in templates])

    def make_plan(self, hops: Sequence[Hop]) -> FlowPlan:
        """The hops as jobs, each behind the one whose output it reads. RejectedError names the parameter."""
        numbers: dict[NodeState, int] = {}
        jobs: list[PlannedJob] = []
        for number, hop in enumerate(hops):
            before = jobs[numbers[hop.source]] if hop.source in numbers else None
            jobs.append(self._make_job(number, hop, before))
            numbers[hop.target] = number
        return FlowPlan(tuple(jobs), sum(job.cost for job in jobs))

    def _make_job(self, number: int, hop: Hop, before: PlannedJob | None) -> PlannedJob:
        name = self._names.offer_name(hop.target.node)
        template, key = hop.template, self._spec.key
        asked = self._given if before is None else {}
        given = self._find_datasets(template, before, hop.executor)
        values = fill_in(given, template.parameters, template.validator)
        filled = fill_job(template.job, values, self._list_facts(hop, name, key))
        _check_options(filled, template)
        ticket = JobTicket(
            uri=f"{JOB_SCHEME}:/{_write_name(key.group)}/{_write_name(key.name)}/{name}",
            version=self._spec.version,
            description=template.description,
            template_uri=template.uri,
            capability=template.capability,
            shape=template.shape,
            job=filled.options,
        )
        return PlannedJob(
            number=number,
            job_name=name,
            template_uri=template.uri,
            executor=hop.executor.name,
            source=hop.source,
            target=hop.target,
            ticket=ticket,
            after=() if before is None else (before.number,),
            cost=hop.cost,
            notes=tuple(describe_manifests(values, asked, template.parameters, self._names, hop.executor)),
        )

    def _find_datasets(
        self, template: JobTemplate, before: PlannedJob | None, executor: ExecutorSpec
    ) -> Mapping[str, Any]:
        """The parameters as they were given; with the datasets that another job publishes, and how they are read."""
        if before is None:
            return choose_manifests(self._given, template.parameters, self._names, executor)
        log = self._topology.executors[before.executor].executor.log
        return give_datasets(self._given, template.parameters, before, log, executor)

    def _list_facts(self, hop: Hop, name: str, key: FlowKey) -> Mapping[str, Fact]:
        facts = {"flow.group": Fact(key.group, "flow_group"), "flow.name": Fact(key.name, "flow_name")}
        facts["flow.job"] = Fact(name, "flow_name")
        for end, state in (("from", hop.source), ("to", hop.target)):
            node = self._topology.nodes[state.node]
            written = {"connection": node.connection, "root": node.root, "node": node.name}
            facts |= {
                f"{end}.{word}": Fact(value, f"nodes.{node.name}.{word}")
                for word, value in written.items()
                if value is not None
            }
        return facts


def _write_name(name: str) -> str:
    """As it is, but for what no address has: a name that is percent-encoded as a whole may be twelve times as long."""
    return _NOT_OF_ADDRESSES.sub(lambda found: quote(found[0], safe=""), name)


def _check_options(filled: FilledJob, template: JobTemplate) -> None:
    """RejectedError for a job that no executor would take, at the parameter or node that is wrong."""
    try:
        parse_any_job(filled.options)
    except RejectedError as error:
        said = error.message.removeprefix(f"{error.field}: ")
        origin = filled.find_origin(error.field)
        field = origin or f"{template.uri}: job.{error.field}"
        hint = error.hint if origin else f"{error.hint} The template has to be corrected.".strip()
        raise RejectedError(said, field=field, hint=hint) from None
