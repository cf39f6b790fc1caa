"""Packs by REST, by pages and by commands of a real server: uploads, refusals, rights."""

import html
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gobblin_assets.cli import main
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.service.access import digest_token, make_token
from gobblin_assets.service.template_store import PACK_BYTES_MAX
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.flow_templates import write_pack, write_template, zip_files
from tests.support.running_service import Answer, RunningService, prepare_database, run_service

API = "/api/v1"
PACKS = f"{API}/packs"
TEMPLATE = write_template({"kind": "database", "format": "table"}, {"kind": "files", "format": "dataset"})
PROPERTIES = TEMPLATE["parameters"]["properties"]
SECRET = {**TEMPLATE, "acl": {"groups": ["auditors"]}}
ACCESS = {
    "users": {"ann": ["sales"], "eve": ["auditors"], "mia": []},
    "rules": [
        {"allow": "*", "to": ["user:ann", "user:eve"], "on": "sales/*"},
        {"allow": "manage", "to": "user:mia"},
    ],
}
BOUNDARY = "a-boundary-of-this-test"


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {name: make_token() for name in ACCESS["users"]}


@pytest.fixture(scope="module")
def service(
    server: EmbeddedServer,
    service_pool: DatabasePool,
    tmp_path_factory: pytest.TempPathFactory,
    tokens: dict[str, str],
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("service")
    known = [{"user": name, "sha256": digest_token(token), "expires": "2099-01-01"} for name, token in tokens.items()]
    file = folder / "access.yaml"
    file.write_text(yaml.safe_dump({**ACCESS, "tokens": known}), encoding="utf-8")
    with postgres.migrated_database(server, service_pool) as name:
        prepare_database(server.url(name))
        with run_service(folder, server.url(name), "--access", str(file)) as running:
            yield running


@pytest.fixture
def ask(service: RunningService, tokens: dict[str, str]) -> Any:
    def ask(user: str, method: str, path: str, body: object = None, **sent: Any) -> Answer:
        headers = {"Authorization": f"Bearer {tokens[user]}", **sent.pop("headers", {})}
        return service.ask(method, path, body, headers=headers, **sent)

    return ask


def make_zip(templates: dict[str, Any], name: str, version: str = "1") -> bytes:
    return zip_files(write_pack(templates, name, version))


def make_form(content: bytes, field: str = "pack") -> tuple[bytes, dict[str, str]]:
    """A form with a file, as a browser sends it."""
    head = f'Content-Disposition: form-data; name="{field}"; filename="x.zip"\r\nContent-Type: application/zip'
    body = f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}


def refused(answer: Answer, status: int, field: str | None) -> dict[str, Any]:
    assert answer.status == status, answer.text
    problem: dict[str, Any] = answer.json
    assert problem["field"] == field
    assert problem["hint"]
    return problem


def test_a_pack_is_published_and_shown_to_those_who_may_use_its_templates(ask: Any) -> None:
    content = make_zip({"orders": TEMPLATE, "salaries": SECRET}, "team")
    made = ask("mia", "POST", PACKS, data=content)
    assert (made.status, made.headers["location"]) == (201, f"{PACKS}/team/versions/1")
    assert made.json["published_by"] == "mia"
    body, headers = make_form(content)
    again = ask("mia", "POST", PACKS, data=body, headers=headers)
    assert (again.status, again.json) == (200, made.json), "the same again, by a form"
    changed = make_zip({"orders": {**TEMPLATE, "cost": 5}}, "team")
    assert "Count up the version" in refused(ask("mia", "POST", PACKS, data=changed), 409, None)["hint"]
    assert ask("mia", "POST", PACKS, data=make_zip({"orders": TEMPLATE}, "team", "2")).status == 201
    assert ask("mia", "POST", PACKS, data=make_zip({"hidden": SECRET}, "vault")).status == 201

    assert [each["version"] for each in ask("ann", "GET", f"{PACKS}/team").json] == ["2", "1"]
    for user, seen in (("ann", ["orders"]), ("eve", ["orders", "salaries"]), ("mia", ["orders"])):
        found = ask(user, "GET", f"{PACKS}/team/versions/1").json
        assert found["digest"] == made.json["digest"]
        assert [each["uri"] for each in found["templates"]] == [f"FS:///team@1/{each}.template" for each in seen]
    for user, sees in (("ann", False), ("eve", True), ("mia", True)):
        assert ("vault" in [each["pack"] for each in ask(user, "GET", PACKS).json]) is sees
        assert (ask(user, "GET", f"{PACKS}/vault").status == 200) is sees
        assert ("vault" in ask(user, "GET", "/ui/packs").text) is sees
    refused(ask("ann", "GET", f"{PACKS}/vault/versions/1"), 404, "pack")
    refused(ask("ann", "GET", f"{API}/templates/team@1/salaries.template"), 404, "uri")
    assert "2, 1" in refused(ask("ann", "GET", f"{PACKS}/team/versions/3"), 404, "version")["hint"]
    template = ask("ann", "GET", f"{API}/templates/team/orders.template").json
    assert template["uri"] == "FS:///team@2/orders.template"
    assert template["parameters"]["required"] == ["datasets"]

    refused(ask("ann", "POST", PACKS, data=make_zip({"orders": TEMPLATE}, "mine")), 403, "user")
    assert "Publish a pack" not in ask("ann", "GET", "/ui/packs").text


_OF_A_PARAMETER = {"parameters": {**TEMPLATE["parameters"], "properties": {"place": {"type": "string"}}}}
_ROOT = {"type": "string", "pattern": "^[a-z]{1,9}$"}


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [
        ({"job": {**TEMPLATE["job"], "description": "${nam}"}}, "job.description", "Add it to the template's"),
        (_OF_A_PARAMETER, "parameters.properties.place.pattern", "Write what the text may be"),
        (
            {
                "parameters": {**TEMPLATE["parameters"], "properties": {"root": _ROOT, **PROPERTIES}},
                "job": {**TEMPLATE["job"], "destination": "${root}"},
            },
            "job.destination",
            "Write `destination: ${to.root}`",
        ),
        (
            {
                "parameters": {
                    "type": "object",
                    "properties": {**PROPERTIES, "shop": _ROOT},
                },
                "job": {**TEMPLATE["job"], "source": {"connection": "${shop}"}},
            },
            "job.source.connection",
            "places and connections stand in the template itself",
        ),
        ({"uri": "FS:///other/x.template"}, "uri", "Leave it out."),
        ({"job": {**TEMPLATE["job"], "description": "${flow.executionId}"}}, "job.description", "Take it out"),
    ],
)
def test_a_template_that_breaks_a_rule_is_refused_with_field_and_fix(
    ask: Any, change: dict[str, Any], field: str, hint: str
) -> None:
    answer = ask("mia", "POST", PACKS, data=make_zip({"x": {**TEMPLATE, **change}}, "wrong"))
    problem = refused(answer, 422, f"FS:///wrong/x.template: {field}")
    assert hint in problem["hint"]
    refused(ask("mia", "GET", f"{PACKS}/wrong"), 404, "pack")


def test_what_is_no_pack_is_refused(ask: Any) -> None:
    refused(ask("mia", "POST", PACKS, data=b"no zip"), 422, "pack")
    refused(ask("mia", "POST", PACKS), 422, "pack")
    refused(ask("mia", "POST", PACKS, data=b"\0" * (PACK_BYTES_MAX + 1)), 422, "pack")
    refused(ask("mia", "POST", PACKS, data=b"\0" * (3 << 20)), 413, "body")
    outside = {**write_pack({"a": TEMPLATE}), "../b.template": b""}
    refused(ask("mia", "POST", PACKS, data=zip_files(outside)), 422, "pack")
    body, headers = make_form(b"x", field="file")
    refused(ask("mia", "POST", PACKS, data=body, headers=headers), 400, "pack")
    for wrong in (b"x", body[:-8]):
        assert ask("mia", "POST", PACKS, data=wrong, headers=headers).status in {400, 422}
    no_boundary = {"Content-Type": "multipart/form-data"}
    refused(ask("mia", "POST", PACKS, data=body, headers=no_boundary), 400, "body")


def test_a_flow_that_waits_for_a_template_runs_when_it_is_published(ask: Any) -> None:
    """The service takes what was published within two seconds, and compiles what is pending."""
    assert ask("mia", "POST", PACKS, data=make_zip({"later": {**TEMPLATE, "capability": "ingest.later"}}, "wait")).json
    config = {"flow_group": "sales", "flow_name": "waits", "source": "shop", "destinations": ["lake"]}
    config |= {"parameters": {"datasets": [{"table": "public.orders"}]}, "run_immediately": False}
    config |= {"template_uris": ["FS:///wait/later.template"]}
    made = ask("ann", "POST", f"{API}/flows", config)
    assert (made.status, made.json["state"], made.json["pins"]) == (201, "PENDING", {})
    assert ask("mia", "POST", PACKS, data=make_zip({"later": TEMPLATE}, "wait", "2")).status == 201
    deadline = time.monotonic() + 20
    while (found := ask("ann", "GET", f"{API}/flows/sales/waits").json)["state"] != "ACTIVE":
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert found["pins"] == {"wait": "2"}

    assert ask("mia", "POST", PACKS, data=make_zip({"later": {**TEMPLATE, "cost": 3}}, "wait", "3")).status == 201
    explained = ask("ann", "POST", f"{API}/flows/sales/waits:explain").json
    assert explained["newer"] == [{"pack": "wait", "pinned": "2", "newest": "3"}]
    page = ask("ann", "GET", "/ui/flows/sales/waits").text
    assert "this flow stays at 2" in page
    taken = ask("ann", "POST", "/ui/flows/sales/waits/repin")
    assert (taken.status, taken.headers["location"]) == (303, "/ui/flows/sales/waits?said=repinned")
    assert ask("ann", "GET", f"{API}/flows/sales/waits").json["pins"] == {"wait": "3"}
    refused(ask("mia", "POST", f"{API}/flows/sales/waits:repin"), 404, "flow")


def read(answer: Answer) -> str:
    assert answer.text.startswith("<!doctype html>")
    assert not re.search(r"<script(?! src=)|\son\w+=|style=", answer.text), "the policy would refuse it"
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_a_pack_is_published_by_the_form_of_a_page(service: RunningService, ask: Any) -> None:
    files = write_pack({"a": {**TEMPLATE, "description": "<b>All</b> orders"}}, "paged")
    body, headers = make_form(zip_files(files))
    done = ask("mia", "POST", "/ui/packs", data=body, headers={**headers, "Origin": service.url})
    assert (done.status, done.headers["location"]) == (303, "/ui/packs/paged/1?said=published")
    page = read(ask("ann", "GET", done.headers["location"]))
    assert "The pack is published" in page
    assert "<b>All</b> orders" in page
    assert "digest" in page
    assert "paged" in read(ask("ann", "GET", "/ui/packs"))
    again = ask("mia", "POST", "/ui/packs", data=body, headers=headers)
    assert again.headers["location"].endswith("?said=known")

    files["a.template"] = files["a.template"].replace(b"cost", b"").replace(b"shape: run", b"shape: walk")
    body, headers = make_form(zip_files(files))
    wrong = ask("mia", "POST", "/ui/packs", data=body, headers=headers)
    assert wrong.status == 422
    assert "Not published. FS:///paged/a.template: shape" in read(wrong)
    assert 'aria-invalid="true"' in wrong.text
    foreign = ask("mia", "POST", "/ui/packs", data=body, headers={**headers, "Origin": "http://evil.example"})
    assert foreign.status == 403
    assert ask("ann", "POST", "/ui/packs", data=body, headers=headers).status == 403
    assert ask("ann", "GET", "/ui/packs/paged/2").status == 404


def test_packs_and_templates_by_commands(
    service: RunningService, tokens: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*words: str, user: str = "mia", url: str = service.url) -> tuple[int, str, str]:
        monkeypatch.setenv("GOBBLIN_SERVICE_URL", url)
        monkeypatch.setenv("GOBBLIN_SERVICE_TOKEN", tokens[user])
        done = CliRunner().invoke(main, ["service", *words])
        return done.exit_code, done.stdout, done.stderr

    folder = tmp_path / "pack"
    (folder / "deep").mkdir(parents=True)
    for name, content in write_pack({"deep/a": TEMPLATE}, "typed", "1").items():
        (folder / name).write_bytes(content)
    code, _, said = run("pack", "check", str(folder), url="http://127.0.0.1:9")
    assert (code, "typed@1 can be published" in said) == (0, True)
    code, shown, said = run("pack", "publish", str(folder))
    assert (code, "published typed@1" in said, "typed" in shown) == (0, True, True)
    assert run("pack", "publish", str(folder), user="ann")[0] == 2
    (folder / "deep" / "a.template").write_text("from: [", encoding="utf-8")
    code, _, said = run("pack", "check", str(folder))
    assert (code, "FS:///typed/deep/a.template" in said) == (2, True)
    assert "typed" in run("pack", "list")[1]
    assert "FS:///typed@1/deep/a.template" in run("template", "list")[1]
    code, shown, _ = run("template", "show", "FS:///typed/deep/a.template", user="ann")
    assert (code, json.loads(shown)["uri"]) == (0, "FS:///typed@1/deep/a.template")
    assert run("template", "show", "FS:///typed/b.template")[0] == 2
