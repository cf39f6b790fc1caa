"""Components in a project: the files that `dg scaffold` writes, and which resources a component brings."""

from collections.abc import Iterator
from pathlib import Path

import click
import dagster as dg
import pytest
from dagster.components.core.component_tree import ComponentTreeException

from gobblin_assets.dagster.code_location import build_definitions
from gobblin_assets.dagster.component import GobblinCopyComponent, GobblinJobComponent
from gobblin_assets.dagster.ports import connection_key
from gobblin_assets.dagster.resources import (
    GobblinSparkResource,
    JdbcConnectionResource,
    KafkaConnectionResource,
    SourceConnectionResource,
    gobblin_resources,
)
from gobblin_assets.dagster.scaffolding import CopyScaffolder, CopyScaffoldParams, JobScaffolder, JobScaffoldParams
from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import make_home
from gobblin_assets.spec.job_files import read_any_job_file, read_job_file
from tests.support.dg_project import defs_folder, imported, make_project

TYPE = "gobblin_assets.dagster.component.GobblinJobComponent"
COPY_TYPE = "gobblin_assets.dagster.component.GobblinCopyComponent"
OURS = {"gobblin", "gobblin_stores", "gobblin_spark", "gobblin_file_systems"}

RESOURCES = """
import dagster as dg
from gobblin_assets.dagster.resources import GobblinSparkResource, JdbcConnectionResource

@dg.definitions
def resources() -> dg.Definitions:
    sales = JdbcConnectionResource(url="jdbc:postgresql://mine/sales")
    return dg.Definitions(resources={"sales": sales, "gobblin_spark": GobblinSparkResource(master="local[7]")})
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    root = make_project(tmp_path)
    with imported(root):
        yield root


def scaffold(root: Path, name: str, **params: object) -> Path:
    folder = defs_folder(root) / name
    folder.mkdir(parents=True)
    request = dg.ScaffoldRequest(TYPE, folder, "yaml", root, JobScaffoldParams.model_validate(params))
    JobScaffolder().scaffold(request)
    return folder / "defs.yaml"


def scaffold_copy(root: Path, **params: object) -> Path:
    folder = defs_folder(root) / "mirror"
    folder.mkdir(parents=True)
    request = dg.ScaffoldRequest(COPY_TYPE, folder, "yaml", root, CopyScaffoldParams.model_validate(params))
    CopyScaffolder().scaffold(request)
    return folder


def load(root: Path) -> dg.Definitions:
    definitions = dg.ComponentTree.for_project(root / "src" / "warehouse").build_defs()
    dg.Definitions.validate_loadable(definitions)
    return definitions


def keys(definitions: dg.Definitions) -> set[str]:
    return set(definitions.resources or {})


class TestResources:
    def test_components_bring_what_their_jobs_ask_for_and_share_it(self, project: Path) -> None:
        scaffold(project, "shop", connection="sales")
        scaffold(project, "store", connection="sales")
        scaffold(project, "web", source="kafka", connection="bus")
        found = load(project)
        assert keys(found) == OURS | {"jdbc__sales", "kafka__bus"}
        graph = found.resolve_asset_graph()
        read = dg.AssetKey(["source", "jdbc", "sales", "public.customers"])
        assert {key.path[0] for key in graph.get(read).child_keys} == {"shop", "store"}

    def test_what_the_project_s_python_files_provide_stays_theirs(self, project: Path) -> None:
        scaffold(project, "shop", connection="sales")
        (defs_folder(project) / "resources.py").write_text(RESOURCES, encoding="utf-8")
        found = load(project).resources or {}
        assert set(found) == OURS | {"sales", "jdbc__sales"}
        sales, spark = found["jdbc__sales"], found["gobblin_spark"]
        assert isinstance(sales, JdbcConnectionResource)
        assert isinstance(spark, GobblinSparkResource)
        assert (sales.url, spark.master) == ("jdbc:postgresql://mine/sales", "local[7]")

    def test_a_project_that_provides_all_of_them_elsewhere_says_so(self, project: Path) -> None:
        path = scaffold(project, "shop")
        path.write_text(path.read_text(encoding="utf-8") + "  resources: project\n", encoding="utf-8")
        assert keys(dg.ComponentTree.for_project(project / "src" / "warehouse").build_defs()) == set()
        assert read_job_file(path).job == "shop", "the command line does not take the component's file"

    def test_one_name_for_a_database_a_cluster_and_a_change_log_is_a_connection_of_each(self, project: Path) -> None:
        """docs/TOPICS.md and docs/CHANGES.md call theirs ``shop``, as a job of tables may."""
        kinds = ("jdbc", "kafka", "postgres_log")
        jobs = [read_job_file(scaffold(project, kind, source=kind, connection="shop")) for kind in kinds]
        for found in (load(project), build_definitions(jobs, {})):
            dg.Definitions.validate_loadable(found)
            resources = found.resources or {}
            assert set(resources) == OURS | {"jdbc__shop", "kafka__shop", "postgres_log__shop"}
            for job in jobs:
                connection = resources[connection_key(job.source)]
                assert isinstance(connection, SourceConnectionResource)
                assert job.source.type == connection.KIND
                run = found.resolve_job_def(f"{job.job}_whole")
                assert connection_key(job.source) in run.required_resource_keys

    def test_resources_of_one_name_and_several_kinds_are_given_together(self) -> None:
        tables = JdbcConnectionResource(url="jdbc:postgresql://db/shop")
        topics = KafkaConnectionResource(bootstrap_servers="broker:9092")
        found = gobblin_resources({"shop": [tables, topics], "sales": tables})
        assert set(found) == OURS | {"jdbc__shop", "kafka__shop", "jdbc__sales"}
        assert (found["jdbc__shop"], found["kafka__shop"]) == (tables, topics)
        with pytest.raises(RejectedError, match=r"connections\[shop\]: expected connections of different kinds"):
            gobblin_resources({"shop": [tables, tables]})

    def test_what_the_project_provides_under_a_name_is_of_its_kind_alone(self, project: Path) -> None:
        scaffold(project, "web", source="kafka", connection="sales")
        scaffold(project, "shop", connection="sales")
        (defs_folder(project) / "resources.py").write_text(RESOURCES, encoding="utf-8")
        found = load(project).resources or {}
        assert isinstance(found["kafka__sales"], KafkaConnectionResource)
        assert found["jdbc__sales"] == found["sales"]


class TestScaffolding:
    @pytest.mark.parametrize(
        ("params", "assets"),
        [
            ({}, {"shop/public.customers"}),
            ({"job": "crm", "table": ["public.a", "public.b: c"]}, {"crm/public.a", "crm/public.b: c"}),
            ({"source": "kafka", "table": ["views"]}, {"shop/views"}),
        ],
    )
    def test_the_file_loads_as_it_is(self, project: Path, params: dict[str, object], assets: set[str]) -> None:
        path = scaffold(project, "shop", **params)
        component = dg.ComponentTree.for_project(project / "src" / "warehouse").load_component(path.parent)
        assert isinstance(component, GobblinJobComponent)
        assert component.job.destination == str(project / "lake")
        assert read_job_file(path) == component.job
        keys_found = {key.to_user_string() for key in load(project).resolve_asset_graph().materializable_asset_keys}
        assert keys_found == assets

    @pytest.mark.parametrize(
        ("params", "assets"), [({}, {"mirror/tree"}), ({"dataset": ["a", "b: c"]}, {"mirror/a", "mirror/b: c"})]
    )
    def test_a_copy_s_file_loads_as_it_is(self, project: Path, params: dict[str, object], assets: set[str]) -> None:
        folder = scaffold_copy(project, source="/data/in", **params)
        component = dg.ComponentTree.for_project(project / "src" / "warehouse").load_component(folder)
        assert isinstance(component, GobblinCopyComponent)
        # Not the root of a job of rows, nor of another copy.
        assert component.job.destination == str(project / "copies" / "mirror")
        assert read_any_job_file(folder / "defs.yaml") == component.job
        found = load(project)
        assert keys(found) == OURS
        assert {key.to_user_string() for key in found.resolve_asset_graph().materializable_asset_keys} == assets

    def test_what_gives_no_job_is_refused_and_leaves_no_file(self, project: Path) -> None:
        with pytest.raises(click.ClickException, match="job"):
            scaffold(project, "shop", job="not a name")
        assert not (defs_folder(project) / "shop").exists()
        with pytest.raises(click.ClickException, match="source: expected an absolute path"):
            scaffold_copy(project, source="data/in")
        assert not (defs_folder(project) / "mirror").exists()
        scaffold_copy(project, source="../in")

    def test_a_name_that_is_no_job_s_is_made_one(self, project: Path) -> None:
        assert read_job_file(scaffold(project, "my-shop v2")).job == "my_shop_v2"


def test_a_component_s_file_says_nothing_twice(project: Path) -> None:
    file = scaffold(project, "shop", connection="sales", job="shop")
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("\n".join([*lines, "  destination: /elsewhere", ""]), encoding="utf-8")
    with pytest.raises(ComponentTreeException) as caught:
        dg.ComponentTree.for_project(project / "src" / "warehouse").load_component(file.parent)
    cause = caught.value.__cause__
    assert isinstance(cause, RejectedError)
    assert (cause.field, "says it twice, in line 8 and in line" in str(cause)) == ("attributes.destination", True)


def test_a_home_that_is_made_is_kept_out_of_git_and_somebody_s_folder_is_not(tmp_path: Path) -> None:
    made = tmp_path / "project" / ".gobblin"
    make_home(made)
    make_home(made)
    assert (made / ".gitignore").read_text(encoding="utf-8") == "*\n"
    make_home(tmp_path)
    assert not (tmp_path / ".gitignore").exists()
