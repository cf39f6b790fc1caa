"""The requests of Rest.li, as the design of the service has them: byte for byte, by curl."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.running_service import RunningService

# The command is `curli` there, of the same options; the port is one that is free.
CREATE = r"""curli http://localhost:8080/flowconfigs -X POST -H 'X-RestLi-Method: create' -H 'X-RestLi-Protocol-Version: 2.0.0' --data '{"flowName" : "myflow1", "flowGroup" : "mygroup", "templateNames" : "FS:///mytemplate.template", "schedule" : "", "properties" : {"prop1" : "value1"}}'"""  # noqa: E501  byte for byte
UPDATE = r"""curli "http://localhost:8080/flowconfigs/(flowGroup:mygroup,flowName:myflow1)" -X PUT -H 'X-RestLi-Method: update' -H 'X-RestLi-Protocol-Version: 2.0.0' --data '{"flowName" : "myflow1", "flowGroup" : "mygroup", "templateName" : "FS:///mytemplate.template", "schedule" : "", "properties" : {"prop1" : "value2"}}'"""  # noqa: E501  the same
DELETE = r"""curli "http://localhost:8080/flowconfigs/(flowGroup:mygroup,flowName:myflow1)" -X DELETE -H 'X-RestLi-Protocol-Version: 2.0.0'"""  # noqa: E501  the same
GET = r"""curli "http://localhost:8080/flowconfigs/(flowGroup:mygroup,flowName:myflow)" -X GET -H 'X-RestLi-Protocol-Version: 2.0.0'"""  # noqa: E501  the same

KEY = "(flowGroup:mygroup,flowName:myflow1)"


def curl(service: RunningService, line: str) -> tuple[int, dict[str, str], str]:
    """The status, the headers and the body of what the line asks."""
    words = shlex.split(line.replace("curli", "curl", 1).replace(":8080", f":{service.port}", 1))
    answer = subprocess.run([*words, "-s", "-i"], capture_output=True, text=True, check=True, timeout=60).stdout
    head, _, body = answer.replace("\r\n", "\n").partition("\n\n")
    first, *rest = head.splitlines()
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return int(first.split()[1]), headers, body


def test_the_lines_of_the_design(service: RunningService) -> None:
    status, headers, body = curl(service, CREATE)
    assert (status, body) == (201, "")
    assert headers["location"] == f"/flowconfigs/{KEY}"
    assert headers["x-restli-id"] == KEY
    assert headers["x-restli-protocol-version"] == "2.0.0"

    assert curl(service, UPDATE)[0] == 200
    stored = service.ask("GET", f"/flowconfigs/{KEY}").json
    assert stored["properties"] == {"prop1": "value2"}
    assert stored["templateUris"] == "FS:///mytemplate.template"

    # The design creates myflow1, and reads myflow.
    assert curl(service, GET)[0] == 404
    assert curl(service, CREATE.replace("myflow1", "myflow"))[0] == 201
    status, headers, body = curl(service, GET)
    assert status == 200
    assert headers["content-type"] == "application/json"
    assert '"flowName": "myflow"' in body

    assert curl(service, DELETE)[0] == 200
    status, headers, body = curl(service, DELETE)
    assert status == 404
    assert headers["x-restli-error-response"] == "true"


def make_flow(service: RunningService, name: str = "myflow1", **properties: str) -> None:
    body = {
        "flowName": name,
        "flowGroup": "mygroup",
        "schedule": "",
        "templateUris": "FS:///mytemplate.template",
        "properties": {"prop1": "value1", **properties},
    }
    answer = service.ask("POST", "/flowconfigs", body)
    assert answer.status == 201, answer.text


@pytest.mark.parametrize("resource", ["flowconfigs", "flowcofigs", "GobblinServiceFlows"])
def test_resources_of_flows_have_all_names_of_the_design(service: RunningService, resource: str) -> None:
    make_flow(service)
    assert service.ask("GET", f"/{resource}/{KEY}").json["flowName"] == "myflow1"
    body = {**service.ask("GET", f"/{resource}/{KEY}").json, "properties": {"prop1": "other"}}
    assert service.ask("POST", f"/{resource}/{KEY}", body).status == 200
    assert service.ask("GET", f"/{resource}/{KEY}").json["properties"] == {"prop1": "other"}
    assert service.ask("DELETE", f"/{resource}/{KEY}").status == 200


@pytest.mark.parametrize("resource", ["FlowStatuses", "flowstatuses"])
def test_a_status_has_the_fields_of_the_design(service: RunningService, resource: str) -> None:
    make_flow(service)
    status = service.ask("GET", f"/{resource}/{KEY}").json
    (job,) = status.pop("jobStatuses")
    assert status.pop("executionStatus") in {"COMPILED", "ORCHESTRATED"}
    assert 1_700_000_000_000 < status.pop("executionStartTime") < 10_000_000_000_000
    assert status == {"flowName": "myflow1", "flowGroup": "mygroup", "message": ""}
    assert job["jobGroup"] == "here"
    assert job.keys() <= {
        *("flowName", "flowGroup", "jobName", "jobGroup", "executionStartTime", "executionEndTime"),
        *("executionStatus", "message", "processedCount", "lowWatermark", "highWatermark"),
    }


def test_properties_are_read_by_the_schemas_of_the_templates(service: RunningService) -> None:
    make_flow(service, rows="7", columns='["id", "name"]')
    stored = service.ask("GET", "/api/v1/flows/mygroup/myflow1").json["config"]["parameters"]
    assert stored == {"prop1": "value1", "rows": 7, "columns": ["id", "name"]}
    assert service.ask("GET", f"/flowconfigs/{KEY}").json["properties"] == {
        "prop1": "value1",
        "rows": "7",
        "columns": '["id", "name"]',
    }


def test_properties_choose_nodes(service: RunningService) -> None:
    body = {
        "flowName": "myflow1",
        "flowGroup": "mygroup",
        "templateUris": "FS:///tables.template",
        "properties": {
            "gobblin.flow.sourceIdentifier": "shop",
            "gobblin.flow.destinationIdentifier": "mirror",
            "tables": '[{"table": "public.orders"}]',
        },
    }
    assert service.ask("POST", "/flowconfigs", body).status == 201
    config = service.ask("GET", "/api/v1/flows/mygroup/myflow1").json["config"]
    assert config["source"]["node"] == "shop"
    assert [each["node"] for each in config["destinations"]] == ["mirror"]
    properties = service.ask("GET", f"/flowconfigs/{KEY}").json["properties"]
    assert properties["gobblin.flow.destinationIdentifier"] == "mirror"


def test_names_of_any_characters_are_keys(service: RunningService) -> None:
    name = "a/b (c), d:e 'f' ü"
    make_flow(service, name)
    found = service.ask("GET", "/api/v1/flows").json["flows"]
    assert [each["config"]["flow_name"] for each in found] == [name]
    escaped = "a%2Fb%20%28c%29%2C%20d%3Ae%20%27f%27%20%C3%BC"
    assert service.ask("GET", f"/flowconfigs/(flowGroup:mygroup,flowName:{escaped})").json["flowName"] == name
    assert service.ask("GET", f"/api/v1/flows/mygroup/{escaped}").json["config"]["flow_name"] == name
    assert service.ask("GET", f"/ui/flows/mygroup/{escaped}").status == 200


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"schedule": "0 * * *"}, 422, "schedule"),
        ({"properties": {"prop2": "x", "prop1": "x"}}, 422, "parameters.prop2"),
        ({"properties": {}}, 422, "parameters.prop1"),
        ({"properties": {"prop1": 5}}, 422, "properties"),
        ({"properties": {"prop1": "x", "rows": "many"}}, 422, "parameters.rows"),
        ({"templateUris": "FS:///nope.template"}, 422, "template_uris"),
        ({"flowNames": "x"}, 422, "flowNames"),
        ({"flowName": ""}, 422, "flow_name"),
    ],
)
def test_mistakes_are_refused_with_field_and_fix(
    service: RunningService, change: dict[str, object], status: int, field: str
) -> None:
    body = {
        "flowName": "f",
        "flowGroup": "g",
        "templateUris": "FS:///mytemplate.template",
        "properties": {"prop1": "v"},
        **change,
    }
    answer = service.ask("POST", "/flowconfigs", body)
    assert answer.headers["x-restli-error-response"] == "true"
    assert (answer.status, answer.json["status"]) == (status, status), answer.text
    assert answer.json["errorDetails"]["field"] == field
    assert answer.json["errorDetails"]["hint"]
    assert answer.json["exceptionClass"] == "RejectedError"


def test_a_name_can_not_be_changed(service: RunningService) -> None:
    make_flow(service)
    body = {**service.ask("GET", f"/flowconfigs/{KEY}").json, "flowName": "other"}
    answer = service.ask("PUT", f"/flowconfigs/{KEY}", body)
    assert (answer.status, answer.json["errorDetails"]["field"]) == (422, "flow_name")


@pytest.mark.parametrize("key", ["mygroup", "(flowGroup:mygroup)", "(flowGroup:a,flowName:b,more:c)", "()"])
def test_what_is_no_key_is_refused(service: RunningService, key: str) -> None:
    answer = service.ask("GET", f"/flowconfigs/{key}")
    assert (answer.status, answer.headers["x-restli-error-response"]) == (400, "true")


def test_a_flow_is_not_created_twice(service: RunningService) -> None:
    make_flow(service)
    body = {**service.ask("GET", f"/flowconfigs/{KEY}").json}
    assert service.ask("POST", "/flowconfigs", body).status == 409


def test_the_process_loads_no_engine(service: RunningService) -> None:
    maps = Path(f"/proc/{service.process.pid}/maps").read_text(encoding="utf-8")
    assert "pandas" not in maps
