"""Names in Dagster: asset keys, groups and output names of hostile URNs stay apart, and bad ones are refused."""

import dagster as dg
import pytest

from gobblin_assets.dagster.factory import build_gobblin_definitions, build_gobblin_source_specs
from gobblin_assets.dagster.layout import JobLayout, build_layout
from gobblin_assets.dagster.naming import DatasetTranslation, GobblinTranslator, SourceTranslation, output_name_of
from gobblin_assets.dagster.ports import FILE_SYSTEMS_KEY, SPARK_KEY, STORES_KEY
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

HOSTILE = ("a/b", "a.b", "a_b", "a-b", "..", ".", "ä ö", "A.B", "a b", " a", "%2F", "x" * 500, "👋", "meta")


def lay_out(translator: GobblinTranslator | None = None, **options: object) -> JobLayout:
    job = parse_job({"job": "shop", "source": {"connection": "db"}, "destination": "/lake", **options})
    return build_layout(job, resolve_datasets(job, None), translator or GobblinTranslator())


class TestHostileUrns:
    def test_each_becomes_an_asset_of_its_own_with_an_output_name_that_dagster_takes(self) -> None:
        layout = lay_out(datasets=[{"table": urn} for urn in HOSTILE], roles=["data", "quarantine"])
        keys = {spec.key for spec in layout.specs.values()}
        assert len(keys) == 2 * len(HOSTILE)
        assert len({key.to_user_string() for key in keys}) == len(keys)
        assert len(layout.build_outs()) == len(keys) + len(HOSTILE)  # and one check for each dataset
        assert all(name.isidentifier() and len(name) < 100 for name in layout.build_outs())

    def test_output_names_do_not_depend_on_the_process(self) -> None:
        assert output_name_of(dg.AssetKey(["shop", "a.b"])) == "shop_a_b_4ffbe46f66"


class TestTranslator:
    def test_says_group_tags_and_metadata_of_a_dataset(self) -> None:
        layout = lay_out(datasets=[{"table": "public.orders", "group": "sales", "tags": {"tier": "gold"}}])
        spec = layout.specs[DatasetUrn("public.orders"), Role.DATA]
        assert spec.key == dg.AssetKey(["shop", "public.orders"])
        assert (spec.group_name, spec.tags["tier"]) == ("sales", "gold")
        assert spec.metadata["dagster/uri"] == "/lake/shop/data/public.orders"
        assert spec.skippable

    def test_a_group_that_dagster_refuses_is_rejected_with_the_dataset_it_belongs_to(self) -> None:
        with pytest.raises(RejectedError, match=r"datasets\[public\.orders\].*no-dashes") as caught:
            lay_out(datasets=[{"table": "public.orders", "group": "no-dashes here"}])
        assert caught.value.hint

    def test_two_datasets_under_one_key_are_rejected(self) -> None:
        class OneKey(GobblinTranslator):
            def get_asset_spec(self, data: DatasetTranslation) -> dg.AssetSpec:
                return super().get_asset_spec(data).replace_attributes(key=dg.AssetKey("all"))

        job = parse_job(
            {
                "job": "shop",
                "source": {"connection": "db"},
                "destination": "/lake",
                "datasets": [{"table": "a"}, {"table": "b"}],
            }
        )
        with pytest.raises(RejectedError, match="'a', 'b' share the asset key all"):
            build_layout(job, resolve_datasets(job, None), OneKey())


class TestSources:
    def test_what_is_read_lies_upstream_under_a_key_that_no_dataset_has(self) -> None:
        layout = lay_out(
            job="source",
            source={"connection": "source"},
            datasets=[{"table": "a/b"}, {"table": "jdbc"}, {"urn": "again", "table": "a/b"}, {"table": "source"}],
            roles=["data", "quarantine", "dead_letter"],
        )
        shown = build_gobblin_source_specs(layout)
        keys = {spec.key for spec in layout.specs.values()}
        assert [spec.key.path[-1] for spec in shown] == ["a%2Fb", "jdbc", "source"]
        assert shown[0].key == dg.AssetKey(["source", "jdbc", "source", "a%2Fb"])
        assert not keys & {spec.key for spec in shown}
        assert not {key.to_user_string() for key in keys} & {spec.key.to_user_string() for spec in shown}
        for (urn, _role), spec in layout.specs.items():
            assert [dep.asset_key for dep in spec.deps] == [layout.sources[urn].key]

    @pytest.mark.parametrize(
        ("source", "database", "kind"),
        [
            ({"connection": "db"}, "postgres", "postgres"),
            ({"connection": "db"}, None, "table"),
            ({"connection": "db", "type": "kafka"}, None, "kafka"),
        ],
    )
    def test_says_what_kind_of_source_it_is(self, source: dict[str, str], database: str | None, kind: str) -> None:
        job = parse_job({"job": "shop", "source": source, "destination": "/lake", "datasets": [{"urn": "orders"}]})
        layout = build_layout(job, resolve_datasets(job, None), GobblinTranslator(), database=database)
        (spec,) = build_gobblin_source_specs(layout)
        assert (spec.kinds, spec.group_name) == ({kind}, "sources")

    def test_a_source_under_the_key_of_a_dataset_is_rejected(self) -> None:
        class OneKey(GobblinTranslator):
            def get_source_spec(self, data: SourceTranslation) -> dg.AssetSpec:
                return dg.AssetSpec(["shop", data.name])

        with pytest.raises(RejectedError, match="share the asset key shop/t"):
            lay_out(OneKey(), datasets=[{"table": "t"}])

    def test_a_translator_may_leave_them_out(self) -> None:
        class Without(GobblinTranslator):
            def get_source_spec(self, data: SourceTranslation) -> None:
                return None

        layout = lay_out(Without(), datasets=[{"table": "t"}])
        assert not build_gobblin_source_specs(layout)
        assert not list(layout.specs[DatasetUrn("t"), Role.DATA].deps)

    def test_two_jobs_show_one_table_once_and_no_selection_of_all_materializes_it(self) -> None:
        jobs = [
            build_gobblin_definitions(
                {
                    "job": name,
                    "source": {"connection": "db"},
                    "destination": f"/{name}",
                    "datasets": [{"table": "public.orders"}],
                },
                database="postgres",
            )
            for name in ("shop", "audit", "source")
        ]
        keys = (STORES_KEY, FILE_SYSTEMS_KEY, SPARK_KEY, "jdbc__db")
        resources = {key: dg.ResourceDefinition.none_resource() for key in keys}
        found = dg.Definitions.merge(*jobs, dg.Definitions(resources=resources)).get_repository_def()
        graph = found.asset_graph
        own = {dg.AssetKey([name, "public.orders"]) for name in ("shop", "audit", "source")}
        source = graph.get(dg.AssetKey(["source", "jdbc", "db", "public.orders"]))
        assert (source.child_keys, source.is_materializable, source.is_executable) == (own, False, True), (
            "it is observed, and never materialized"
        )
        assert dg.AssetSelection.all().resolve(graph) == own
        for name in ("shop", "audit", "source"):
            layer = found.get_job(f"{name}_whole").asset_layer
            assert layer.selected_asset_keys == {dg.AssetKey([name, "public.orders"])}


class TestChecks:
    def test_every_policy_with_a_result_is_a_check_beside_the_one_for_publication(self) -> None:
        layout = lay_out(
            datasets=[
                {
                    "table": "t",
                    "quality": {
                        "rows": [
                            {"name": "positive", "check": "x > 0"},
                            {"name": "known", "check": "y IS NOT NULL", "on_failure": "err_file"},
                            {"name": "noted", "check": "z > 0", "on_failure": "optional"},
                        ],
                        "tasks": [{"name": "enough", "kind": "row_count", "min_row_count": 1}],
                    },
                }
            ]
        )
        checks = {check.name: check.blocking for check in layout.build_checks().values()}
        assert checks == {
            "positive": True,
            "known": False,
            "noted": False,
            "quarantine_fraction": True,
            "enough": True,
            "gobblin_published": False,
        }

    def test_policies_that_share_a_name_are_rejected(self) -> None:
        with pytest.raises(RejectedError, match="name"):
            lay_out(
                datasets=[
                    {
                        "table": "t",
                        "quality": {
                            "rows": [{"name": "same", "check": "x > 0"}],
                            "tasks": [{"name": "same", "kind": "row_count", "min_row_count": 1}],
                        },
                    }
                ]
            ).build_checks()
