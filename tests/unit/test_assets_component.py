"""The YAML component: the same definitions as the Python function, and errors in our own words."""

from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import pytest
from jsonschema import Draft202012Validator

from gobblin_assets.dagster.component import (
    GobblinCopyAttributes,
    GobblinCopyComponent,
    GobblinJobAttributes,
    GobblinJobComponent,
)
from gobblin_assets.dagster.factory import build_gobblin_definitions
from gobblin_assets.errors import RejectedError

JOB: dict[str, Any] = {
    "job": "shop",
    "source": {"connection": "sales"},
    "destination": "/lake",
    "datasets": [
        {
            "table": "public.orders",
            "extract": "append_only",
            "watermark": {"column": "day", "type": "date", "key_column": None},
            "partitions": {"kind": "monthly", "start": "2013-01-01"},
        },
        {"table": "public.stock"},
    ],
}


def build(**attributes: Any) -> dg.Definitions:
    component = GobblinJobComponent.from_attributes_dict(attributes={**JOB, **attributes})
    return component.build_defs(dg.ComponentTree.for_test().load_context)


def describe(definitions: dg.Definitions) -> dict[str, Any]:
    assets = next(iter(definitions.assets or []))
    assert isinstance(assets, dg.AssetsDefinition)
    return {
        "specs": {spec.key.to_user_string(): (spec.group_name, spec.partitions_def) for spec in assets.specs},
        "checks": {(check.asset_key, check.name) for check in assets.check_specs},
        "jobs": {job.name for job in definitions.jobs or []},
        "sensors": {sensor.name for sensor in definitions.sensors or []},
        "backfill": assets.backfill_policy,
    }


def errors_of(attributes: dict[str, Any]) -> list[str]:
    return [
        error.message
        for error in Draft202012Validator(GobblinJobAttributes.model_json_schema()).iter_errors(attributes)
    ]


class TestDefinitions:
    @pytest.mark.parametrize("backfill", ["multi_run", "single_run"])
    def test_are_those_of_the_python_function(self, backfill: str) -> None:
        assert describe(build(backfill=backfill)) == describe(build_gobblin_definitions({**JOB, "backfill": backfill}))

    def test_a_backfill_is_one_run_unless_a_job_asks_for_more(self) -> None:
        assert describe(build())["backfill"] == dg.BackfillPolicy.single_run()
        assert describe(build(backfill="multi_run"))["backfill"] == dg.BackfillPolicy.multi_run(1)

    def test_hold_a_job_for_each_partitions_definition_and_one_for_recovery(self) -> None:
        assert describe(build())["jobs"] == {"shop_monthly", "shop_whole", "shop_recovery", "shop_resume"}

    def test_a_translation_changes_key_group_and_tags(self) -> None:
        found = build(
            translation={"key_prefix": "lake", "group_name": "{{ role }}_{{ job.job }}", "tags": {"tier": "gold"}}
        )
        assets = next(iter(found.assets or []))
        assert isinstance(assets, dg.AssetsDefinition)
        spec = assets.get_asset_spec(dg.AssetKey(["lake", "shop", "public.stock"]))
        assert (spec.group_name, spec.tags["tier"]) == ("data_shop", "gold")

    def test_templates_are_filled_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LAKE", "/elsewhere")
        component = GobblinJobComponent.from_attributes_dict(attributes={**JOB, "destination": "{{ env.LAKE }}/x"})
        assert component.job.destination == "/elsewhere/x"

    def test_a_project_s_own_executor_can_stay(self) -> None:
        assert build(executor="project").executor is None

    def test_a_subclass_has_the_last_word_on_a_spec(self) -> None:
        class Grouped(GobblinJobComponent):
            def get_asset_spec(self, data: Any) -> dg.AssetSpec:
                return super().get_asset_spec(data).replace_attributes(group_name="mine")

        component = Grouped.from_attributes_dict(attributes=JOB)
        found = component.build_defs(dg.ComponentTree.for_test().load_context)
        assert {group for group, _ in describe(found)["specs"].values()} == {"mine"}


class TestErrors:
    @pytest.mark.parametrize(
        ("attributes", "said"),
        [
            ({"datasets": [{"table": "t", "watermarc": {}}]}, r"datasets\[0\]\.watermarc"),
            ({"executor": "cluster"}, "executor"),
            ({"translation": {"grupp": "x"}}, "grupp"),
            (
                {"translation": {"owners": "data"}},
                r"^translation\.owners: expected a list of e-mail .* found 'data'\. Write \[team:data\]",
            ),
            (
                {"translation": {"owners": ["team:a", "data"]}},
                r"^translation\.owners: expected e-mail .* with the prefix team:, found 'data'\. Write team:data",
            ),
            ({"destination": "lake"}, "destination"),
            ({"discovered": "nowhere.json", "source": {"connection": "sales", "include": ["*"]}}, "discovered"),
        ],
    )
    def test_name_the_field_and_the_fix(self, attributes: dict[str, Any], said: str) -> None:
        with pytest.raises(RejectedError, match=said) as caught:
            build(**attributes)
        assert caught.value.hint

    def test_no_attributes_at_all_are_refused(self) -> None:
        with pytest.raises(RejectedError, match="job"):
            GobblinJobComponent.load(None, dg.ComponentTree.for_test().load_context)


class TestSchema:
    def test_takes_what_is_valid(self) -> None:
        assert errors_of({**JOB, "translation": {"group_name": "x"}, "discovered": None}) == []

    @pytest.mark.parametrize(
        ("dataset", "said"),
        [
            ({"columns": 5}, "5 is not of type 'array'"),
            ({"watermark": {"column": 7}}, "7 is not of type 'string'"),
            ({"splits": {}}, "Additional properties are not allowed ('splits' was unexpected)"),
        ],
    )
    def test_says_what_is_wrong_with_an_optional_value(self, dataset: dict[str, Any], said: str) -> None:
        assert errors_of({**JOB, "datasets": [dataset]}) == [said]

    @pytest.mark.parametrize(
        ("attributes", "said"),
        [
            ({"source": {"conection": "s"}}, ["('conection' was unexpected)", "'connection' is a required property"]),
            ({"source": {"type": "kafka", "connection": "s", "jars": []}}, ["('jars' was unexpected)"]),
            ({"source": {"type": "postgres", "connection": "s"}}, ["'postgres' is not one of ['jdbc', 'kafka',"]),
            ({"source": "sales"}, ["'sales' is not of type 'object'"]),
            ({"sink": {"into": {"type": "kafka", "topics": "t"}}}, ["('topics' was unexpected)", "'connection' is"]),
            ({"sink": {"into": {"connection": "s"}}}, ["'type' is a required property"]),
            ({"sink": {"into": None}, "translation": "{{ shown(spec) }}"}, []),
            ({"translation": 5}, ["5 is not of type 'string', 'object'"]),
            ({"translation": {"group": "x"}}, ["('group' was unexpected)"]),
            ({"translation": {"owners": "data"}}, ["'data' is not of type 'array'"]),
            ({"translation": {"owners": ["me@example.com", "data"]}}, ["'data' does not match '^team:.+|"]),
            ({"translation": {"owners": "{{ env.OWNERS }}", "key_prefix": ["a"], "tags": {"a": 1}}}, []),
            ({"translation": {"owners": ["{{ env.OWNER }}", "team:data"], "key_prefix": "a"}}, []),
        ],
    )
    def test_names_what_is_wrong_in_the_group_that_was_meant(self, attributes: dict[str, Any], said: list[str]) -> None:
        found = errors_of({**JOB, **attributes})
        assert len(found) == len(said)
        assert all(part in message for part, message in zip(said, found, strict=True))


def test_a_discovery_s_tables_become_datasets(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text(
        '{"format": 1, "connection": "sales", "include": [], "exclude": [], '
        '"tables": ["public.a", "public.b", "private.c"], "found_at": "2026-01-01T00:00:00+00:00"}',
        encoding="utf-8",
    )
    source = {"connection": "sales", "include": ["public.*"]}
    found = build(source=source, datasets=[], discovered=str(tmp_path / "found.json"))
    assert sorted(describe(found)["specs"]) == ["shop/public.a", "shop/public.b"]


class TestCopies:
    """The component of copies: the same, with the options of a copy."""

    ATTRIBUTES: ClassVar[dict[str, Any]] = {
        "job": "mirror",
        "source": "/in",
        "destination": "/out",
        "datasets": [{"urn": "photos", "deletes": "ours"}],
        "trigger": {"marker": "_SUCCESS"},
        "translation": {"group_name": "files"},
    }

    def test_attributes_are_the_options_of_the_job(self) -> None:
        component = GobblinCopyComponent.from_attributes_dict(attributes=self.ATTRIBUTES)
        found = describe(component.build_defs(dg.ComponentTree.for_test().load_context))
        assert found["specs"] == {"mirror/photos": ("files", None)}
        assert {name for _key, name in found["checks"]} == {"sides_agree", "gobblin_published"}
        assert found["sensors"] == {"mirror_recovery_sensor", "mirror_reporting_sensor", "mirror_new_data_sensor"}

    @pytest.mark.parametrize(
        ("wrong", "field"),
        [
            ({"deletes": "some"}, "datasets"),
            ({"discovered": "x"}, "discovered"),
            ({"kind": "ingest"}, "kind"),
            ({"executer": "project"}, "executer.*Did you mean 'executor'"),
        ],
    )
    def test_what_is_no_option_of_a_copy_is_refused(self, wrong: dict[str, Any], field: str) -> None:
        attributes = {**self.ATTRIBUTES, **wrong}
        if "deletes" in wrong:
            attributes = {**self.ATTRIBUTES, "datasets": [{"urn": "photos", **wrong}]}
        with pytest.raises(RejectedError, match=field):
            GobblinCopyComponent.from_attributes_dict(attributes=attributes)

    def test_the_schema_takes_what_loads(self) -> None:
        validator = Draft202012Validator(GobblinCopyAttributes.model_json_schema())
        assert not list(validator.iter_errors(self.ATTRIBUTES))
        assert list(validator.iter_errors({**self.ATTRIBUTES, "workers": "many"}))
