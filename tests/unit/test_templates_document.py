"""What docs/TEMPLATES.md shows is so: its topology, its template, the templates that there are."""

import re
from pathlib import Path

import yaml

from gobblin_assets.service.job_template import parse_template
from gobblin_assets.service.template_store import TemplatesInMemory, read_shipped_packs
from gobblin_assets.service.topology_file import read_topology
from gobblin_assets.spec.capabilities import list_known_capabilities
from gobblin_assets.spec.job_parsing import parse_any_job
from tests.support.flow_templates import make_compiler, make_flow, plan_flow, read_pack, show_plan

DOCUMENT = (Path(__file__).parents[2] / "docs" / "TEMPLATES.md").read_text(encoding="utf-8")
TOPOLOGY, TEMPLATE = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)


def test_the_topology_is_one() -> None:
    topology = read_topology(yaml.safe_load(TOPOLOGY))
    assert sorted(topology.executors) == ["copier", "local"]


def test_the_template_makes_a_job_on_the_topology() -> None:
    plain = "FS:///sales/orders.template"
    assert parse_template(TEMPLATE, plain, plain).groups == {"sales"}
    pack = read_pack({"pack.yaml": b'{pack: sales, version: "1"}', "orders.template": TEMPLATE.encode()})
    parameters = {"shop": "berlin", "tables": [{"table": "public.orders", "key": ["id"]}, {"table": "public.items"}]}
    flow = make_flow("shop", "lake", parameters=parameters)
    compiler = make_compiler(read_topology(yaml.safe_load(TOPOLOGY)), pack)
    plan = plan_flow(compiler, flow, groups=["sales"])
    assert show_plan(plan) == ["shop -orders-> lake by local"]
    job = parse_any_job(plan.jobs[0].ticket.job)
    assert [each.urn for each in job.datasets] == ["berlin/public.orders", "berlin/public.items"]  # type: ignore[attr-defined]  # it reads rows


def test_all_shipped_templates_are_listed() -> None:
    (pack,) = TemplatesInMemory(read_shipped_packs()).list_packs()
    rows = re.findall(r"^\| (`\w+-(?:to-\w+|follow)`.*?) \|", DOCUMENT, flags=re.MULTILINE)
    listed = {f"{name}.template" for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert listed == set(pack.templates)


def test_the_capabilities_that_are_named_exist() -> None:
    named = set(re.findall(r"`((?:ingest|sink)[\w.]+|distcp)`", DOCUMENT))
    assert named
    assert named <= set(list_known_capabilities())
