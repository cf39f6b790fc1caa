"""The REST API of a real server: flows and their versions, refusals, rights, guards, commands."""

import json
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gobblin_assets.cli.service_client import ServiceClient
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.errors import OutcomeUnknownError, RejectedError
from gobblin_assets.service.access import digest_token, make_token
from tests.support.command_lake import invoke
from tests.support.database_pool import DatabasePool
from tests.support.running_service import TOPOLOGY, Answer, RunningService, run_own_service

API = "/api/v1"
FLOWS = f"{API}/flows"
ORDERS = f"{FLOWS}/sales/orders"


def make_config(name: str = "orders", **changes: Any) -> dict[str, Any]:
    return {
        "flow_group": "sales",
        "flow_name": name,
        "source": "shop",
        "destinations": ["lake"],
        "template_uris": ["FS:///tables.template"],
        "parameters": {"tables": [{"table": "public.orders"}]},
        "run_immediately": False,
        **changes,
    }


def create(service: RunningService, name: str = "orders", **changes: Any) -> Answer:
    answer = service.ask("POST", FLOWS, make_config(name, **changes))
    assert answer.status == 201, answer.text
    return answer


def refused(answer: Answer, status: int, field: str | None) -> dict[str, Any]:
    """The problem, which names what is wrong and what helps."""
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json
    assert (problem["status"], problem["field"]) == (status, field)
    assert problem["detail"]
    assert problem["hint"]
    return problem


class TestFlows:
    def test_from_its_creation_to_its_end(self, service: RunningService) -> None:
        made = create(service)
        assert made.headers["location"] == ORDERS
        assert (made.json["state"], made.json["version"], made.json["owner"]) == ("ACTIVE", "1", "local")
        found = service.ask("GET", ORDERS)
        assert found.json == made.json
        assert found.headers["etag"] == made.headers["etag"]

        changed = service.ask("PUT", ORDERS, make_config(description="All orders"))
        assert (changed.status, changed.json["version"]) == (200, "2")
        versions = service.ask("GET", f"{ORDERS}/versions").json
        assert [each["version"] for each in versions] == ["2", "1"]
        assert [each["config"]["description"] for each in versions] == ["All orders", ""]

        assert service.ask("DELETE", ORDERS).status == 204
        refused(service.ask("GET", ORDERS), 404, "flow")
        refused(service.ask("DELETE", ORDERS), 404, "flow")

    def test_names_of_a_change_are_those_of_the_path(self, service: RunningService) -> None:
        create(service)
        config = make_config()
        del config["flow_group"], config["flow_name"]
        assert service.ask("PUT", ORDERS, config).status == 200
        refused(service.ask("PUT", ORDERS, make_config("other")), 422, "flow_name")
        refused(service.ask("PATCH", ORDERS, {"flow_group": "other"}), 422, "flow_group")

    def test_a_change_of_what_has_changed_is_refused(self, service: RunningService) -> None:
        first = create(service).headers["etag"]
        second = service.ask("PUT", ORDERS, make_config(description="2"), headers={"If-Match": first})
        assert second.status == 200
        for method, body in (("PUT", make_config()), ("PATCH", {"description": "3"}), ("DELETE", None)):
            refused(service.ask(method, ORDERS, body, headers={"If-Match": first}), 412, None)
        assert service.ask("PATCH", ORDERS, {}, headers={"If-Match": second.headers["etag"]}).status == 200
        assert service.ask("PUT", ORDERS, make_config(), headers={"If-Match": "*"}).status == 200
        refused(service.ask("PUT", ORDERS, make_config(), headers={"If-Match": '"x"'}), 400, "If-Match")

    def test_a_conflict_of_the_flow_as_it_is_fails_no_condition(self, service: RunningService) -> None:
        etag = create(service, run_immediately=True).headers["etag"]
        asked = make_config(run_immediately=True)
        problem = refused(service.ask("PUT", ORDERS, asked, headers={"If-Match": etag}), 409, None)
        assert "execution" in problem["detail"]

    def test_a_flow_that_is_made_again_is_another(self, service: RunningService) -> None:
        first = create(service).headers["etag"]
        service.ask("DELETE", ORDERS)
        create(service)
        refused(service.ask("DELETE", ORDERS, headers={"If-Match": first}), 412, None)

    def test_a_patch_is_merged(self, service: RunningService) -> None:
        create(service, description="All orders")
        table = {"table": "public.items", "primary_key": ["id"]}
        assert service.ask("PATCH", ORDERS, {"parameters": {"tables": [table]}}).status == 200
        config = service.ask("GET", ORDERS).json["config"]
        assert (config["parameters"], config["description"]) == ({"tables": [table]}, "All orders")
        assert service.ask("PATCH", ORDERS, {"description": None}).json["config"]["description"] == ""
        refused(service.ask("PATCH", ORDERS, ["description"]), 422, "body")
        refused(service.ask("PATCH", ORDERS, {"parameters": {"tables": None}}), 422, "parameters.tables")

    def test_the_wish_to_run_is_of_one_request(self, service: RunningService) -> None:
        create(service, run_immediately=True)
        patched = service.ask("PATCH", ORDERS, {"description": "All orders"})
        assert patched.status == 200, patched.text
        found = service.ask("GET", ORDERS).json["config"]
        assert found["run_immediately"] is None
        assert service.ask("PUT", ORDERS, found).status == 200
        assert len(service.ask("GET", f"{ORDERS}/executions").json["executions"]) == 1
        refused(service.ask("PATCH", ORDERS, {"run_immediately": True}), 409, None)

    def test_a_request_that_is_sent_again_makes_no_second_flow_and_no_second_run(self, service: RunningService) -> None:
        key = {"Idempotency-Key": str(uuid.uuid4())}
        first = service.ask("POST", FLOWS, make_config(), headers=key)
        again = service.ask("POST", FLOWS, make_config(), headers=key)
        assert (first.status, again.status) == (201, 201)
        assert again.json == first.json
        refused(service.ask("POST", FLOWS, make_config(description="another"), headers=key), 409, None)
        refused(
            service.ask("POST", FLOWS, make_config(), headers={"Idempotency-Key": "x" * 256}), 422, "Idempotency-Key"
        )

        run = service.ask("POST", f"{ORDERS}:run", headers=key)
        assert run.status == 201
        assert service.ask("POST", f"{ORDERS}:run", headers=key).json["execution_id"] == run.json["execution_id"]
        refused(service.ask("POST", f"{ORDERS}:run"), 409, None)
        assert len(service.ask("GET", f"{ORDERS}/executions").json["executions"]) == 1

    def test_pages_follow_each_other(self, service: RunningService) -> None:
        for number in range(5):
            create(service, f"f{number}", description="even" if number % 2 == 0 else "")
        seen, cursor = [], ""
        while True:
            page = service.ask("GET", f"{FLOWS}?group=sales&limit=2{cursor}").json
            seen += [each["config"]["flow_name"] for each in page["flows"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
        assert seen == ["f0", "f1", "f2", "f3", "f4"]
        found = service.ask("GET", f"{FLOWS}?search=EVEN").json["flows"]
        assert [each["config"]["flow_name"] for each in found] == ["f0", "f2", "f4"]
        for bad in ("x", "W10", "NQ"):
            refused(service.ask("GET", f"{FLOWS}?cursor={bad}"), 422, "cursor")
        refused(service.ask("GET", f"{FLOWS}?limit=0"), 422, "limit")
        refused(service.ask("GET", f"{FLOWS}?limit=x"), 422, "limit")

    def test_a_paused_flow_runs_when_it_is_resumed(self, service: RunningService) -> None:
        create(service)
        assert service.ask("POST", f"{ORDERS}:pause").json["state"] == "PAUSED"
        refused(service.ask("POST", f"{ORDERS}:run"), 409, None)
        assert service.ask("POST", f"{ORDERS}:resume").json["state"] == "ACTIVE"
        selection = {"partitions": ["2026-01-01"], "ranges": [["2026-02-01", "2026-02-03"]], "mode": "refresh"}
        status = service.ask("POST", f"{ORDERS}:run", selection).json
        assert status["jobs"][0]["executor"] == "here"
        execution = status["execution_id"]
        assert service.ask("GET", f"{ORDERS}/status").json["execution_id"] == execution
        assert service.ask("GET", f"{ORDERS}/executions/{execution}").json["execution_id"] == execution
        (job,) = service.ask("GET", f"{ORDERS}/jobs").json
        assert (job["node"], job["is_launched"]) == ("lake", True)
        cancelled = service.ask("POST", f"{ORDERS}:cancel", {"execution_id": execution})
        assert cancelled.status == 200, cancelled.text
        assert service.ask("POST", f"{ORDERS}:replan").status in {200, 409}

    def test_an_execution_belongs_to_its_flow(self, service: RunningService) -> None:
        create(service, run_immediately=True)
        create(service, "other")
        execution = service.ask("GET", f"{ORDERS}/status").json["execution_id"]
        refused(service.ask("GET", f"{FLOWS}/sales/other/executions/{execution}"), 404, "execution")
        cancel = service.ask("POST", f"{FLOWS}/sales/other:cancel", {"execution_id": execution})
        refused(cancel, 404, "execution")
        refused(service.ask("GET", f"{FLOWS}/sales/other/status"), 404, "flow")
        refused(service.ask("POST", f"{ORDERS}:cancel", {}), 422, "execution_id")
        refused(service.ask("POST", f"{ORDERS}:cancel"), 400, "body")
        refused(service.ask("POST", f"{ORDERS}:run", {"partition": ["x"]}), 422, "partition")

    def test_an_explanation_stores_nothing(self, service: RunningService) -> None:
        found = service.ask("POST", f"{ORDERS}:explain", make_config()).json
        assert [(job["source"]["node"], job["target"]["node"]) for job in found["plan"]["jobs"]] == [("shop", "lake")]
        assert found["plan"]["jobs"][0]["job"]["datasets"] == [{"table": "public.orders", "extract": "snapshot_only"}]
        refused(service.ask("POST", f"{ORDERS}:explain"), 404, "flow")
        assert service.ask("GET", FLOWS).json["flows"] == []
        create(service)
        (job,) = service.ask("POST", f"{ORDERS}:explain").json["plan"]["jobs"]
        assert job["job_name"].startswith("orders_to_lake_")
        assert job["job"]["job"] == job["job_name"]

    def test_a_flow_that_no_executor_can_run_is_pending_until_one_can(self, service: RunningService) -> None:
        made = create(service, destinations=["island"])
        assert made.json["state"] == "PENDING"
        assert made.json["reasons"]
        assert [each["uri"] for each in service.ask("GET", f"{FLOWS}?pending=true").json["flows"]] == [made.json["uri"]]
        refused(service.ask("POST", f"{ORDERS}:run"), 409, None)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"flow_name": ""}, "flow_name"),
            ({"flow_name": "x" * 129}, "flow_name"),
            ({"flow_group": "a\x00b"}, "flow_group"),
            ({"flow_name": 5}, "flow_name"),
            ({"surce": "shop"}, "surce"),
            ({"source": "shpo"}, "source"),
            ({"destinations": ["lake"] * 21}, "destinations"),
            ({"schedule": "@dayly"}, "schedule"),
            ({"template_uris": ["file:///etc/passwd"]}, "template_uris[0]"),
            ({"parameters": {}}, "parameters.tables"),
            ({"parameters": {"tabels": []}}, "parameters.tabels"),
            (
                {"parameters": {"tables": [{"table": "public.orders", "primry_key": ["id"]}]}},
                "parameters.tables[0].primry_key",
            ),
            ({"parameters": {"tables": "public.orders"}}, "parameters.tables"),
            ({"parameters": {"tables": [{"table": "s3://bucket/x"}]}}, "parameters.tables[0].table"),
        ],
    )
    def test_a_config_names_its_mistake(self, service: RunningService, change: dict[str, Any], field: str) -> None:
        refused(service.ask("POST", FLOWS, make_config(**change)), 422, field)
        assert service.ask("GET", FLOWS).json["flows"] == []

    @pytest.mark.parametrize(
        "data",
        [b"", b"{", b"[]", b"\xff\xfe", b'{"a": NaN}', b'{"flow_name": "a", "flow_name": "b"}', b"[" * 100_000],
    )
    def test_a_body_that_is_no_object_is_refused(self, service: RunningService, data: bytes) -> None:
        refused(service.ask("POST", FLOWS, data=data), 400, "body")

    def test_a_large_body_is_refused(self, service: RunningService) -> None:
        refused(service.ask("POST", FLOWS, data=b" " * (2 << 20) + b"{}"), 413, "body")
        with socket.create_connection(("127.0.0.1", service.port)) as connection:
            connection.sendall(b"POST /api/v1/flows HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 413")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/api/v1/nothing", 404),
            ("GET", "/api/v1", 404),
            ("PATCH", FLOWS, 405),
            ("GET", f"{FLOWS}/%zz/x", 400),
            ("GET", f"{FLOWS}/%ff/x", 400),
        ],
    )
    def test_paths_that_lead_nowhere(self, service: RunningService, method: str, path: str, status: int) -> None:
        answer = service.ask(method, path)
        assert (answer.status, answer.json["status"]) == (status, status)

    def test_content_type_is_not_looked_at(self, service: RunningService) -> None:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        assert service.ask("POST", FLOWS, make_config(), headers=headers).status == 201


class TestGuards:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    @pytest.mark.parametrize("path", [FLOWS, "/flowconfigs", "/ui/new", "/ui/flows/sales/orders/delete"])
    def test_pages_of_others_can_not_send_anything(
        self, service: RunningService, path: str, headers: dict[str, str]
    ) -> None:
        refused(service.ask("POST", path, make_config(), headers=headers), 403, "Origin")

    def test_a_program_and_the_own_pages_can(self, service: RunningService) -> None:
        own = {"Origin": service.url, "Sec-Fetch-Site": "same-origin", "Host": service.url.partition("//")[2]}
        assert service.ask("POST", FLOWS, make_config(), headers=own).status == 201
        assert service.ask("DELETE", ORDERS).status == 204

    @pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", ""])
    def test_a_name_of_another_owner_is_not_answered(self, service: RunningService, host: str) -> None:
        refused(service.ask("GET", FLOWS, headers={"Host": host}), 421, "Host")

    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:80"])
    def test_names_of_this_machine_are(self, service: RunningService, host: str) -> None:
        assert service.ask("GET", FLOWS, headers={"Host": host}).status == 200


class TestService:
    def test_what_flows_are_made_of(self, service: RunningService) -> None:
        templates = service.ask("GET", f"{API}/templates").json
        assert "FS:///default@9/mytemplate.template" in [each["uri"] for each in templates]
        found = service.ask("GET", f"{API}/templates/mytemplate.template").json
        assert found["parameters"]["required"] == ["prop1"]
        refused(service.ask("GET", f"{API}/templates/mytemplat.template"), 404, "uri")
        refused(service.ask("GET", f"{API}/templates/%2Fetc%2Fpasswd"), 422, "uri")
        nodes = [each["name"] for each in service.ask("GET", f"{API}/nodes").json]
        assert nodes == ["island", "lake", "mirror", "shop"], "the vault is the auditors'"
        assert [each["name"] for each in service.ask("GET", f"{API}/executors").json] == ["here"]
        assert service.ask("GET", f"{API}/me").json == {"name": "local", "groups": []}
        assert service.ask("GET", f"{API}/health").json["status"] == "ok"

    def test_a_question_waits_for_an_executor_and_says_so(self, service: RunningService) -> None:
        asked = service.ask("POST", f"{API}/nodes/shop:suggest?wait_s=0", {"tables": ["public.orders"]})
        assert (asked.status, asked.json["kind"], asked.json["executor"]) == (202, "columns", "here")
        found = service.ask("GET", f"{asked.headers['location']}?wait_s=2.5")
        assert (found.status, found.json["state"], found.json["answer"]) == (202, "WAITING", None)
        assert "no executor of the name here has taken the question" in found.json["message"]
        assert "executor serve --name here" in found.json["hint"]
        create(service)
        planned = service.ask("POST", f"{ORDERS}:dry-run?wait_s=0")
        (job,) = planned.json["jobs"]
        assert (planned.status, job["probe"]["kind"], job["probe"]["state"]) == (202, "dry_run", "WAITING")
        assert service.ask("GET", f"{API}/probes/{job['probe']['id']}").status == 202
        pending = service.ask("POST", f"{ORDERS}:dry-run?wait_s=0", make_config(destinations=["island"]))
        assert (pending.status, pending.json["jobs"], len(pending.json["reasons"])) == (200, [], 1)

    @pytest.mark.parametrize(
        ("node", "body", "status", "field"),
        [
            ("nowhere", {}, 404, "node"),
            ("island", {}, 422, "node"),
            ("mirror", {"tables": ["a"]}, 422, "tables"),
            ("shop", {"below": "a"}, 422, "below"),
            ("shop", {"tables": ["a\x1b"]}, 422, "question.names[0]"),
            ("shop", {"tables": ["a"] * 21}, 422, "tables"),
            ("shop", {"password": "x"}, 422, "password"),
        ],
    )
    def test_what_can_not_be_asked(
        self, service: RunningService, node: str, body: dict[str, Any], status: int, field: str
    ) -> None:
        refused(service.ask("POST", f"{API}/nodes/{node}:suggest?wait_s=0", body), status, field)

    def test_a_topology_of_a_file_is_changed_there(self, service: RunningService) -> None:
        answer = service.ask("PUT", f"{API}/nodes/other", {"kind": "files", "root": "/other"})
        assert answer.status == 422
        assert answer.json["hint"]

    def test_metrics_count_the_catalogs(self, service: RunningService) -> None:
        create(service)
        text = service.ask("GET", f"{API}/metrics").text
        assert 'gobblin_catalog_specs{catalog="flows"} 1' in text
        assert 'gobblin_catalog_specs{catalog="topology"} 1' in text

    def test_the_topology_file_is_read_again(self, service: RunningService) -> None:
        create(service, destinations=["island"])
        file = service.folder / "topology.yaml"
        before = file.read_text(encoding="utf-8")
        try:
            nodes = [*TOPOLOGY["executors"]["here"]["nodes"], "island"]
            executors = {"here": {**TOPOLOGY["executors"]["here"], "nodes": nodes}}
            file.write_text(yaml.safe_dump({**TOPOLOGY, "executors": executors}), encoding="utf-8")
            wait_for_state(service, "ACTIVE")
        finally:
            file.write_text(before, encoding="utf-8")


def wait_for_state(service: RunningService, state: str) -> None:
    deadline = time.monotonic() + 30
    while (found := service.ask("GET", ORDERS).json)["state"] != state:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@contextmanager
def losing_answers(service: RunningService, count: int) -> Iterator[tuple[str, list[str]]]:
    """The URL of a way to the service that loses the first answers to changes, and the requests that came by it."""
    came: list[str] = []

    class Forwarding(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: value for name, value in self.headers.items() if name in {"If-Match", "Idempotency-Key"}}
            answer = service.ask(self.command, self.path, data=data or None, headers=headers)
            self.close_connection = True
            if self.command != "GET":
                came.append(self.command)
                if len(came) <= count:
                    return
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(answer.body)))
            if "etag" in answer.headers:
                self.send_header("ETag", answer.headers["etag"])
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the parameter's name there
            """Nothing: a test's output is its own."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Forwarding) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}", came
        proxy.shutdown()


class TestLostAnswers:
    PATH = "/flows/sales/orders"

    def test_a_flow_that_is_deleted_already_is_deleted(self, service: RunningService) -> None:
        create(service)
        with losing_answers(service, 1) as (url, came):
            client = ServiceClient(url, None)
            client.delete(self.PATH)
            assert came == ["DELETE", "DELETE"]
            with pytest.raises(RejectedError, match="there is no flow"):
                client.delete(self.PATH)

    def test_a_change_is_made_once(self, service: RunningService) -> None:
        create(service)
        with losing_answers(service, 1) as (url, came):
            client = ServiceClient(url, None)
            with pytest.raises(OutcomeUnknownError):
                client.put(self.PATH, make_config(description="second"))
            assert came == ["PUT", "PUT"]
            assert service.ask("GET", ORDERS).json["version"] == "2"
            assert client.put(self.PATH, make_config(description="third"))["version"] == "3"

    def test_a_run_is_made_once(self, service: RunningService) -> None:
        create(service)
        with losing_answers(service, 2) as (url, came):
            status = ServiceClient(url, None).post(f"{self.PATH}:run")
            assert came == ["POST"] * 3
        executions = service.ask("GET", f"{ORDERS}/executions").json["executions"]
        assert [each["execution_id"] for each in executions] == [status["execution_id"]]

    def test_a_replan_is_not_sent_again(self, service: RunningService) -> None:
        create(service)
        with losing_answers(service, 1) as (url, came):
            with pytest.raises(OutcomeUnknownError) as caught:
                ServiceClient(url, None).post_once(f"{self.PATH}:replan")
            assert caught.value.hint
            assert came == ["POST"]


class TestCommands:
    def run(self, service: RunningService, *words: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "gobblin_assets.cli", "service", *words]
        done = subprocess.run(command, env=service.environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_a_flow_by_commands(self, service: RunningService, tmp_path: Path) -> None:
        file = tmp_path / "orders.yaml"
        file.write_text(yaml.safe_dump(make_config()), encoding="utf-8")
        assert self.run(service, "flow", "create", str(file))[0] == 0
        assert "shop → lake" in self.run(service, "flow", "list", "--search", "orders")[1]
        assert json.loads(self.run(service, "flow", "get", "sales", "orders")[1])["version"] == "1"
        assert "by" not in self.run(service, "flow", "explain", str(file))[2]
        assert self.run(service, "flow", "update", str(file))[0] == 0
        assert "execution" in self.run(service, "flow", "run", "sales", "orders", "--partition-range", "a...b")[1]
        assert "lake" in self.run(service, "flow", "status", "sales", "orders")[1]
        assert self.run(service, "flow", "delete", "sales", "orders")[0] == 0
        code, _, said = self.run(service, "flow", "status", "sales", "orders")
        assert (code, said.count("\n")) == (2, 1)
        assert "there is no flow 'orders'" in said

    def test_a_log_by_commands_and_on_its_page(self, service: RunningService) -> None:
        code, said, waited = self.run(service, "log", "drain", "own-log", "--wait")
        assert (code, "DRAINING" in said) == (0, True)
        assert "nobody works on the log own-log" in waited
        page = service.ask("GET", "/ui/topology").text
        assert "Nobody works: the log can be upgraded." in page
        assert service.send_form("/ui/logs/own-log/resume", {}).status == 303
        (listed,) = json.loads(self.run(service, "log", "list", "--json")[1])
        assert (listed["state"], listed["last_pause_s"] > 0) == ("WORKING", True)
        page = service.ask("GET", "/ui/topology").text
        assert "/ui/logs/own-log/drain" in page
        assert 'data-label="Last pause">' + f"{listed['last_pause_s']:.1f} s" in page

    def test_a_service_that_is_away(self, service: RunningService) -> None:
        code, _, said = self.run(service, "flow", "list", "--url", "http://127.0.0.1:9")
        assert code == 1
        assert "does not answer" in said

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--no-auth", "--host", "0.0.0.0"], "can be reached from other machines"),
            (["--no-auth", "--host", "example"], "expected an address"),
            ([], "expected either --access FILE or --no-auth"),
            (["--no-auth", "--topology", "none.yaml"], "none.yaml"),
            (["--no-auth", "--compiler", "quantum"], "quantum"),
            (["--no-auth", "--pack", "nowhere"], "nowhere"),
        ],
    )
    def test_what_can_not_be_served(
        self, service: RunningService, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
    ) -> None:
        monkeypatch.setenv("GOBBLIN_DATABASE_URL", service.environment["GOBBLIN_DATABASE_URL"])
        done = invoke("service", "serve", "--port", "0", *words)
        assert done.exit_code == 2
        assert said in done.stderr

    def test_a_port_that_is_taken(self, service: RunningService) -> None:
        code, _, error = self.run(service, "serve", "--no-auth", "--port", str(service.port))
        assert (code, "can't be had" in error) == (2, True)


ACCESS = {
    "users": {"ann": ["sales"], "bob": [], "eve": ["auditors"], "kim": []},
    "rules": [
        {"allow": ["*"], "to": "group:sales", "on": ["sales/*"]},
        {"allow": ["read"], "to": "user:bob", "on": ["sales/ord*"]},
        {"deny": ["delete"], "to": "*", "on": ["sales/orders"]},
        {"deny": ["read"], "to": "user:ann", "on": ["sales/secret*"]},
        {"allow": ["*"], "to": "user:eve"},
        {"allow": ["read", "update"], "to": "user:kim", "on": ["sales/ord*"]},
    ],
}


@pytest.fixture(scope="module")
def tokens() -> dict[str, str]:
    return {name: make_token() for name in ("ann", "bob", "eve", "kim", "old")}


@pytest.fixture(scope="module")
def guarded(
    server: EmbeddedServer,
    service_pool: DatabasePool,
    tmp_path_factory: pytest.TempPathFactory,
    tokens: dict[str, str],
) -> Iterator[RunningService]:
    folder = tmp_path_factory.mktemp("guarded")
    known = [
        {"user": name, "sha256": digest_token(token), "expires": "2099-01-01" if name != "old" else "2020-01-01"}
        for name, token in tokens.items()
    ]
    file = folder / "access.yaml"
    file.write_text(yaml.safe_dump({**ACCESS, "tokens": known}), encoding="utf-8")
    with run_own_service(server, service_pool, folder, "--access", str(file)) as running:
        yield running


class TestRights:
    @pytest.fixture
    def ask(self, guarded: RunningService, tokens: dict[str, str]) -> Any:
        def ask(user: str, method: str, path: str, body: object = None) -> Answer:
            return guarded.ask(method, path, body, headers={"Authorization": f"Bearer {tokens[user]}"})

        return ask

    def test_who_is_not_known_is_refused(self, guarded: RunningService, ask: Any) -> None:
        assert guarded.ask("GET", f"{API}/health").status == 200
        for path in (FLOWS, f"{API}/nodes", f"{API}/metrics", "/flowconfigs/(flowGroup:a,flowName:b)"):
            answer = guarded.ask("GET", path)
            assert answer.status == 401
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert guarded.ask("GET", path, headers={"Authorization": "Bearer x"}).status == 401
        refused(ask("old", "GET", FLOWS), 401, "authorization")
        page = guarded.ask("GET", "/ui/flows")
        assert (page.status, "Token" in page.text) == (401, True)

    def test_users_see_their_own_tokens_and_managers_those_of_all(self, ask: Any, tokens: dict[str, str]) -> None:
        (own,) = ask("ann", "GET", f"{API}/tokens").json
        assert (own["user"], own["digest"]) == ("ann", digest_token(tokens["ann"])[:12])
        assert {"ann", "bob", "eve", "kim"} <= {each["user"] for each in ask("eve", "GET", f"{API}/tokens").json}

    def test_rules_decide_and_lists_are_filtered(self, ask: Any) -> None:
        for name in ("orders", "ordinary", "secret", "other"):
            assert ask("eve", "POST", FLOWS, make_config(name)).status == 201
        for user, names in (
            ("eve", ["orders", "ordinary", "other", "secret"]),
            ("ann", ["orders", "ordinary", "other"]),
            ("bob", ["orders", "ordinary"]),
        ):
            found = ask(user, "GET", FLOWS).json["flows"]
            assert [each["config"]["flow_name"] for each in found] == names
        first = ask("bob", "GET", f"{FLOWS}?limit=1").json
        assert ask("bob", "GET", f"{FLOWS}?limit=1&cursor={first['next']}").json["next"] is None

        refused(ask("bob", "GET", f"{FLOWS}/sales/other"), 404, "flow")
        refused(ask("bob", "POST", f"{FLOWS}/sales/orders:run"), 403, "flow")
        refused(ask("bob", "PATCH", f"{FLOWS}/sales/orders", {"description": "x"}), 403, "flow")
        refused(ask("bob", "POST", FLOWS, make_config("ordered")), 403, "flow")
        refused(ask("ann", "GET", f"{FLOWS}/sales/secret"), 404, "flow")
        refused(ask("ann", "DELETE", f"{FLOWS}/sales/orders"), 403, "flow")
        refused(ask("eve", "DELETE", f"{FLOWS}/sales/orders"), 403, "flow")
        assert ask("ann", "DELETE", f"{FLOWS}/sales/ordinary").status == 204

    def test_who_may_change_a_flow_may_see_what_a_change_would_do(self, ask: Any) -> None:
        config = make_config("order-items")
        assert ask("eve", "POST", FLOWS, config).status == 201
        found = ask("kim", "POST", f"{FLOWS}/sales/order-items:explain", config)
        assert (found.status, len(found.json["plan"]["jobs"])) == (200, 1)
        refused(ask("bob", "POST", f"{FLOWS}/sales/order-items:explain", config), 403, "flow")
        assert ask("eve", "DELETE", f"{FLOWS}/sales/order-items").status == 204

    def test_no_change_goes_around_the_right_to_run(self, ask: Any) -> None:
        path = f"{FLOWS}/sales/order-lines"
        assert ask("eve", "POST", FLOWS, make_config("order-lines")).status == 201
        refused(ask("kim", "POST", f"{path}:run"), 403, "flow")
        refused(ask("kim", "PUT", path, make_config("order-lines", run_immediately=True)), 403, "flow")
        refused(ask("kim", "PATCH", path, {"run_immediately": True}), 403, "flow")
        assert ask("kim", "PUT", path, make_config("order-lines", description="x")).status == 200
        assert ask("kim", "POST", f"{path}:pause").status == 200
        refused(ask("kim", "POST", f"{path}:resume"), 403, "flow")
        assert ask("eve", "GET", f"{path}/executions").json["executions"] == []
        assert ask("eve", "POST", f"{path}:resume").status == 200
        assert ask("eve", "DELETE", path).status == 204

    def test_nodes_are_those_of_the_groups(self, ask: Any) -> None:
        assert "vault" in [each["name"] for each in ask("eve", "GET", f"{API}/nodes").json]
        assert "vault" not in [each["name"] for each in ask("ann", "GET", f"{API}/nodes").json]
        for user, sees in (("eve", True), ("ann", False)):
            (executor,) = ask(user, "GET", f"{API}/executors").json
            assert ("vault" in executor["nodes"], "lake" in executor["nodes"]) == (sees, True)
            assert ("vault" in ask(user, "GET", "/ui/topology").text) is sees
            explained = ask(user, "POST", f"{FLOWS}/sales/explained:explain", make_config("explained"))
            assert explained.status == 200
            assert ("vault" in explained.text) is sees
        answer = ask("ann", "POST", FLOWS, make_config("into-vault", destinations=["vault"]))
        assert answer.status == 422
        assert "vault" not in str(answer.json["hint"])
        refused(ask("ann", "PUT", f"{API}/nodes/x", {"kind": "files", "root": "/x"}), 403, "user")

    def test_a_log_is_drained_by_who_may_manage(self, ask: Any) -> None:
        (shown,) = ask("ann", "GET", f"{API}/logs").json
        assert (shown["name"], shown["executors"], shown["state"]) == ("own-log", ["here"], "WORKING")
        assert "/ui/logs/own-log/drain" not in ask("ann", "GET", "/ui/topology").text
        refused(ask("ann", "POST", f"{API}/logs/own-log:drain"), 403, "user")
        refused(ask("ann", "POST", f"{API}/logs/own-log:resume"), 403, "user")
        refused(ask("eve", "POST", f"{API}/logs/other:drain"), 404, "log")
        drained = ask("eve", "POST", f"{API}/logs/own-log:drain").json
        assert (drained["state"], drained["drained_by"], drained["working"]) == ("DRAINING", "eve", 0)
        assert ask("eve", "POST", f"{API}/logs/own-log:resume").json["state"] == "WORKING"

    def test_an_answer_is_for_who_asked_and_may_make_flows(self, ask: Any) -> None:
        path = f"{API}/nodes/vault:suggest?wait_s=0"
        asked = ask("eve", "POST", path)
        assert asked.status == 202
        assert ask("eve", "GET", asked.headers["location"]).status == 202
        refused(ask("ann", "GET", asked.headers["location"]), 404, "probe")
        refused(ask("ann", "POST", path), 404, "node")
        assert ask("ann", "POST", f"{API}/nodes/lake:suggest?wait_s=0").status == 202
        refused(ask("bob", "POST", f"{API}/nodes/lake:suggest?wait_s=0"), 403, "user")
        assert ask("eve", "POST", FLOWS, make_config("order-parts")).status == 201
        refused(ask("bob", "POST", f"{FLOWS}/sales/order-parts:dry-run"), 403, "flow")
        assert ask("eve", "DELETE", f"{FLOWS}/sales/order-parts").status == 204

    def test_a_person_logs_in_by_a_token(self, guarded: RunningService, tokens: dict[str, str]) -> None:
        answer = guarded.send_form("/ui/login", {"token": tokens["bob"]})
        assert answer.status == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        page = guarded.ask("GET", "/ui/flows", headers={"Cookie": cookie.partition(";")[0]})
        assert (page.status, "bob" in page.text) == (200, True)
        assert guarded.send_form("/ui/login", {"token": "wrong"}).status == 401

    def test_a_change_of_the_file_is_seen_at_once(self, guarded: RunningService, ask: Any) -> None:
        file = guarded.folder / "access.yaml"
        before = file.read_text(encoding="utf-8")
        try:
            file.write_text("rules: [", encoding="utf-8")
            assert ask("bob", "GET", FLOWS).status == 200, "what can't be read changes nothing"
            file.write_text(yaml.safe_dump({**ACCESS, "tokens": []}), encoding="utf-8")
            assert ask("bob", "GET", FLOWS).status == 401
        finally:
            file.write_text(before, encoding="utf-8")
