"""Names in Dagster: asset keys, groups and output names of hostile URNs stay apart, and bad ones are refused."""

import dagster as dg
import pytest

from gobblin_assets.assets.layout import JobLayout, build_layout
from gobblin_assets.assets.naming import DatasetTranslation, GobblinTranslator, output_name_of
from gobblin_assets.errors import RejectedError
from gobblin_assets.ingest.job_parsing import parse_job, resolve_datasets
from gobblin_assets.model.urn import DatasetUrn, Role

HOSTILE = ("a/b", "a.b", "a_b", "a-b", "..", ".", "ä ö", "A.B", "a b", " a", "%2F", "x" * 500, "👋", "meta")


def lay_out(**options: object) -> JobLayout:
    job = parse_job({"job": "shop", "source": {"connection": "db"}, "destination": "/lake", **options})
    return build_layout(job, resolve_datasets(job, None), GobblinTranslator())


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
