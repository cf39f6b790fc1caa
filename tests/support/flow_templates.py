"""Flows, topologies and templates for tests of compilers."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from gobblin_assets.service.compilers import build_compiler
from gobblin_assets.service.flow_config import read_flow_config
from gobblin_assets.service.job_plan import BoundHop, FlowPlan, PlannedJob, SpecCompiler
from gobblin_assets.service.specs import FlowKey, FlowSpec
from gobblin_assets.service.template_store import TemplatePack, TemplatesInMemory, read_pack, read_shipped_packs
from gobblin_assets.service.topology import Topology
from gobblin_assets.service.topology_file import read_topology

GROUP, NAME = "sales", "orders"

TABLES: Mapping[str, Any] = {
    "type": "object",
    "required": ["datasets"],
    "properties": {
        "datasets": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["table"],
                "properties": {"table": {"type": "string", "pattern": "^[a-z_.]{1,50}$"}},
            },
        }
    },
}


class Names:
    """``JobNames`` of a flow. ``bound``: what its jobs are bound to, by node. ``logs``: of jobs of any flow."""

    def __init__(self, bound: Mapping[str, BoundHop] | None = None, logs: Mapping[str, str] | None = None) -> None:
        self._bound = bound or {}
        self._logs = logs or {}

    def list_bound_hops(self) -> Mapping[str, BoundHop]:
        return self._bound

    def find_name(self, node: str) -> str | None:
        return self.offer_name(node) if node in self._bound else None

    def offer_name(self, node: str) -> str:
        return f"{NAME}_to_{node}"

    def shares_log(self, job_name: str, log: str) -> bool | None:
        return self._logs[job_name] == log if job_name in self._logs else None


def write_template(source: Mapping[str, Any], target: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A template of tables, whatever its ends are called."""
    return {
        "capability": "ingest.jdbc",
        "shape": "run",
        "from": dict(source),
        "to": dict(target),
        "parameters": TABLES,
        "job": {
            "source": {"connection": "any"},
            "destination": "${to.root}",
            "datasets": [{"for_each": "datasets", "make": {"table": "${each.table}"}}],
        },
        **more,
    }


def make_pack(templates: Mapping[str, Mapping[str, Any]], name: str = "test", version: str = "1") -> TemplatePack:
    return read_pack(write_pack(templates, name, version))


def write_pack(templates: Mapping[str, Mapping[str, Any]], name: str = "test", version: str = "1") -> dict[str, bytes]:
    files = {f"{each}.template": yaml.safe_dump(dict(template)).encode() for each, template in templates.items()}
    return {"pack.yaml": yaml.safe_dump({"pack": name, "version": version}).encode(), **files}


def zip_files(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, each in files.items():
            archive.writestr(name, each)
    return content.getvalue()


def make_topology(nodes: Mapping[str, Any], executors: Mapping[str, Any]) -> Topology:
    return read_topology({"nodes": dict(nodes), "executors": dict(executors)})


def make_compiler(topology: Topology, *packs: TemplatePack, name: str = "multi_hop") -> SpecCompiler:
    """A compiler with these packs, or with those that are shipped."""
    return build_compiler(TemplatesInMemory(packs or read_shipped_packs()), topology, name)


def make_flow(source: Any = None, destinations: Any = (), **more: Any) -> FlowSpec:
    written = {"flow_group": GROUP, "flow_name": NAME, "destinations": destinations, **more}
    config = read_flow_config(written if source is None else {**written, "source": source})
    return FlowSpec(FlowKey(GROUP, NAME).uri, "1", "", config, config.template_uris)


def plan_flow(
    compiler: SpecCompiler, spec: FlowSpec, names: Names | None = None, groups: Sequence[str] = ()
) -> FlowPlan:
    compiled = compiler.compile_flow(spec, names or Names(), frozenset(groups)).compiled
    assert isinstance(compiled, FlowPlan), compiled
    return compiled


def show_plan(plan: FlowPlan) -> list[str]:
    """Such as ``shop -jdbc-to-lake-> lake by local``."""
    return [_show_job(job) for job in plan.jobs]


def _show_job(job: PlannedJob) -> str:
    template = job.template_uri.rpartition("/")[2].removesuffix(".template")
    return f"{job.source.node} -{template}-> {job.target.node} by {job.executor}"
