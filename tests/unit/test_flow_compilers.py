"""Compilers of flows: the jobs they find, what they refuse, what waits for another topology, and what they explain."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import job_ticket_from_json, job_ticket_to_json
from gobblin_assets.service.job_plan import BoundHop, Explanation, FlowPlan, PendingFlow
from gobblin_assets.service.topology import Topology
from gobblin_assets.spec.job_parsing import parse_any_job
from tests.support.flow_templates import (
    Names,
    make_compiler,
    make_flow,
    make_pack,
    make_topology,
    plan_flow,
    show_plan,
    write_template,
)

PARAMETERS = {"datasets": [{"table": "public.accounts"}]}

# Salesforce → NoSQL by a standalone cluster; NoSQL → HDFS and HDFS → a second HDFS by two others.
NODES: Mapping[str, Any] = {
    "salesforce": {"kind": "database", "connection": "salesforce", "root": "/staged"},
    "nosql": {"kind": "tables", "connection": "nosql", "root": "/staged", "transit": True},
    "hdfs": {"kind": "files", "root": "hdfs://first/data", "transit": True},
    "hdfs2": {"kind": "files", "root": "hdfs://second/data"},
}
EXECUTORS: Mapping[str, Any] = {
    "standalone": {"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "nosql"]},
    "db_ingest": {"capabilities": ["ingest.jdbc"], "nodes": ["nosql", "hdfs"]},
    "distcp_ng": {"capabilities": ["distcp"], "nodes": ["hdfs", "hdfs2"]},
}
TEMPLATES = {
    "into-nosql": write_template({"kind": "database", "format": "table"}, {"kind": "tables", "format": "table"}),
    "to-hdfs": write_template({"kind": "tables", "format": "table"}, {"kind": "files", "format": "tree"}),
    "replicate": write_template(
        {"kind": "files", "format": "tree"},
        {"kind": "files", "format": "tree"},
        capability="distcp",
        parameters={},
        job={"kind": "distcp", "source": "${from.root}", "destination": "${to.root}"},
    ),
    "straight": write_template({"kind": "database", "format": "table"}, {"kind": "files", "format": "tree"}),
}
THREE_HOPS = [
    "salesforce -into-nosql-> nosql by standalone",
    "nosql -to-hdfs-> hdfs by db_ingest",
    "hdfs -replicate-> hdfs2 by distcp_ng",
]


def topology(nodes: Mapping[str, Any] | None = None, **executors: Any) -> Topology:
    return make_topology({**NODES, **(nodes or {})}, {**EXECUTORS, **executors})


def compiler(with_topology: Topology | None = None, name: str = "multi_hop") -> Any:
    return make_compiler(with_topology or topology(), make_pack(TEMPLATES), name=name)


def flow(*destinations: Any, **more: Any) -> Any:
    return make_flow("salesforce", list(destinations), parameters=PARAMETERS, **more)


def refuse(
    spec: Any, with_topology: Topology | None = None, name: str = "multi_hop", groups: Any = ()
) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        compiler(with_topology, name).compile_flow(spec, Names(), frozenset(groups))
    assert caught.value.hint, "a refusal says the fix"
    return caught.value


def pend(spec: Any, with_topology: Topology | None = None, groups: Any = ()) -> str:
    compiled = compiler(with_topology).compile_flow(spec, Names(), frozenset(groups)).compiled
    assert isinstance(compiled, PendingFlow), compiled
    return " ".join(compiled.reasons)


def test_the_seed_s_flow_becomes_three_jobs_on_three_executors() -> None:
    plan = plan_flow(compiler(), flow("hdfs2"))
    assert show_plan(plan) == THREE_HOPS
    assert [job.after for job in plan.jobs] == [(), (0,), (1,)]
    assert [job.number for job in plan.jobs] == [0, 1, 2]
    for job in plan.jobs:
        parse_any_job(job.ticket.job)
        assert job.ticket.job["job"] == job.job_name == f"orders_to_{job.target.node}"
        assert job.ticket.job["destination"] == NODES[job.target.node]["root"]
        assert job.ticket.uri == f"gobblin-job:/sales/orders/{job.job_name}"


@pytest.mark.parametrize("name", ["a", "ü" * 128, " / " * 42 + "%2", "😀" * 128])
def test_a_ticket_s_address_has_whatever_name_a_flow_has(name: str) -> None:
    ticket = plan_flow(compiler(), flow("nosql", flow_name=name, flow_group=name)).jobs[0].ticket
    assert job_ticket_from_json(job_ticket_to_json(ticket)) == ticket
    _scheme, *parts = ticket.uri.split("/")
    assert [unquote(part) for part in parts] == [name, name, "orders_to_nosql"]


def test_all_stops_as_destinations_are_the_same_jobs() -> None:
    assert show_plan(plan_flow(compiler(), flow("hdfs2", "nosql", "hdfs"))) == THREE_HOPS


def test_destinations_share_hops() -> None:
    plan = plan_flow(compiler(), flow("hdfs2", "nosql"))
    assert show_plan(plan) == THREE_HOPS
    other = {"hdfs3": {"kind": "files", "root": "hdfs://third/data"}}
    copier = {"capabilities": ["distcp"], "nodes": ["hdfs", "hdfs3"]}
    plan = plan_flow(compiler(topology(other, copier=copier)), flow("hdfs3", "hdfs2"))
    assert show_plan(plan) == [*THREE_HOPS[:2], "hdfs -replicate-> hdfs3 by copier", THREE_HOPS[2]]
    assert [job.after for job in plan.jobs] == [(), (0,), (1,), (1,)]


def test_an_explanation_says_where_other_hops_to_many_destinations_may_cost_less() -> None:
    leaves = [f"leaf{number}" for number in range(6)]
    nodes = {name: {"kind": "files", "root": f"/{name}"} for name in ("hub", *leaves)}
    system = make_compiler(
        make_topology(nodes, {"copier": {"capabilities": ["distcp"], "nodes": ["hub", *leaves]}}), make_pack(TEMPLATES)
    )
    assert system.explain_flow(make_flow("hub", leaves[:5]), Names(), frozenset()).notes == ()
    (note,) = system.explain_flow(make_flow("hub", leaves), Names(), frozenset()).notes
    assert "may cost less" in note


def test_a_new_executor_makes_one_job_of_two() -> None:
    system = compiler()
    assert show_plan(plan_flow(system, flow("hdfs"))) == THREE_HOPS[:2]
    system.on_topology(topology(x3={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"]}))
    assert show_plan(plan_flow(system, flow("hdfs"))) == ["salesforce -straight-> hdfs by x3"]
    assert {spec.executor.name for spec in system.get_topology_spec_map().values()} == {*EXECUTORS, "x3"}


def bind(plan: FlowPlan, log: str = "") -> Names:
    """Names as they are after a launch of the plan."""
    return Names(
        {
            job.target.node: BoundHop(job.source.node, job.template_uri.replace("@1", ""), lambda name: name == log)
            for job in plan.jobs
        }
    )


def test_a_flow_that_has_published_keeps_its_hops_and_is_offered_the_better_way() -> None:
    names = bind(plan_flow(compiler(), flow("hdfs")))
    better = compiler(topology(x3={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"]}))
    found = better.explain_flow(flow("hdfs"), names, frozenset())
    assert show_plan(found.compiled) == THREE_HOPS[:2]
    assert [show_plan(each) for each in found.alternatives] == [["salesforce -straight-> hdfs by x3"]]


def test_a_bound_job_moves_to_another_executor_of_its_log_alone() -> None:
    names = bind(plan_flow(compiler(), flow("nosql")))
    cheap = {"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "nosql"], "cost": 0.5}
    other_log = plan_flow(compiler(topology(cheap={**cheap, "log": "other"})), flow("nosql"), names)
    assert show_plan(other_log) == THREE_HOPS[:1]
    same_log = plan_flow(compiler(topology(cheap=cheap)), flow("nosql"), names)
    assert show_plan(same_log) == ["salesforce -into-nosql-> nosql by cheap"]


@pytest.mark.parametrize("source", ["shop", "changes"])
def test_a_job_s_ticket_is_the_same_on_each_executor_of_its_log(source: str) -> None:
    """So a job that moves keeps its ticket. On another log it would be another one, and it does not move there."""
    nodes: Mapping[str, Any] = {
        "shop": {"kind": "database", "connection": "shop"},
        "changes": {"kind": "change_log", "connection": "shop"},
        "lake": {"kind": "files", "root": "/data/lake"},
        "archive": {"kind": "files", "root": "/data/archive"},
    }
    of_source = {"shop": {"datasets": [{"table": "public.orders"}]}, "changes": {"publication": "lake"}}
    destinations = {"shop": ["lake", "archive"], "changes": ["lake"]}[source]
    parameters = {"datasets": [{"table": "public.orders"}], **of_source[source]}
    can_do: Mapping[str, Any] = {"capabilities": ["ingest.jdbc", "distcp", "sink.postgres_log"], "nodes": [*nodes]}

    def list_tickets(**executors: Mapping[str, Any]) -> list[Any]:
        made = make_compiler(make_topology(nodes, {name: {**can_do, **each} for name, each in executors.items()}))
        spec = make_flow(source, [{"node": destinations[0]}, *destinations[1:]], parameters=parameters)
        return [job_ticket_to_json(job.ticket) for job in plan_flow(made, spec).jobs]

    first = list_tickets(first={})
    assert len(first) == len(destinations)
    assert first == list_tickets(second={"cost": 7, "technology": "dagster", "location": "elsewhere"})
    assert first == list_tickets(wired={"communication": "kafka", "location": "main"})
    other_log = list_tickets(
        first={"nodes": ["shop", "changes", "lake"]}, far={"nodes": ["lake", "archive"], "log": "far"}
    )
    assert (first == other_log) is (source == "changes"), "a copy reads the ledger, or lists"


def test_a_flow_grows_from_what_is_bound() -> None:
    names = bind(plan_flow(compiler(), flow("hdfs")))
    better = compiler(topology(x3={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"]}))
    assert show_plan(plan_flow(better, flow("hdfs", "hdfs2"), names)) == THREE_HOPS


def test_bound_hops_that_nothing_can_do_any_more_leave_a_plan_that_a_launch_refuses() -> None:
    names = bind(plan_flow(compiler(), flow("hdfs")))
    without = {**EXECUTORS, "x3": {"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"]}}
    del without["standalone"]
    found = plan_flow(compiler(make_topology(NODES, without)), flow("hdfs"), names)
    assert show_plan(found) == ["salesforce -straight-> hdfs by x3"]


def test_the_cheapest_way_wins_and_equal_ones_by_name() -> None:
    twins = {name: {"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "nosql"]} for name in ("b", "a")}
    assert show_plan(plan_flow(compiler(topology(**twins)), flow("nosql"))) == ["salesforce -into-nosql-> nosql by a"]
    cheaper = {**twins, "b": {**twins["b"], "cost": 0.5}}
    assert show_plan(plan_flow(compiler(topology(**cheaper)), flow("nosql"))) == ["salesforce -into-nosql-> nosql by b"]


def test_a_way_of_more_hops_may_be_cheaper() -> None:
    dear = {"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"], "cost": 100}
    plan = plan_flow(compiler(topology(dear=dear)), flow("hdfs"))
    assert show_plan(plan) == THREE_HOPS[:2]
    assert plan.cost == 4.0


def test_other_users_nodes_are_passed_only_if_they_are_transit() -> None:
    private = topology({"nosql": {**NODES["nosql"], "transit": False}})
    assert "nosql is no transit node" in " ".join(
        each.reason for each in compiler(private).explain_flow(flow("hdfs"), Names(), frozenset()).untaken
    )
    assert "hdfs can't be reached from salesforce" in pend(flow("hdfs"), private)
    # As a destination of the flow it may be gone on from.
    assert show_plan(plan_flow(compiler(private), flow("hdfs", "nosql"))) == THREE_HOPS[:2]


def test_nodes_executors_and_templates_of_other_groups_are_not_used() -> None:
    marked = topology({"nosql": {**NODES["nosql"], "groups": ["ops"]}})
    assert "hdfs can't be reached" in pend(flow("hdfs"), marked)
    assert show_plan(plan_flow(compiler(marked), flow("hdfs"), groups=["ops"])) == THREE_HOPS[:2]
    marked = topology(standalone={**EXECUTORS["standalone"], "groups": ["ops"]})
    assert "some executors or templates are for other groups of users" in pend(flow("nosql"), marked)
    assert show_plan(plan_flow(compiler(marked), flow("nosql"), groups=["ops"])) == THREE_HOPS[:1]
    pack = make_pack({**TEMPLATES, "into-nosql": {**TEMPLATES["into-nosql"], "acl": {"groups": ["ops"]}}})
    kept = make_compiler(topology(), pack)
    assert isinstance(kept.compile_flow(flow("nosql"), Names(), frozenset()).compiled, PendingFlow)
    assert show_plan(plan_flow(kept, flow("nosql"), groups=["ops"])) == THREE_HOPS[:1]
    with pytest.raises(RejectedError, match="has no template") as caught:
        kept.compile_flow(flow("nosql", template_uris=["FS:///test/into-nosql.template"]), Names(), frozenset())
    assert caught.value.field == "template_uris[0]"


def test_one_destination_out_of_reach_keeps_the_whole_flow_back() -> None:
    lonely = {"lonely": {"kind": "files", "root": "/lonely"}}
    reasons = pend(flow("hdfs2", "lonely"), topology(lonely))
    assert "lonely can't be reached from salesforce" in reasons
    assert "hdfs2 can't" not in reasons


def test_destinations_that_need_one_node_in_two_formats_are_for_two_flows() -> None:
    nodes = {name: {"kind": "files", "root": f"/{name}", "transit": name == "n"} for name in ("s", "n", "a", "b")}
    data, tree = {"kind": "files", "format": "dataset"}, {"kind": "files", "format": "tree"}
    replicate = {key: TEMPLATES["replicate"][key] for key in ("capability", "parameters", "job")}
    pack = make_pack(
        {
            "copy-data": write_template(data, data, **replicate),
            "copy-tree": write_template(tree, tree, **replicate),
            "unpack": write_template(data, tree, **{**replicate, "capability": "unpack"}),
        }
    )
    executors = {
        "edge": {"capabilities": ["distcp", "unpack"], "nodes": ["s", "n"]},
        "copier": {"capabilities": ["distcp"], "nodes": ["n", "a", "b"]},
    }
    system = make_compiler(make_topology(nodes, executors), pack)
    source = {"node": "s", "format": "dataset"}
    ends = [{"node": "a", "format": "dataset"}, {"node": "b", "format": "tree"}]
    for end in ends:
        assert len(plan_flow(system, make_flow(source, [end])).jobs) == 2
    compiled = system.compile_flow(make_flow(source, ends), Names(), frozenset()).compiled
    assert isinstance(compiled, PendingFlow)
    (reason,) = compiled.reasons
    assert "a, b can each be reached from s, and no hops were found to all of them" in reason


def test_more_than_six_hops_are_too_many() -> None:
    line = [f"n{number}" for number in range(8)]
    nodes = {name: {"kind": "files", "root": f"/{name}", "transit": True} for name in line}
    pairs = {f"e{number}": {"capabilities": ["distcp"], "nodes": line[number : number + 2]} for number in range(7)}
    system = make_compiler(make_topology(nodes, pairs), make_pack(TEMPLATES))
    assert len(plan_flow(system, make_flow("n0", "n6")).jobs) == 6
    compiled = system.compile_flow(make_flow("n0", "n7"), Names(), frozenset()).compiled
    assert isinstance(compiled, PendingFlow)
    assert "by up to 6 hops" in compiled.reasons[0]


def test_a_dearer_way_is_taken_where_the_cheapest_has_too_many_hops() -> None:
    line = [f"n{number}" for number in range(8)]
    nodes = {name: {"kind": "files", "root": f"/{name}", "transit": True} for name in line}
    executors = {f"e{number}": {"capabilities": ["distcp"], "nodes": line[number : number + 2]} for number in range(7)}
    executors["skip"] = {"capabilities": ["distcp"], "nodes": ["n0", "n2"], "cost": 100}
    system = make_compiler(make_topology(nodes, executors), make_pack(TEMPLATES))
    assert [job.executor for job in plan_flow(system, make_flow("n0", "n7")).jobs] == [
        "skip", "e2", "e3", "e4", "e5", "e6",
    ]  # fmt: skip
    # n2 itself is reached by the cheaper way, which the way to n6 goes on from.
    assert [job.executor for job in plan_flow(system, make_flow("n0", ["n2", "n6"])).jobs] == [
        f"e{number}" for number in range(6)
    ]


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (make_flow(None, "hdfs"), "source", "is missing"),
        (make_flow("salesforce", []), "destinations", "at least one node"),
        (make_flow("salesfroce", "hdfs"), "source", "Did you mean 'salesforce'"),
        (make_flow("salesforce", ["hdfs", "hfds2"]), "destinations[1]", "Did you mean 'hdfs2'"),
        (make_flow("salesforce", ["hdfs", "hdfs"]), "destinations[1]", "another destination"),
        (make_flow("hdfs", ["hdfs"]), "destinations[0]", "the source too"),
        (make_flow("salesforce", {"node": "hdfs", "format": "tre"}), "destinations[0].format", "'tree'"),
        (make_flow({"node": "hdfs", "format": "row"}, "hdfs2"), "source.format", "expected table"),
        (make_flow("hdfs", "nosql"), "destinations[0]", "no template leads from tree in hdfs (files) to nosql"),
        (make_flow("salesforce", {"node": "hdfs", "format": "topic"}), "destinations[0]", "no template leads"),
        (flow("hdfs", template_uris=["FS:///test/to-hfds.template"]), "template_uris[0]", "'to-hdfs.template'"),
        (flow("hdfs", template_uris=["FS:///tset/to-hdfs.template"]), "template_uris[0]", "'test'"),
        (flow("hdfs", template_uris=["FS:///test@2/to-hdfs.template"]), "template_uris[0]", "the version 2"),
        (flow("hdfs", template_uris=["/etc/passwd"]), "template_uris[0]", "FS:///<pack>"),
        (flow("hdfs", template_uris=["FS:///test/to-hdfs.template"]), "destinations[0]", "no template leads"),
        (make_flow("salesforce", "nosql"), "parameters.datasets", "is missing"),
        (make_flow("salesforce", "nosql", parameters={"dataset": 1}), "parameters.dataset", "'datasets'"),
        (
            make_flow("salesforce", "nosql", parameters={"datasets": [{"tabel": "a"}]}),
            "parameters.datasets[0].tabel",
            "'table'",
        ),
        (
            make_flow("salesforce", "nosql", parameters={"datasets": [{"table": "a"}, {"table": 5}]}),
            "parameters.datasets[1].table",
            "a text",
        ),
        (
            make_flow("salesforce", "nosql", parameters={"datasets": [{"table": "a"}, {"table": "a"}]}),
            "parameters.datasets[1]",
            "already the name",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_the_field_and_the_fix(spec: Any, field: str, said: str) -> None:
    error = refuse(spec)
    assert error.field == field
    assert said in str(error)


def test_explanations_name_nothing_of_other_groups() -> None:
    hidden = {"groups": ["hr"]}
    secret = topology(
        {"hr_files": {**NODES["hdfs2"], **hidden}},
        hr_box={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "nosql", "hdfs", "hr_files"], **hidden},
        open_box={"capabilities": ["ingest.jdbc", "distcp"], "nodes": ["salesforce", "nosql", "hdfs", "hr_files"]},
    )
    pack = make_pack({**TEMPLATES, "hr-only": {**TEMPLATES["into-nosql"], "acl": hidden, "capability": "hr.copy"}})
    kept = make_compiler(secret, pack)
    for spec in (flow("nosql"), flow("hdfs")):
        assert "hr_box" in str(kept.explain_flow(spec, Names(), frozenset({"hr"}))), "who may use it sees it"
        shown = str(kept.explain_flow(spec, Names(), frozenset()).untaken)
        assert "open_box" in shown
        assert not [word for word in ("hr_box", "hr_files", "hr-only") if word in shown]
    alone = {name: {**each, **hidden} for name, each in EXECUTORS.items()}
    pending = make_compiler(topology(**alone), pack).explain_flow(flow("nosql"), Names(), frozenset())
    assert isinstance(pending.compiled, PendingFlow)
    assert not [word for word in (*EXECUTORS, "hr.copy") if word in " ".join(pending.compiled.reasons)]


def test_a_destination_that_only_templates_of_others_lead_to_names_none_of_them() -> None:
    hidden = make_pack({name: {**each, "acl": {"groups": ["hr"]}} for name, each in TEMPLATES.items()})
    apart = topology(**{name: {**EXECUTORS[name], "nodes": ["hdfs2"]} for name in ("standalone", "db_ingest")})
    compiled = make_compiler(apart, hidden).compile_flow(flow("nosql"), Names(), frozenset()).compiled
    assert isinstance(compiled, PendingFlow)
    assert "for other groups of users" in compiled.reasons[0]
    assert "ingest" not in compiled.reasons[0]


def test_a_node_of_others_is_as_one_that_there_is_not() -> None:
    hidden = topology({"hdfs": {**NODES["hdfs"], "groups": ["ops"]}})
    unknown = refuse(flow("nowhere"), hidden)
    error = refuse(flow("hdfs"), hidden)
    assert (error.field, error.message.replace("hdfs", "nowhere")) == (unknown.field, unknown.message)
    assert "hdfs'" not in refuse(flow("hdsf"), hidden).hint.replace("hdfs2", "")


def test_templates_that_a_flow_names_are_the_only_ones() -> None:
    both = topology(x3={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"]})
    named = flow("hdfs", template_uris=["FS:///test/into-nosql.template", "FS:///test/to-hdfs.template"])
    assert show_plan(plan_flow(compiler(both), named)) == THREE_HOPS[:2]


def test_explanation_has_other_plans_and_says_why_hops_are_not_taken() -> None:
    both = topology(
        x3={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce", "hdfs"], "cost": 7},
        x4={"capabilities": ["distcp"], "nodes": ["salesforce", "hdfs"]},
        x5={"capabilities": ["ingest.jdbc"], "nodes": ["salesforce"]},
    )
    found: Explanation = compiler(both).explain_flow(flow("hdfs"), Names(), frozenset())
    assert [show_plan(each) for each in found.alternatives] == [["salesforce -straight-> hdfs by x3"]]
    reasons = {
        (each.executor, each.target.node): each.reason for each in found.untaken if "straight" in each.template_uri
    }
    assert reasons["x3", "hdfs"].startswith("another way costs less")
    assert reasons["x4", "hdfs"] == "the executor x4 can't do ingest.jdbc"
    assert reasons["x5", "hdfs"] == "the executor x5 does not reach hdfs"
    assert isinstance(found.compiled, FlowPlan)
    taken = {(job.template_uri, job.executor, job.source, job.target) for job in found.compiled.jobs}
    assert taken.isdisjoint((each.template_uri, each.executor, each.source, each.target) for each in found.untaken)


def test_explanation_of_a_pending_flow_says_what_is_missing() -> None:
    found = compiler(topology(standalone={**EXECUTORS["standalone"], "capabilities": ["distcp"]})).explain_flow(
        flow("nosql"), Names(), frozenset()
    )
    assert isinstance(found.compiled, PendingFlow)
    assert "the executor standalone can't do ingest.jdbc" in found.compiled.reasons[0]
    assert found.alternatives == ()
    assert any(each.reason == "the executor standalone can't do ingest.jdbc" for each in found.untaken)


def test_a_wizard_asks_for_the_parameters_of_the_hops() -> None:
    templates = compiler().list_templates(make_flow("salesforce", "hdfs2"), frozenset())
    assert [each.plain_uri for each in templates] == [
        "FS:///test/into-nosql.template",
        "FS:///test/to-hdfs.template",
        "FS:///test/replicate.template",
    ]


def test_plans_are_the_same_in_whatever_order_things_are_written() -> None:
    nodes = dict(reversed(NODES.items()))
    executors = {name: {**each, "nodes": each["nodes"][::-1]} for name, each in reversed(EXECUTORS.items())}
    turned = make_compiler(make_topology(nodes, executors), make_pack(dict(reversed(TEMPLATES.items()))))
    assert plan_flow(turned, flow("hdfs2", "nosql")) == plan_flow(compiler(), flow("hdfs2", "nosql"))
    assert make_topology(nodes, EXECUTORS).version == topology().version


def test_a_flow_takes_the_newest_version_of_a_pack_or_the_one_that_it_names() -> None:
    newer = {**TEMPLATES, "into-nosql": {**TEMPLATES["into-nosql"], "description": "newer"}}
    system = make_compiler(topology(), make_pack(TEMPLATES), make_pack(newer, version="2"))
    assert plan_flow(system, flow("nosql")).jobs[0].template_uri == "FS:///test@2/into-nosql.template"
    named = flow("nosql", template_uris=["FS:///test@1/into-nosql.template"])
    assert plan_flow(system, named).jobs[0].template_uri == "FS:///test@1/into-nosql.template"
    # Another version of the same template is the same hop.
    names = bind(plan_flow(compiler(), flow("nosql")))
    assert plan_flow(system, flow("nosql"), names).jobs[0].template_uri == "FS:///test@2/into-nosql.template"


def test_the_root_of_a_node_is_named_where_it_is_wrong() -> None:
    wrong = topology({"nosql": {**NODES["nosql"], "root": "gs://bucket/staged"}})
    error = refuse(flow("nosql"), wrong)
    assert error.field == "nodes.nosql.root"


class TestIdentity:
    def test_a_flow_is_the_one_job_of_its_template(self) -> None:
        named = flow("nosql", template_uris=["FS:///test/into-nosql.template"])
        assert show_plan(plan_flow(compiler(name="identity"), named)) == THREE_HOPS[:1]

    @pytest.mark.parametrize("name", ["identity", "multi_hop"])
    def test_the_template_names_its_nodes(self, name: str) -> None:
        template = write_template(
            {"kind": "database", "format": "table", "node": "salesforce"},
            {"kind": "tables", "format": "table", "node": "nosql"},
            parameters={"type": "object", "properties": {"prop1": {"type": "string", "pattern": "^[a-z0-9]{1,20}$"}}},
            job={"source": {"connection": "s"}, "destination": "${to.root}", "datasets": [{"table": "${prop1}"}]},
        )
        system = make_compiler(topology(), make_pack({"mytemplate": template}, "default"), name=name)
        plan = plan_flow(system, make_flow(template_uris=["FS:///mytemplate.template"], parameters={"prop1": "value1"}))
        assert show_plan(plan) == ["salesforce -mytemplate-> nosql by standalone"]
        assert plan.jobs[0].ticket.job["datasets"] == [{"table": "value1"}]

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            (flow("nosql"), "template_uris"),
            (flow("nosql", template_uris=["FS:///test/a.template", "FS:///test/b.template"]), "template_uris"),
            (flow("nosql", "hdfs", template_uris=["FS:///test/into-nosql.template"]), "destinations"),
            (flow("hdfs", template_uris=["FS:///test/into-nosql.template"]), "destinations[0]"),
        ],
    )
    def test_a_flow_of_another_form_is_refused(self, spec: Any, field: str) -> None:
        assert refuse(spec, name="identity").field == field

    def test_it_makes_no_second_hop(self) -> None:
        named = make_flow("hdfs", "hdfs3", template_uris=["FS:///test/replicate.template"])
        far = topology(
            {"hdfs2": {**NODES["hdfs2"], "transit": True}, "hdfs3": {"kind": "files", "root": "/third"}},
            copier={"capabilities": ["distcp"], "nodes": ["hdfs2", "hdfs3"]},
        )
        assert len(plan_flow(compiler(far), named).jobs) == 2
        found = compiler(far, "identity").compile_flow(named, Names(), frozenset()).compiled
        assert isinstance(found, PendingFlow)


def test_an_unknown_compiler_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RejectedError, match="multi_hop") as caught:
        make_compiler(topology(), make_pack(TEMPLATES), name="multihop")
    assert caught.value.field == "compiler"
