"""Schedules as people give them, by REST, Rest.li, pages and commands, and what is shown of them."""

import datetime as dt
import html
import itertools
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.flow_config import CatchUp, FlowConfig, read_flow_config
from tests.support.command_lake import invoke
from tests.support.flow_world import KEY, FlowWorld, make_config
from tests.support.running_service import RunningService

FLOWS = "/api/v1/flows"
ORDERS = f"{FLOWS}/sales/orders"
RESTLI = "/flowconfigs/(flowGroup:sales,flowName:orders)"
CONFIG: dict[str, Any] = {
    "flow_group": "sales",
    "flow_name": "orders",
    "source": "shop",
    "destinations": ["lake"],
    "template_uris": ["FS:///tables.template"],
    "parameters": {"tables": [{"table": "public.orders"}]},
}
WHEN: dict[str, Any] = {
    "schedule": "30 3 * * *",
    "timezone": "Europe/Berlin",
    "catch_up": "all",
    "catch_up_max": 7,
    "spread": "15m",
    "overlap": "queue",
    "windows": [{"start": "22:00", "end": "02:00", "days": ["sat", "sun"]}],
    "missing_max": 40,
}
FORM = {
    "template": "FS:///default@9/tables.template",
    "flow_group": "sales",
    "flow_name": "orders",
    "source": "shop",
    "destinations": "lake",
    "tables[0].table": "public.orders",
    "schedule": "30 3 * * *",
    "timezone": "Europe/Berlin",
}


def test_options_of_a_schedule_are_stored_and_patched(service: RunningService) -> None:
    made = service.ask("POST", FLOWS, {**CONFIG, **WHEN})
    assert made.status == 201, made.text
    assert {name: made.json["config"][name] for name in WHEN} == WHEN
    assert service.ask("GET", f"{ORDERS}/executions").json["executions"] == [], "it runs when it is due"
    patched = service.ask("PATCH", ORDERS, {"spread": None, "catch_up": "latest"})
    assert patched.status == 200, patched.text
    assert "spread" not in patched.json["config"], "what is as by default is not written"
    assert patched.json["config"]["timezone"] == "Europe/Berlin"
    assert service.ask("PATCH", ORDERS, {"schedule": "0 0 30 2 *"}).json["field"] == "schedule"
    assert service.ask("PATCH", ORDERS, {"timezone": "Berlin"}).json["field"] == "timezone"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schedule": "0 0 15W * ?"}, "schedule"),
        ({"schedule": "0 0 3 * * ? 2020"}, "schedule"),
        ({"timezone": "Mars/Base"}, "timezone"),
        ({"catch_up": "some"}, "catch_up"),
        ({"catch_up_max": 0}, "catch_up_max"),
        ({"missing_max": 10_001}, "missing_max"),
        ({"spread": "2d"}, "spread"),
        ({"spread": "25h"}, "spread"),
        ({"overlap": "kill"}, "overlap"),
        ({"windows": [{"start": "22:00", "end": "24:00"}]}, "windows[0].end"),
        ({"windows": [{"start": 1320, "end": "23:00"}]}, "windows[0].start"),
        ({"windows": [{"start": "22:00", "end": "22:00"}]}, "windows[0].end"),
        ({"windows": [{"start": "22:00", "end": "23:00", "days": ["monday"]}]}, "windows[0].days[0]"),
        ({"windows": [{"start": "00:00", "end": "12:00"}, {"start": "12:00", "end": "00:00"}]}, "windows"),
        ({"schedule": "0 23 * * *", "catch_up": "none", "windows": [{"start": "22:00", "end": "02:00"}]}, "windows"),
        ({"schedule": "@continuous"}, "schedule"),
    ],
)
def test_a_wrong_option_is_named_with_its_fix(service: RunningService, change: dict[str, Any], field: str) -> None:
    for answer in (
        service.ask("POST", FLOWS, {**CONFIG, **change}),
        service.ask("POST", f"{ORDERS}:explain", {**CONFIG, **change}),
    ):
        assert (answer.status, answer.json["field"]) == (422, field), answer.text
        assert answer.json["hint"]
    assert service.ask("GET", FLOWS).json["flows"] == []


def test_explain_says_when_the_flow_starts_in_its_zone(service: RunningService, tmp_path: Path) -> None:
    found = service.ask("POST", f"{ORDERS}:explain", {**CONFIG, **WHEN, "spread": ""}).json["next_fires"]
    moments = [dt.datetime.fromisoformat(each) for each in found]
    assert [f"{each:%H:%M:%S}" for each in moments] == ["03:30:00"] * 5
    assert [(later - before).days for before, later in itertools.pairwise(moments)] == [1] * 4
    assert moments[0] > dt.datetime.now(dt.UTC)

    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump({**CONFIG, **WHEN}), encoding="utf-8")
    assert "starts at 20" in invoke("service", "flow", "explain", str(file), "--url", service.url).output
    made = invoke("service", "flow", "create", str(file), "--url", service.url).output
    assert "30 3 * * * Europe/Berlin" in " ".join(made.split())


def test_restli_reads_and_writes_the_record_schedule(service: RunningService) -> None:
    body = {
        "flowName": "orders",
        "flowGroup": "sales",
        "templateUris": "FS:///tables.template",
        "schedule": {"cronSchedule": "0 30 3 ? * MON-FRI", "runImmediately": False},
        "properties": {
            "gobblin.flow.sourceIdentifier": "shop",
            "gobblin.flow.destinationIdentifier": "lake",
            "gobblin.flow.timezone": "Europe/Berlin",
            "tables": '[{"table": "public.orders"}]',
        },
    }
    answer = service.ask("POST", "/flowconfigs", body)
    assert answer.status == 201, answer.text
    found = service.ask("GET", RESTLI).json
    assert found["schedule"] == body["schedule"]
    assert found["properties"] == body["properties"]
    assert service.ask("PATCH", ORDERS, {"overlap": "queue"}).status == 200
    sent = {**body, "schedule": "@daily", "properties": {**body["properties"]}}
    assert service.ask("PUT", RESTLI, sent).status == 200
    config = service.ask("GET", ORDERS).json["config"]
    assert (config["schedule"], config["timezone"]) == ("@daily", "Europe/Berlin")
    assert config["overlap"] == "queue", "what a FlowConfig of Rest.li can't say stays"
    wrong = service.ask("PUT", RESTLI, {**body, "schedule": {"cron": "0 0 3 * * ?"}})
    assert (wrong.status, wrong.json["errorDetails"]["field"]) == (422, "schedule.cron")


def test_pages_show_a_schedule_take_it_and_keep_what_they_do_not_ask_for(service: RunningService) -> None:
    form = service.ask("GET", f"/ui/new?template={FORM['template']}")
    assert 'name="schedule"' in form.text
    assert 'name="timezone" value="UTC"' in form.text
    wrong = service.send_form("/ui/new", {**FORM, "create": "1", "schedule": "0 3 * *"})
    assert (wrong.status, 'id="schedule-refused"' in wrong.text) == (422, True)
    assert 'value="0 3 * *"' in wrong.text
    assert service.send_form("/ui/new", {**FORM, "create": "1"}).status == 303
    assert service.ask("PATCH", ORDERS, {"catch_up": "none"}).status == 200

    page = service.ask("GET", "/ui/flows/sales/orders").text
    assert "<code>30 3 * * *</code>, Europe/Berlin" in page
    assert re.search(r"Starts at 20\d\d-\d\d-\d\d 03:30:00 CES?T, ", page)
    assert "<code>30 3 * * *</code> <small>Europe/Berlin</small>" in service.ask("GET", "/ui/flows").text
    edit = service.ask("GET", "/ui/flows/sales/orders/edit").text
    assert 'name="timezone" value="Europe/Berlin"' in edit
    etag = html.unescape(re.search(r'name="etag" value="([^"]*)"', edit)[1])  # type: ignore[index]  # it is there
    changed = {**FORM, "create": "1", "etag": etag, "schedule": "@hourly"}
    assert service.send_form("/ui/flows/sales/orders/edit", changed).status == 303
    config = service.ask("GET", ORDERS).json["config"]
    assert (config["schedule"], config["catch_up"]) == ("@hourly", "none")


@pytest.mark.service_schema
def test_workers_always_run_or_run_without_a_schedule(engine: Engine) -> None:
    world = FlowWorld(engine)
    world.compiler.workers = frozenset({0})
    for ask in (world.flows.create, world.flows.explain):
        with pytest.raises(RejectedError, match=r"^schedule: shop_to_|^schedule: .* is a worker, which always runs"):
            ask(world.person, make_config(schedule="@daily"))
    made = world.flows.create(world.person, make_config(schedule="@Continuous"))
    assert len(world.flows.list_executions(KEY)) == 1, "it runs at its creation"
    with pytest.raises(RejectedError, match="is a worker"):
        world.flows.update(world.person, make_config(schedule="@daily"))
    assert world.flows.get(KEY).spec.version == made.spec.version


def test_a_config_that_uses_no_option_of_schedules_is_written_as_before() -> None:
    plain = read_flow_config(CONFIG)
    assert set(plain.model_dump(mode="json")) == {
        *("flow_group", "flow_name", "description", "source", "destinations", "template_uris", "parameters"),
        *("schedule", "run_immediately"),
    }
    full = read_flow_config({**CONFIG, **WHEN})
    assert FlowConfig.model_validate_json(full.model_dump_json()) == full


def test_times_in_a_window_are_shown_at_its_end_if_the_flow_catches_up() -> None:
    options = {**CONFIG, "schedule": "0 * * * *", "windows": [{"start": "01:00", "end": "04:30"}]}
    midnight = dt.datetime(2026, 11, 30, 0, 0, tzinfo=dt.UTC)

    def show(**changes: Any) -> list[str]:
        return [f"{at:%H:%M}" for at in read_flow_config({**options, **changes}).list_next_fires(None, midnight)]

    assert show() == ["04:30", "05:00", "06:00", "07:00", "08:00"]
    assert show(catch_up="none") == ["05:00", "06:00", "07:00", "08:00", "09:00"]
    assert show(schedule="@continuous") == show(schedule="") == []


def test_a_stored_flow_whose_slots_are_all_in_windows_is_shown_soon() -> None:
    options = {**CONFIG, "schedule": "0 23 * * *", "windows": [{"start": "22:00", "end": "02:00"}], "catch_up": "none"}
    began = time.process_time()
    assert FlowConfig.model_validate(options).list_next_fires(None, dt.datetime(2026, 11, 30, tzinfo=dt.UTC)) == ()
    assert time.process_time() - began < 2
    weekdays = [{"start": "22:00", "end": "02:00", "days": ["mon", "tue", "wed", "thu", "fri", "sat"]}]
    assert read_flow_config({**options, "windows": weekdays}).catch_up is CatchUp.NONE
