"""The pages of the service, as a browser without scripts gets them: what they show, and what their forms do."""

import html
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from sqlalchemy import text

import gobblin_assets.service.ui as pages
from gobblin_assets.db.engine import open_external
from tests.support.running_service import Answer, RunningService

FLOWS = "/api/v1/flows"
WAIT_S_MAX = 150.0
TEMPLATE = "FS:///default@9/tables.template"
FORM = {
    "template": TEMPLATE,
    "flow_group": "sales",
    "flow_name": "orders",
    "source": "shop",
    "destinations": "lake",
    "tables[0].table": "public.orders",
    "tables[0].primary_key": "id, day",
}


def read(answer: Answer) -> str:
    """The text of a page, which must be one."""
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def make_flow(service: RunningService, **changes: str) -> str:
    """Create a flow by the wizard's form; returns the address of its page."""
    answer = service.send_form("/ui/new", {**FORM, "create": "1", **changes})
    assert answer.status == 303, answer.text
    return answer.headers["location"].partition("?")[0]


def test_a_flow_is_made_run_and_deleted_by_forms(service: RunningService) -> None:
    assert service.ask("GET", "/").headers["location"] == "/ui/flows"
    assert "There is no flow yet" in read(service.ask("GET", "/ui/flows"))
    assert "tables.template" in read(service.ask("GET", "/ui/new"))
    form = service.ask("GET", f"/ui/new?template={TEMPLATE}")
    for name in ("flow_group", "flow_name", "source", "destinations", "tables[0].table"):
        assert f'name="{name}"' in form.text

    page = make_flow(service)
    assert page == "/ui/flows/sales/orders"
    text = read(service.ask("GET", page))
    assert "ACTIVE" in text
    assert "shop table → lake dataset" in text
    assert "The flow was not run yet" in text
    config = service.ask("GET", f"{FLOWS}/sales/orders").json["config"]
    assert config["parameters"] == {"tables": [{"table": "public.orders", "primary_key": ["id", "day"]}]}
    assert "sales / orders" in read(service.ask("GET", "/ui/flows"))
    assert "sales / orders" not in read(service.ask("GET", "/ui/flows?search=customers"))

    ran = service.send_form(f"{page}/run", {"partitions": "2026-01-01, 2026-02-01...2026-02-03", "request_key": "k"})
    assert ran.status == 303
    execution = ran.headers["location"]
    assert "orders_to_lake_" in read(service.ask("GET", execution))
    again = service.send_form(f"{page}/run", {"partitions": "2026-01-01, 2026-02-01...2026-02-03", "request_key": "k"})
    assert again.headers["location"] == execution, "a form that is sent twice runs once"
    assert service.send_form(f"{execution}/cancel", {}).status == 303

    assert service.send_form(f"{page}/pause", {}).status == 303
    assert "PAUSED" in read(service.ask("GET", page))
    assert service.send_form(f"{page}/resume", {}).status == 303
    assert service.send_form(f"{page}/delete", {}).status == 303
    missing = service.ask("GET", page)
    assert (missing.status, "there is no flow 'orders'" in read(missing)) == (404, True)


def test_what_is_wrong_is_shown_where_it_was_typed(service: RunningService) -> None:
    answer = service.send_form("/ui/new", {**FORM, "create": "1", "tables[0].table": "no table!"})
    assert answer.status == 422
    assert 'id="tables[0].table-refused"' in answer.text
    assert 'value="no table!"' in answer.text
    assert 'value="id, day"' in answer.text, "the rest of what was typed stays"
    answer = service.send_form("/ui/new", {**FORM, "create": "1", "flow_name": ""})
    assert (answer.status, 'id="flow_name-refused"' in answer.text) == (422, True)
    make_flow(service)
    answer = service.send_form("/ui/new", {**FORM, "create": "1"})
    assert (answer.status, "there is a flow 'orders'" in read(answer)) == (409, True)


def test_a_row_is_added_and_an_empty_one_is_left_out(service: RunningService) -> None:
    answer = service.send_form("/ui/new", {**FORM, "add_row": "tables"})
    assert answer.status == 200
    assert 'name="tables[1].table"' in answer.text
    make_flow(service, **{"tables[1].table": "", "tables[2].table": "public.items"})
    tables = service.ask("GET", f"{FLOWS}/sales/orders").json["config"]["parameters"]["tables"]
    assert [each["table"] for each in tables] == ["public.orders", "public.items"]


def test_a_plan_is_shown_beside_the_form_and_nothing_is_stored(service: RunningService) -> None:
    fragment = service.send_form("/ui/explain", FORM)
    assert (fragment.status, "<html" in fragment.text) == (200, False)
    assert "lake" in fragment.text
    assert "orders_to_lake_" in fragment.text
    refused = service.send_form("/ui/explain", {**FORM, "tables[0].table": ""})
    assert "parameters.tables" in refused.text
    pending = service.send_form("/ui/explain", {**FORM, "destinations": "island"})
    assert "No executor can run this now" in pending.text
    whole = service.send_form("/ui/new", {**FORM, "explain": "1"})
    assert "orders_to_lake_" in read(whole)
    assert service.ask("GET", FLOWS).json["flows"] == []


def test_a_flow_is_changed_by_the_same_form(service: RunningService) -> None:
    page = make_flow(service)
    form = service.ask("GET", f"{page}/edit")
    assert 'value="public.orders"' in form.text
    etag = html.unescape(re.search(r'name="etag" value="([^"]*)"', form.text)[1])  # type: ignore[index]  # it is there
    changed = {**FORM, "create": "1", "etag": etag, "tables[0].table": "public.items"}
    assert service.send_form(f"{page}/edit", changed).status == 303
    config = service.ask("GET", f"{FLOWS}/sales/orders").json
    assert (config["version"], config["config"]["parameters"]["tables"][0]["table"]) == ("2", "public.items")
    late = service.send_form(f"{page}/edit", changed)
    assert late.status == 409, "somebody changed the flow since this form was shown"


def test_a_way_is_described_without_a_template(service: RunningService) -> None:
    form = service.ask("GET", "/ui/new?source=shop&to=mirror")
    assert 'name="template"' not in form.text
    assert 'name="tables[0].table"' in form.text
    sent = [("flow_group", "sales"), ("flow_name", "way"), ("source", "shop")]
    sent += [("destinations", "mirror"), ("tables[0].table", "public.orders"), ("create", "1")]
    answer = service.send_form("/ui/new", sent)
    assert answer.status == 303, read(answer)
    flow = service.ask("GET", f"{FLOWS}/sales/way").json
    assert (flow["state"], flow["config"]["template_uris"]) == ("ACTIVE", [])
    assert 'value="public.orders"' in service.ask("GET", "/ui/flows/sales/way/edit").text
    assert "at least one place where it ends" in read(service.ask("GET", "/ui/new?source=shop"))
    wrong = service.ask("GET", "/ui/new?source=shop&to=nowhere")
    assert (wrong.status, "nowhere" in read(wrong)) == (422, True)


def test_a_change_of_a_flow_that_nothing_joins_keeps_its_parameters(service: RunningService) -> None:
    parameters = {"tables": [{"table": "public.orders", "primary_key": ["id"]}]}
    made = {"flow_group": "sales", "flow_name": "far", "source": "shop", "destinations": ["island"]}
    assert service.ask("POST", FLOWS, {**made, "parameters": parameters}).json["state"] == "PENDING"
    form = service.ask("GET", "/ui/flows/sales/far/edit")
    assert "nothing asks for parameters. Those of the flow stay" in read(form)
    etag = html.unescape(re.search(r'name="etag" value="([^"]*)"', form.text)[1])  # type: ignore[index]  # it is there
    sent = {"source": "shop", "destinations": "island", "description": "Far away", "etag": etag, "create": "1"}
    assert service.send_form("/ui/flows/sales/far/edit", sent).status == 303
    config = service.ask("GET", f"{FLOWS}/sales/far").json["config"]
    assert (config["description"], config["parameters"]) == ("Far away", parameters)
    assert "choose a template" in read(service.ask("GET", "/ui/new?source=shop&to=island"))


def test_pending_flows_have_a_page_with_the_reasons(service: RunningService) -> None:
    make_flow(service, destinations="island")
    text = read(service.ask("GET", "/ui/flows?pending=1"))
    assert "PENDING" in text
    assert "sales / orders" in text
    make_flow(service, flow_name="other")
    assert "other" not in read(service.ask("GET", "/ui/flows?pending=1"))


@pytest.mark.parametrize(
    "path",
    [
        "/ui/flows",
        "/ui/flows?pending=1",
        "/ui/topology",
        "/ui/templates",
        "/ui/packs",
        "/ui/packs/default/9",
        "/ui/login",
        "/ui/new",
    ],
)
def test_pages_are_safe_to_show(service: RunningService, path: str) -> None:
    answer = service.ask("GET", path)
    assert answer.status == 200
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?! src=)|\son\w+=|style=", answer.text), "the policy would refuse it"
    assert 'lang="en"' in answer.text


def test_what_people_write_is_text(service: RunningService) -> None:
    page = make_flow(service, flow_name="<script>alert(1)</script>", description="<b>&amp;</b>")
    assert unquote(page) == "/ui/flows/sales/<script>alert(1)</script>"
    for path in (page, "/ui/flows", f"{page}/edit"):
        answer = service.ask("GET", path)
        assert answer.status == 200
        assert "<script>alert" not in answer.text
        assert "<b>&amp;</b>" not in answer.text


def test_fragments_are_sent_only_when_they_change(service: RunningService) -> None:
    page = make_flow(service)
    for path in ("/ui/flows", page):
        first = service.ask("GET", path, headers={"X-Fragment": "1"})
        assert (first.status, "<html" in first.text) == (200, False)
        asked: dict[str, Any] = {"X-Fragment": "1", "If-None-Match": first.headers["etag"]}
        assert service.ask("GET", path, headers=asked).status == 304
        run = service.ask("POST", f"{FLOWS}/sales/orders:run")
        assert run.status == 201
        assert service.ask("GET", path, headers=asked).status == 200
        service.ask("POST", f"{FLOWS}/sales/orders:cancel", {"execution_id": run.json["execution_id"]})
        wait_for_end(service)


def wait_for_end(service: RunningService) -> None:
    """The executor of this test takes no tickets: what was sent stays, so the flow is made anew."""
    service.ask("DELETE", f"{FLOWS}/sales/orders")
    make_flow(service)


def test_an_execution_lists_the_earlier_tickets_of_its_jobs(service: RunningService) -> None:
    page = make_flow(service)
    execution = service.send_form(f"{page}/run", {}).headers["location"]
    address = execution.replace("/ui/", "/api/v1/")

    def await_job(status: str) -> Any:
        until = time.monotonic() + WAIT_S_MAX
        while (body := service.ask("GET", address).json)["jobs"][0]["status"] != status:
            assert time.monotonic() < until, body
            time.sleep(0.1)
        return body["jobs"][0]

    first = await_job("ORCHESTRATED")
    assert first["attempts"] == []
    assert service.ask("GET", "/api/v1/alerts").json == []
    assert "alert" not in read(service.ask("GET", "/ui/flows"))
    engine = open_external(service.environment["GOBBLIN_DATABASE_URL"])
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.job_execution SET sent_at = sent_at - interval '6 min'"))
    engine.dispose()
    (alert,) = service.ask("GET", "/api/v1/alerts").json
    assert (alert["kind"], alert["flow_name"]) == ("TICKET_NOT_TAKEN", "orders")
    start = service.ask("GET", "/ui/flows")
    assert "1 alert " in read(start)
    assert f'<a href="{execution}">' in start.text
    assert "Earlier tickets" not in read(service.ask("GET", execution))
    assert service.send_form(f"{execution}/cancel", {}).status == 303
    await_job("CANCELLED")
    assert service.send_form(f"{execution}/resume", {}).status == 303
    job = await_job("ORCHESTRATED")
    (earlier,) = job["attempts"]
    assert (job["attempt"], earlier["attempt"], earlier["status"]) == (2, 1, "CANCELLED")
    assert (earlier["ticket_id"], earlier["executor"]) == (first["ticket_id"], job["executor"])
    shown = service.ask("GET", execution)
    assert "Earlier tickets" in read(shown)
    link = html.unescape(re.search(r'href="([^"]*ticket=1[^"]*)"', shown.text)[1])  # type: ignore[index]  # it is there
    assert ", ticket 1 Its process has said nothing" in read(service.ask("GET", link))
    assert service.ask("GET", f"{address}/jobs/0/log?ticket=1").json["outputs"] == []
    assert service.ask("GET", f"{address}/jobs/0/log?ticket=3").status == 404


def test_a_page_of_the_past_follows_a_cursor(service: RunningService) -> None:
    for number in range(51):
        make_flow(service, flow_name=f"f{number:02}")
    first = service.ask("GET", "/ui/flows")
    following = html.unescape(re.search(r'href="([^"]*cursor=[^"]*)"', first.text)[1])  # type: ignore[index]  # it is there
    assert "f50" in read(service.ask("GET", following))
    assert "f49" not in read(service.ask("GET", following))


def test_mistakes_of_addresses_are_pages(service: RunningService) -> None:
    assert "nothing is at" in read(service.ask("GET", "/ui/nothing"))
    assert service.ask("GET", "/ui/static/../flow_pages.py").status == 404
    assert service.ask("GET", "/ui/static/other.js").status == 404
    assert service.ask("GET", "/ui/static/service.css").headers["content-type"].startswith("text/css")
    wrong = service.send_form("/ui/new", {"template": "FS:///nope.template"})
    assert (wrong.status, "no template" in read(wrong)) == (404, True)
    bad = service.ask("POST", "/ui/new", data=b"a=%ff", headers={"Origin": service.url})
    assert bad.status == 400


def test_the_script_and_the_style_sheet_are_short() -> None:
    static = Path(pages.__file__).parent / "static"
    assert len((static / "service.js").read_text(encoding="utf-8").splitlines()) <= 120
    assert len((static / "service.css").read_text(encoding="utf-8").splitlines()) <= 250
