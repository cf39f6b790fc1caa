"""The templates that are shipped: each becomes a job that executors take, and asks for no more than is needed."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import TicketShape, job_ticket_from_json, job_ticket_to_json
from gobblin_assets.service.job_plan import BoundHop, FlowPlan
from gobblin_assets.service.job_template import JobTemplate
from gobblin_assets.service.template_parameters import leave_out_given
from gobblin_assets.service.template_store import DEFAULT_PACK, TemplatesInMemory, read_shipped_packs
from gobblin_assets.spec.job_parsing import parse_any_job
from tests.support.flow_templates import Names, make_compiler, make_flow, make_topology, plan_flow

(PACK,) = TemplatesInMemory(read_shipped_packs()).list_packs()

NODES = {
    "shop": {"kind": "database", "connection": "shop"},
    "log": {"kind": "change_log", "connection": "shop"},
    "kafka": {"kind": "cluster", "connection": "edge"},
    "kafka2": {"kind": "cluster", "connection": "office", "root": "/staged", "transit": True},
    "warehouse": {"kind": "tables", "connection": "warehouse", "root": "/staged"},
    "lakehouse": {"kind": "iceberg", "connection": "lakehouse", "root": "/staged"},
    "lake": {"kind": "files", "root": "/data/lake"},
    "mirror": {"kind": "files", "root": "hdfs://name/data"},
    "bucket": {"kind": "files", "root": "s3://bucket/lake"},
    "cloud": {"kind": "files", "root": "gs://bucket/lake"},
}
CAPABILITIES = [
    "ingest.jdbc", "ingest.kafka", "distcp", "sink.kafka", "sink.postgres_log",
    "sink.into.postgres", "sink.into.iceberg", "sink.into.kafka",
]  # fmt: skip

TABLE = {"table": "public.orders", "columns": ["id", "at"], "primary_key": ["id"], "watermark_column": "at"}
WINDOWS = {"partitions": "daily", "start": "2026-01-01", "end": "2026-02-01", "zone": "Europe/Berlin"}
TOPIC = {"topic": "views", "format": "json", "schema": "page string, viewed_at timestamp", "keep": ["offset"]}
CHANGES = {"publication": "lake", "datasets": [{"table": "public.orders"}]}
TREES = [
    {"path": "photos/2026", "to": "albums", "include": ["*.jpg"], "deletes": "ours"},
    {"path": "films", "exclude": ["*.tmp"]},
    {"path": "songs", "filters": ["- *.tmp", "+ *"]},
]
PUBLISHED = {"dataset": "public.orders", "job": "orders_to_lake"}

# Of each template: its ends, all of its parameters, and the fewest.
USES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "jdbc-to-lake": ("shop", "lake", {"datasets": [{**TABLE, **WINDOWS}]}, {"datasets": [{"table": "orders"}]}),
    "table-to-table": (
        "shop",
        "warehouse",
        {"schema": "lake", "datasets": [{**TABLE, "to_table": "orders"}]},
        {"datasets": [{"table": "orders"}]},
    ),
    "table-to-iceberg": (
        "shop",
        "lakehouse",
        {"namespace": "shop", "datasets": [{**TABLE, "to_table": "orders"}]},
        {"namespace": "shop", "datasets": [{"table": "orders"}]},
    ),
    "topic-to-lake": (
        "kafka",
        "lake",
        {"datasets": [{**TOPIC, "event_time_column": "viewed_at", "partitions": "daily", "start": "2026-01-01"}]},
        {"datasets": [{"topic": "views"}]},
    ),
    "topic-to-table": (
        "kafka",
        "warehouse",
        {"schema": "lake", "datasets": [{**TOPIC, "to_table": "views"}]},
        {"datasets": [{"topic": "views"}]},
    ),
    "topic-to-iceberg": (
        "kafka",
        "lakehouse",
        {"namespace": "web", "datasets": [{**TOPIC, "to_table": "views"}]},
        {"namespace": "web", "datasets": [{"topic": "views"}]},
    ),
    "topic-to-topic": (
        "kafka",
        "kafka2",
        {"key": ["page"], "datasets": [TOPIC]},
        {"datasets": [{"topic": "views", "schema": "page string"}]},
    ),
    "topic-follow": ("kafka", "lake", {"datasets": [TOPIC]}, {"datasets": [{"topic": "views"}]}),
    "changes-to-lake": ("log", "lake", CHANGES, CHANGES),
    "changes-to-table": (
        "log",
        "warehouse",
        {**CHANGES, "schema": "lake", "datasets": [{"table": "public.orders", "to_table": "orders"}]},
        CHANGES,
    ),
    "changes-to-topic": ("log", "kafka2", {**CHANGES, "key": ["id"]}, CHANGES),
    "tree-to-tree": ("lake", "mirror", {"datasets": TREES}, {"datasets": [{"path": "photos"}]}),
    "tree-to-bucket": ("lake", "bucket", {"datasets": TREES}, {"datasets": [{"path": "photos"}]}),
    "dataset-to-tree": (
        "lake",
        "bucket",
        {"deletes": "off", "datasets": [{**PUBLISHED, "to": "orders", "by": "listing"}]},
        {"datasets": [PUBLISHED]},
    ),
    "bucket-to-tree": ("cloud", "lake", {"datasets": TREES}, {"datasets": [{"path": "photos"}]}),
}


def compile_use(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    source, target, _all, _fewest = USES[name]
    topology = make_topology(NODES, {"able": {"capabilities": CAPABILITIES, "nodes": list(NODES)}})
    uri = f"FS:///{name}.template"
    flow = make_flow(source, target, parameters=parameters, template_uris=[uri])
    (job,) = plan_flow(make_compiler(topology, PACK), flow).jobs
    assert job.template_uri == f"FS:///default@{PACK.version}/{name}.template"
    assert job_ticket_from_json(job_ticket_to_json(job.ticket)) == job.ticket
    return dict(job.ticket.job)


def test_a_version_that_was_published_never_changes() -> None:
    digests = {pack.version: pack.digest for pack in read_shipped_packs()}
    assert digests["1"] == "c6cc08288ce58373b5ba0065450a80b839620f3d8aa4d37f7466a0930ec1c154"
    assert len(digests) == int(PACK.version)


def test_each_template_is_used_here() -> None:
    assert PACK.name == DEFAULT_PACK
    assert {name.removesuffix(".template") for name in PACK.templates} == USES.keys()


@pytest.mark.parametrize("name", USES)
def test_all_parameters_and_the_fewest_make_a_job_that_is_accepted(name: str) -> None:
    for parameters in USES[name][2:]:
        job = compile_use(name, parameters)
        assert parse_any_job(job).job == job["job"]
        own = f"/{job['job']}" if name == "dataset-to-tree" else ""
        assert job["destination"] == f"{NODES[USES[name][1]].get('root')}{own}"


def test_workers_are_jobs_with_a_sink() -> None:
    for name, template in PACK.templates.items():
        assert ("sink" in template.job) is (template.shape is TicketShape.WORKER), name


def list_names(template: JobTemplate) -> set[str]:
    items = template.parameters["properties"]["datasets"]["items"]["properties"]
    return {*template.parameters["properties"], *(f"datasets.{name}" for name in items)}


@pytest.mark.parametrize("name", USES)
def test_each_parameter_is_tried_and_described(name: str) -> None:
    template = PACK.templates[f"{name}.template"]
    used = USES[name][2]
    tried = {*used, *(f"datasets.{each}" for dataset in used["datasets"] for each in dataset)}
    assert list_names(template) == tried
    properties = template.parameters["properties"]
    for schema in (*properties.values(), *properties["datasets"]["items"]["properties"].values()):
        assert schema["description"].endswith(".")
    assert template.description
    Draft202012Validator.check_schema(template.parameters)


def test_tables_without_a_watermark_are_read_whole_and_others_by_what_is_new() -> None:
    parameters = {"datasets": [{"table": "a"}, {**TABLE, **WINDOWS}]}
    first, second = compile_use("jdbc-to-lake", parameters)["datasets"]
    assert second == {"table": "a", "extract": "snapshot_only"}
    assert first == {
        "table": "public.orders",
        "columns": ["id", "at"],
        "primary_key": ["id"],
        "extract": "append_only",
        "watermark": {"column": "at"},
        "partitions": {"kind": "daily", "start": "2026-01-01", "end": "2026-02-01", "zone": "Europe/Berlin"},
    }


@pytest.mark.parametrize(
    ("name", "dataset", "field"),
    [
        ("jdbc-to-lake", {"table": "a; DROP TABLE b"}, "parameters.datasets[0].table"),
        ("jdbc-to-lake", {"table": 'a" OR 1'}, "parameters.datasets[0].table"),
        ("jdbc-to-lake", {"table": "(SELECT 1) x"}, "parameters.datasets[0].table"),
        ("jdbc-to-lake", {"table": "a", "columns": ['x"; --']}, "parameters.datasets[0].columns[0]"),
        ("jdbc-to-lake", {"table": "a", "where": "1=1"}, "parameters.datasets[0].where"),
        ("jdbc-to-lake", {"table": "a", "partitions": "daily"}, "parameters.datasets[0].watermark_column"),
        ("jdbc-to-lake", {**TABLE, "partitions": "daily"}, "parameters.datasets[0].start"),
        ("jdbc-to-lake", {**TABLE, "zone": "UTC"}, "parameters.datasets[0].partitions"),
        ("jdbc-to-lake", {**TABLE, **WINDOWS, "zone": "Berlin/Mitte"}, "parameters.datasets[0].zone"),
        ("jdbc-to-lake", {**TABLE, **WINDOWS, "end": "2025-01-01"}, "parameters.datasets[0].end"),
        ("jdbc-to-lake", {**TABLE, "columns": ["id"]}, "parameters.datasets[0].watermark_column"),
        ("topic-to-lake", {"topic": "a/b"}, "parameters.datasets[0].topic"),
        ("topic-to-lake", {"topic": "a", "schema": "page string"}, "parameters.datasets[0].format"),
        ("topic-to-topic", {**TOPIC, "format": "avro"}, "parameters.datasets[0].format"),
        ("tree-to-tree", {"path": "/etc"}, "parameters.datasets[0].path"),
        ("tree-to-tree", {"path": "../other"}, "parameters.datasets[0].path"),
        ("tree-to-tree", {"path": "a/../../b"}, "parameters.datasets[0].path"),
        ("tree-to-tree", {"path": "a", "to": "./b"}, "parameters.datasets[0].to"),
        ("tree-to-tree", {"path": "a", "include": ["b"], "exclude": ["c"]}, "parameters.datasets[0].exclude"),
        ("tree-to-tree", {"path": "a", "filters": ["*.tmp"]}, "parameters.datasets[0].filters[0]"),
        ("tree-to-tree", {"path": "a", "include": ["["]}, "parameters.datasets[0].include"),
        ("tree-to-tree", {"path": "a", "converters": ["gunzip"]}, "parameters.datasets[0].converters"),
        ("dataset-to-tree", {"dataset": "a"}, "parameters.datasets[0].job"),
        ("dataset-to-tree", {"dataset": "a", "job": "b/c"}, "parameters.datasets[0].job"),
        ("dataset-to-tree", {**PUBLISHED, "to": "../a"}, "parameters.datasets[0].to"),
        ("dataset-to-tree", {**PUBLISHED, "by": "luck"}, "parameters.datasets[0].by"),
        ("dataset-to-tree", {"table": "public.orders"}, "parameters.datasets[0].table"),
    ],
)
def test_what_must_not_be_chosen_is_refused_at_the_parameter(name: str, dataset: dict[str, Any], field: str) -> None:
    with pytest.raises(RejectedError) as caught:
        compile_use(name, {"datasets": [dataset]})
    assert caught.value.field == field
    assert caught.value.hint


def test_a_topic_reaches_iceberg_of_another_zone_over_a_topic() -> None:
    executors = {
        "edge": {"capabilities": ["sink.into.kafka"], "nodes": ["kafka", "kafka2"]},
        "office": {"capabilities": ["sink.into.iceberg"], "nodes": ["kafka2", "lakehouse"]},
    }
    parameters = {"namespace": "web", "datasets": [TOPIC]}
    flow = make_flow("kafka", "lakehouse", parameters=parameters)
    first, second = plan_flow(make_compiler(make_topology(NODES, executors), PACK), flow).jobs
    assert (first.executor, second.executor, second.after) == ("edge", "office", (0,))
    assert first.ticket.job["datasets"][0]["topic"] == second.ticket.job["datasets"][0]["topic"] == "views"
    assert second.ticket.job["source"] == {"type": "kafka", "connection": "office"}


COPIED = {
    "shop": {"kind": "database", "connection": "shop"},
    "lake": {"kind": "files", "root": "/data/lake", "transit": True},
    "mirror": {"kind": "files", "root": "/data/mirror"},
}

ALONE = {"template_uris": ["FS:///dataset-to-tree.template"]}


def plan_copies(log: str, source: str = "shop", **more: Any) -> FlowPlan:
    """``log``: of the executor that copies; the other one works with the service's own."""
    executors = {
        "reader": {"capabilities": ["ingest.jdbc"], "nodes": ["shop", "lake"]},
        "copier": {"capabilities": ["distcp"], "nodes": ["lake", "mirror"], "log": log},
    }
    names = Names(logs={"orders_to_lake": ""})
    flow = make_flow(source, "mirror", **{"parameters": {"datasets": [TABLE, {"table": "items"}]}, **more})
    return plan_flow(make_compiler(make_topology(COPIED, executors), PACK), flow, names)


def test_a_hop_behind_another_one_copies_what_that_publishes_by_its_ledger() -> None:
    first, second = plan_copies("").jobs
    assert (first.notes, second.after) == ((), (0,))
    assert second.ticket.job["source"] == first.ticket.job["destination"]
    manifest = {"job": first.job_name, "by": "ledger"}
    assert second.ticket.job["datasets"] == [
        {"urn": urn, "manifest": manifest, "deletes": "ours"} for urn in ("public.orders", "items")
    ]
    assert second.notes == (f"2 datasets by the ledger of the job {first.job_name}: its active files of one version",)
    parse_any_job(second.ticket.job)


@pytest.mark.parametrize(
    ("log", "job", "by", "note"),
    [
        ("", "orders_to_lake", "ledger", "by the ledger of the job orders_to_lake"),
        ("", "made_by_hand", "ledger", "by the ledger of the job made_by_hand"),
        (
            "edge",
            "orders_to_lake",
            "listing",
            "works with the log edge, and the ledger of the job orders_to_lake is in",
        ),
    ],
)
def test_a_ledger_is_read_in_its_own_log_and_a_directory_is_listed_from_any_other(
    log: str, job: str, by: str, note: str
) -> None:
    if log:
        assert plan_copies(log).jobs[1].ticket.job["datasets"][0]["manifest"]["by"] == by
    asked: dict[str, Any] = {"dataset": "public.orders", "job": job}
    alone = {"source": "lake", **ALONE}
    (found,) = plan_copies(log, **alone, parameters={"datasets": [asked]}).jobs
    assert found.ticket.job["datasets"][0]["manifest"] == {"job": job, "by": by}
    assert note in found.notes[0]
    (found,) = plan_copies(log, **alone, parameters={"datasets": [{**asked, "by": "listing"}]}).jobs
    assert "as the flow asks" in found.notes[0]
    if log:
        with pytest.raises(RejectedError, match="in another log than that of the executor copier") as caught:
            plan_copies(log, **alone, parameters={"datasets": [{**asked, "by": "ledger"}]})
        assert caught.value.field == "parameters.datasets[0].by"


def test_a_form_of_a_way_asks_for_no_datasets_that_a_hop_before_publishes() -> None:
    asked = leave_out_given(PACK.templates["dataset-to-tree.template"].parameters)
    assert (list(asked["properties"]), asked["required"]) == (["deletes"], [])
    tables = PACK.templates["jdbc-to-lake.template"].parameters
    assert leave_out_given(tables) == tables


def test_an_executor_that_can_read_the_ledger_is_taken_even_if_it_costs_more() -> None:
    executors = {
        "reader": {"capabilities": ["ingest.jdbc"], "nodes": ["shop", "lake"]},
        "cheap": {"capabilities": ["distcp"], "nodes": ["lake", "mirror"], "log": "edge", "cost": 0},
        "dear": {"capabilities": ["distcp"], "nodes": ["lake", "mirror"], "cost": 5},
        "dearer": {"capabilities": ["distcp"], "nodes": ["lake", "mirror"], "cost": 6},
        "others": {"capabilities": ["distcp"], "nodes": ["lake", "mirror"], "groups": ["few"]},
    }
    compiler = make_compiler(make_topology(COPIED, executors), PACK)
    names = Names(logs={"orders_to_lake": ""})
    behind = make_flow("shop", "mirror", parameters={"datasets": [TABLE]})
    found = compiler.explain_flow(behind, names, frozenset())
    assert isinstance(found.compiled, FlowPlan)
    assert [job.executor for job in found.compiled.jobs] == ["reader", "dear"]
    assert "dearer" in {job.executor for plan in found.alternatives for job in plan.jobs}
    reasons = {each.executor: each.reason for each in found.untaken if "/dataset-to-tree" in each.template_uri}
    assert "works with another log, and can't read the ledger" in reasons["cheap"]
    assert "costs less" in reasons["dearer"]
    for asked, executor in ((PUBLISHED, "dear"), ({**PUBLISHED, "by": "listing"}, "cheap")):
        parameters = {"datasets": [asked]}
        alone = make_flow("lake", "mirror", parameters=parameters, **ALONE)
        assert [job.executor for job in plan_flow(compiler, alone, names).jobs] == [executor]
    bound = BoundHop("lake", "FS:///default/dataset-to-tree.template", lambda log: log == "edge")
    names = Names({"mirror": bound}, {"orders_to_lake": ""})
    (job,) = plan_flow(compiler, make_flow("lake", "mirror", parameters={"datasets": [PUBLISHED]}, **ALONE), names).jobs
    assert (job.executor, job.ticket.job["datasets"][0]["manifest"]["by"]) == ("cheap", "listing")
