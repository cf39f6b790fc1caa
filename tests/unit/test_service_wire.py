"""Parts of requests and of pages that need no server: keys of Rest.li, bodies, cursors, guards, fields of forms."""

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gobblin_assets.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    GobblinError,
    OutcomeUnknownError,
    RejectedError,
    RetryableError,
)
from gobblin_assets.service.api import request_guards
from gobblin_assets.service.api.problems import MalformedRequestError, list_headers, problem_of
from gobblin_assets.service.api.request_guards import (
    RequestGuards,
    check_host,
    check_origin,
    read_raw_path,
    refuse_nul,
)
from gobblin_assets.service.api.request_parts import (
    parse_json,
    read_execution_cursor,
    read_flow_cursor,
    write_cursor,
)
from gobblin_assets.service.api.restli_codec import read_restli_key, write_error, write_restli_key
from gobblin_assets.service.flow_store import SpecNotFoundError, StaleVersionError
from gobblin_assets.service.guarded_flows import merge_patch
from gobblin_assets.service.specs import FlowKey
from gobblin_assets.service.ui.flow_forms import merge_parameters
from gobblin_assets.service.ui.rendering import page_with
from gobblin_assets.service.ui.wizard_fields import WizardRows, plan_fields, read_form

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


class TestKeys:
    @given(NAMES, NAMES)
    def test_a_key_is_read_as_it_was_written(self, group: str, name: str) -> None:
        key = FlowKey(group, name)
        written = write_restli_key(key)
        assert read_restli_key(written) == key
        assert read_raw_path(f"/flowconfigs/{written}".encode()) == f"/flowconfigs/{written}"
        assert not set("(),:'") & set(written.removeprefix("(flowGroup:").removesuffix(")").replace(",flowName:", ""))

    @given(NAMES, NAMES)
    def test_a_cursor_is_read_as_it_was_written(self, group: str, name: str) -> None:
        assert read_flow_cursor(write_cursor(FlowKey(group, name))) == FlowKey(group, name)
        assert read_execution_cursor(write_cursor(17)) == 17

    @pytest.mark.parametrize(
        "text", ["(flowName:a,flowGroup:b)", "(flowGroup:b,flowName:a)", "%28flowGroup%3Ab%2CflowName%3Aa%29"]
    )
    def test_the_order_of_fields_is_free(self, text: str) -> None:
        assert read_restli_key(text) == FlowKey("b", "a")

    @pytest.mark.parametrize(
        "text", ["", "()", "(flowGroup:a)", "(flowGroup:(a),flowName:b)", "(flowGroup:a,flowName:b", "a"]
    )
    def test_what_is_no_key_is_refused(self, text: str) -> None:
        with pytest.raises(MalformedRequestError):
            read_restli_key(text)

    def test_the_empty_text_is_two_quotes(self) -> None:
        assert write_restli_key(FlowKey("", "a")) == "(flowGroup:'',flowName:a)"
        with pytest.raises(RejectedError) as caught:
            read_restli_key("(flowGroup:'',flowName:a)")
        assert caught.value.field == "flow_group"


class TestProblems:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (MalformedRequestError("m", field="body"), 400),
            (SpecNotFoundError("m", field="flow"), 404),
            (RejectedError("m", field="source"), 422),
            (ConflictError("m"), 409),
            (RetryableError("m"), 503),
            (OutcomeUnknownError("m"), 503),
            (FencedError("m"), 503),
            (CorruptionError("m"), 500),
        ],
    )
    def test_a_family_is_a_code(self, error: GobblinError, status: int) -> None:
        problem = problem_of(error)
        assert (problem.status, problem.detail) == (status, "m")
        assert ("Retry-After" in list_headers(problem)) == (status == 503)
        assert write_error(problem)["status"] == status

    def test_only_another_version_fails_a_condition(self) -> None:
        assert problem_of(StaleVersionError("m"), has_condition=True).status == 412
        assert problem_of(StaleVersionError("m")).status == 409
        assert problem_of(ConflictError("m"), has_condition=True).status == 409
        assert problem_of(RejectedError("m", field="f"), has_condition=True).status == 422

    def test_an_error_of_restli_says_all_in_one_line(self) -> None:
        written = write_error(problem_of(RejectedError("is missing", field="source", hint="Add it.")))
        assert written["message"] == "source: is missing. Add it."
        assert written["errorDetails"] == {"field": "source", "hint": "Add it."}


class TestBodies:
    def test_nothing_is_no_body(self) -> None:
        assert parse_json(b" \n") is None

    @pytest.mark.parametrize("body", [b"{", b"\xff", b'{"a":1,"a":2}', b"NaN", b"[" * 200_000, b'"\xed\xa0\x80"',
    ])  # fmt: skip
    def test_what_is_no_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(MalformedRequestError):
            parse_json(body)

    @pytest.mark.parametrize(("body", "field"), [(rb'{"a": {"b": ["\ud800"]}}', "a.b[0]"), (rb'{"\u0000": 1}', "body")])
    def test_what_no_database_takes_is_refused(self, body: bytes, field: str) -> None:
        with pytest.raises(RejectedError, match="no control characters") as caught:
            parse_json(body)
        assert caught.value.field == field

    def test_a_patch_is_merged_as_the_standard_says(self) -> None:
        target = {"a": "b", "c": {"d": "e", "f": "g"}}
        assert merge_patch(target, {"a": "z", "c": {"f": None}}) == {"a": "z", "c": {"d": "e"}}
        assert merge_patch({"a": [1]}, {"a": {"b": {"c": None}}}) == {"a": {"b": {}}}
        assert merge_patch({"a": 1}, {"a": [2]}) == {"a": [2]}


class TestGuards:
    @pytest.mark.parametrize("host", ["localhost", "localhost:80", "LocalHost", "[::1]:80", "127.0.0.1:8080"])
    def test_hosts_of_this_machine(self, host: str) -> None:
        check_host(host, {"localhost", "127.0.0.1", "::1"})

    @pytest.mark.parametrize("host", ["", "example", "localhost.example", "localhost@example", "[::1", "127.0.0.1.x"])
    def test_other_hosts(self, host: str) -> None:
        with pytest.raises(RejectedError) as caught:
            check_host(host, {"localhost", "127.0.0.1", "::1"})
        assert caught.value.field == "Host"

    def test_origins(self) -> None:
        check_origin({"host": "localhost:80"})
        check_origin({"host": "localhost:80", "origin": "http://localhost:80", "sec-fetch-site": "same-origin"})
        for headers in (
            {"host": "localhost:80", "origin": "http://localhost:81"},
            {"host": "localhost:80", "origin": "null"},
            {"host": "localhost:80", "sec-fetch-site": "cross-site"},
        ):
            with pytest.raises(RejectedError):
                check_origin(headers)

    def test_a_request_whose_client_went_away_is_no_request_without_a_body(self) -> None:
        asked = []

        async def application(scope: Any, receive: Any, send: Any) -> None:
            asked.append(scope)

        def send_to(*messages: dict[str, Any]) -> None:
            waiting = list(messages)

            async def receive() -> dict[str, Any]:
                return waiting.pop(0)

            async def send(message: Any) -> None:
                raise AssertionError(message)

            headers = [(b"host", b"localhost"), (b"content-length", b"60")]
            scope = {"type": "http", "method": "POST", "headers": headers, "raw_path": b"/", "query_string": b""}
            asyncio.run(RequestGuards(application, {"localhost"})(scope, receive, send))

        gone = {"type": "http.disconnect"}
        send_to(gone)
        send_to({"type": "http.request", "body": b'{"partitions"', "more_body": True}, gone)
        assert asked == []
        send_to({"type": "http.request", "body": b"{}", "more_body": False})
        assert len(asked) == 1

    @pytest.mark.parametrize("is_late", [False, True])
    def test_a_change_that_is_not_answered_is_answered_as_unknown_and_goes_on(
        self, monkeypatch: pytest.MonkeyPatch, is_late: bool
    ) -> None:
        monkeypatch.setattr(request_guards, "CHANGE_WAIT_S_MAX", 0.01 if is_late else 60.0)
        done, told = threading.Event(), []

        async def application(_scope: Any, _receive: Any, send: Any) -> None:
            # As a route does, whose thread waits for the database.
            await asyncio.to_thread(done.wait)
            await send({"type": "http.response.start", "status": 201, "headers": []})

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            told.append(message)
            done.set()

        async def ask() -> None:
            headers = [(b"host", b"localhost")]
            scope = {"type": "http", "method": "POST", "headers": headers, "raw_path": b"/", "query_string": b""}
            if not is_late:
                done.set()
            await RequestGuards(application, {"localhost"})(scope, receive, send)
            await asyncio.gather(*(each for each in asyncio.all_tasks() if each is not asyncio.current_task()))

        asyncio.run(ask())
        assert [each["status"] for each in told if each["type"] == "http.response.start"] == [503 if is_late else 201]
        if is_late:
            said = json.loads(told[1]["body"])
            assert (said["family"], "Idempotency-Key" in said["hint"]) == ("OutcomeUnknownError", True)

    def test_no_query_has_what_no_database_takes(self) -> None:
        refuse_nul(b"search=a%20b")
        with pytest.raises(MalformedRequestError):
            refuse_nul(b"search=%00")
        with pytest.raises(RejectedError):
            read_flow_cursor(write_cursor(FlowKey("a", "\0")))

    @pytest.mark.parametrize("path", [b"/%", b"/%f", b"/%gg", b"/%ff", "/ü".encode(), b"/%ed%a0%80", b"/%00"])
    def test_paths_that_are_no_utf8(self, path: bytes) -> None:
        with pytest.raises(MalformedRequestError):
            read_raw_path(path)


SCHEMA = {
    "type": "object",
    "required": ["tables"],
    "properties": {
        "rows": {"type": "integer", "default": 5, "minimum": 1},
        "share": {"type": "number"},
        "exact": {"type": "boolean"},
        "names": {"type": "array", "items": {"type": "string"}},
        "day": {"type": "string", "format": "date"},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "tables": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "required": ["table"],
                "properties": {"table": {"type": "string"}, "limit": {"type": "integer"}},
            },
        },
    },
}


class TestFields:
    def test_a_form_gives_values_of_the_schemas_types(self) -> None:
        form = {
            "rows": " 7 ",
            "share": "0.5",
            "exact": "true",
            "names": "a, b\nc,",
            "day": "2026-01-31",
            "kind": "",
            "tables[2].table": "second",
            "tables[0].table": "first",
            "tables[0].limit": "3",
            "tables[1].table": " ",
            "more": "x",
        }
        assert read_form(SCHEMA, form) == {
            "rows": 7,
            "share": 0.5,
            "exact": True,
            "names": ["a", "b", "c"],
            "day": "2026-01-31",
            "tables": [{"table": "first", "limit": 3}, {"table": "second"}],
        }

    def test_what_is_no_value_stays_for_the_compiler_to_refuse(self) -> None:
        assert read_form(SCHEMA, {"rows": "many", "exact": "maybe"}) == {"rows": "many", "exact": "maybe"}

    def test_fields_show_the_values_that_a_form_gave(self) -> None:
        given = {"rows": 7, "names": ["a", "b"], "exact": False, "tables": [{"table": "x"}]}
        fields = {each.name: each for each in plan_fields(SCHEMA, given)}
        assert next(iter(fields)) == "tables", "what is required comes first"
        form = {each.name: each.value for each in fields.values() if not isinstance(each, WizardRows)}
        rows = fields["tables"]
        assert isinstance(rows, WizardRows)
        form |= {each.name: each.value for row in rows.rows for each in row}
        assert read_form(SCHEMA, form) == given

    @given(st.lists(st.text(max_size=20), min_size=1))
    @example(["a,b", "c"])
    @example(['say "a", then b', " a ", "", '"', "a\nb"])
    def test_values_of_a_list_are_read_as_they_are_shown(self, names: list[str]) -> None:
        (shown,) = (each for each in plan_fields(SCHEMA, {"names": names}) if each.name == "names")
        assert not isinstance(shown, WizardRows)
        assert read_form(SCHEMA, {"names": shown.value}) == {"names": names}

    @pytest.mark.parametrize(
        ("typed", "read"),
        [
            ('"a,b", c', ["a,b", "c"]),
            ('a "b", c', ['a "b"', "c"]),
            ('"a" b, c', ['"a" b', "c"]),
            ('"a, b', ['"a', "b"]),
            (' ,\n"a""b"\n , c ', ['a"b', "c"]),
        ],
    )
    def test_values_of_a_list_as_people_type_them(self, typed: str, read: list[str]) -> None:
        assert read_form(SCHEMA, {"names": typed}) == {"names": read}

    def test_a_list_has_a_row_to_begin_with_and_grows_to_its_bound(self) -> None:
        def rows_of(tables: list[dict[str, str]], adds_to: str = "") -> WizardRows:
            fields = plan_fields(SCHEMA, {"tables": tables}, adds_to=adds_to)
            return next(each for each in fields if isinstance(each, WizardRows))

        assert len(rows_of([]).rows) == 1
        assert len(rows_of([{"table": "x"}], adds_to="tables").rows) == 2
        assert rows_of([{"table": "x"}]).can_grow
        assert not rows_of([{"table": "x"}], adds_to="tables").can_grow

    def test_what_a_form_does_not_ask_for_stays_as_it_is_stored(self) -> None:
        stored = {"rows": 7, "more": "x", "names": ["a"], "tables": [{"table": "a", "key": "k"}, {"table": "b"}]}
        assert read_form({"properties": {}}, {"rows": "8"}, stored) == stored
        form = {"rows": "", "tables[0].table": "c", "tables[0].limit": "3", "tables[1].table": ""}
        assert read_form(SCHEMA, form, stored) == {
            "more": "x",
            "names": ["a"],
            "tables": [{"table": "c", "limit": 3, "key": "k"}],
        }

    def test_defaults_are_shown(self) -> None:
        rows = next(each for each in plan_fields(SCHEMA, {}) if each.name == "rows")
        assert not isinstance(rows, WizardRows)
        assert (rows.value, rows.kind.value, rows.minimum) == ("5", "number", "1")


def test_the_schemas_of_a_way_are_one() -> None:
    def of(**fields: str) -> dict[str, object]:
        items = {
            "type": "object",
            "required": list(fields)[:1],
            "properties": {k: {"type": v} for k, v in fields.items()},
        }
        return {
            "required": ["sets"],
            "properties": {"sets": {"type": "array", "items": items}, "rows": {"type": "integer"}},
        }

    merged = merge_parameters([of(table="string", key="string"), of(topic="string", key="integer")])
    assert merged["required"] == ["sets"]
    assert list(merged["properties"]) == ["sets", "rows"]
    items = merged["properties"]["sets"]["items"]
    assert items["required"] == ["table", "topic"]
    assert {name: each["type"] for name, each in items["properties"].items()} == {
        "table": "string",
        "key": "string",
        "topic": "string",
    }


def test_parameters_of_addresses_are_encoded() -> None:
    assert page_with("/ui/flows", search="a&b", pending=None) == "/ui/flows?search=a%26b"
    assert page_with("/ui/flows", search=None) == "/ui/flows"
