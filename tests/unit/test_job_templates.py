"""Job templates: what is refused when one is published, and what becomes of parameters in its job."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.service.job_template import JobTemplate, parse_template
from gobblin_assets.service.placeholders import Fact, fill_job
from gobblin_assets.service.template_parameters import check_known, check_values, fill_in, read_texts

URI = "FS:///test@1/t.template"
PLAIN = "FS:///test/t.template"

WORD = {"type": "string", "pattern": "^[a-z]{1,20}$"}
PROPERTIES: Mapping[str, Any] = {
    "word": WORD,
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "words": {"type": "array", "items": WORD},
    "day": {"type": "string", "format": "date"},
    "kept": {"type": "string", "enum": ["a", "b"], "default": "b"},
    "tables": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": WORD, "keys": {"type": "array", "items": WORD}, "size": {"type": "integer"}},
        },
    },
}
JOB: Mapping[str, Any] = {
    "source": {"connection": "${from.connection}", "include": "${words}"},
    "destination": "${to.root}",
    "parallelism": "${number}",
    "description": "${flow.group}: ${word} ${number} ${flag} ${kept}",
    "defaults": {"partitions": {"start": "${day}", "zone": "UTC"}, "tags": {"word": "${word}"}},
    "datasets": [
        {"for_each": "tables", "given": "keys", "make": {"table": "${each.name}", "primary_key": "${each.keys}"}},
        {"for_each": "tables", "without": "keys", "make": {"table": "${each.name}", "split": {"rows": "${each.size}"}}},
    ],
}
FACTS = {
    "flow.group": Fact("sales", "flow_group"),
    "flow.name": Fact("orders", "flow_name"),
    "flow.job": Fact("orders_1", "flow_name"),
    "from.connection": Fact("shop", "nodes.shop.connection"),
    "to.root": Fact("/data/lake", "nodes.lake.root"),
}


def write(**more: Any) -> dict[str, Any]:
    return {
        "capability": "ingest.jdbc",
        "shape": "run",
        "from": {"kind": "database", "format": "table"},
        "to": {"kind": "files", "format": "dataset"},
        "parameters": {"type": "object", "properties": dict(PROPERTIES)},
        "job": dict(JOB),
        **more,
    }


def parse(**more: Any) -> JobTemplate:
    return parse_template(yaml.safe_dump(write(**more)), URI, PLAIN)


def nest(depth: int) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = [value]
    return value


def with_job(**more: Any) -> dict[str, Any]:
    return {"job": {**JOB, **more}}


def with_parameter(schema: object, **more: Any) -> dict[str, Any]:
    properties = {**PROPERTIES, "more": schema}
    return {
        "parameters": {"type": "object", "properties": properties, **more},
        "job": {**JOB, "defaults": {**JOB["defaults"], "group": "${more}"}},
    }


def fill(template: JobTemplate, **parameters: Any) -> dict[str, Any]:
    given = check_values(parameters)
    check_known(given, [template.parameters])
    values = fill_in(given, template.parameters, template.validator)
    return fill_job(template.job, values, FACTS).options


def test_placeholders_become_values_of_their_types() -> None:
    filled = fill(
        parse(),
        word="abc",
        number=7,
        flag=True,
        words=["a", "b"],
        day=dt.date(2026, 1, 31),
        tables=[{"name": "x", "size": 5}, {"name": "y", "keys": ["k"]}],
    )
    assert filled == {
        "job": "orders_1",
        "source": {"connection": "shop", "include": ["a", "b"]},
        "destination": "/data/lake",
        "parallelism": 7,
        "description": "sales: abc 7 true b",
        "defaults": {"partitions": {"start": "2026-01-31", "zone": "UTC"}, "tags": {"word": "abc"}},
        "datasets": [{"table": "y", "primary_key": ["k"]}, {"table": "x", "split": {"rows": 5}}],
    }


def test_what_has_no_value_is_left_out_with_the_groups_that_have_nothing_else() -> None:
    assert fill(parse(), tables=[{"name": "x"}]) == {
        "job": "orders_1",
        "source": {"connection": "shop"},
        "destination": "/data/lake",
        "defaults": {"partitions": {"zone": "UTC"}},
        "datasets": [{"table": "x"}],
    }


@given(st.text(st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=60))
def test_a_value_is_a_text_whatever_it_holds(text: str) -> None:
    job = {"destination": "${to.root}", "description": "${word}", "tags": ["${word}", "<${word}>"]}
    schema = {"type": "object", "properties": {"word": {"type": "string", "pattern": "^.*$"}}}
    template = parse(job=job, parameters=schema)
    for value in (text, "${to.root}", "${word}", "${" + text + "}", "{a: b}", "- x", "*", "&a", "!!python/object"):
        filled = fill(template, word=value)
        assert filled["description"] == value
        assert filled["tags"] == [value, f"<{value}>"]
        assert filled.keys() == {"job", "destination", "description", "tags"}


def test_values_lead_back_to_what_people_wrote() -> None:
    template = parse()
    given = {"tables": [{"name": "x"}, {"name": "y", "keys": ["k"]}], "number": 3}
    filled = fill_job(template.job, fill_in(given, template.parameters, template.validator), FACTS)
    found = {option: filled.find_origin(option) for option in (
        "datasets[0].table", "datasets[0].primary_key[0]", "datasets[1].watermark.column", "datasets[0]",
        "parallelism", "destination", "source.connection", "source", "retry.back_off_s",
    )}  # fmt: skip
    assert found == {
        "datasets[0].table": "parameters.tables[1].name",
        "datasets[0].primary_key[0]": "parameters.tables[1].keys",
        "datasets[1].watermark.column": "parameters.tables[0]",
        "datasets[0]": "parameters.tables[1]",
        "parallelism": "parameters.number",
        "destination": "nodes.lake.root",
        "source.connection": "nodes.shop.connection",
        "source": "nodes.shop.connection",
        "retry.back_off_s": None,
    }


def test_parameters_that_are_written_once_are_used_by_their_names() -> None:
    parameters = {
        "type": "object",
        "$defs": {"name": WORD},
        "properties": {"word": {"$ref": "#/$defs/name", "description": "A word."}},
    }
    template = parse(parameters=parameters, job={"destination": "${to.root}", "description": "${word}"})
    assert template.parameters["properties"]["word"] == {**WORD, "description": "A word."}


def test_what_a_template_asks_of_its_nodes_is_known() -> None:
    assert parse().needs == {"from.connection", "to.root"}


def taken(default: Any = None, required: Any = ("dataset",)) -> dict[str, Any]:
    """A list that a hop before gives."""
    text = {"type": "string", "pattern": "^a$"}
    items = {"type": "object", "required": list(required), "properties": dict.fromkeys(("dataset", "job", "by"), text)}
    given = {} if default is None else {"default": default}
    return {"type": "array", "x-from": "datasets", "items": items, **given}


@pytest.mark.parametrize(
    ("more", "field", "said"),
    [
        ({"capabilty": "x"}, "capabilty", "'capability'"),
        ({"capability": "Ingest JDBC"}, "capability", "pattern"),
        ({"shape": "stream"}, "shape", "expected"),
        ({"cost": -1}, "cost", "at least 0"),
        ({"from": {"format": "table"}}, "from.kind", "either kind or kinds"),
        ({"from": {"kind": "files", "kinds": ["files"], "format": "tree"}}, "from.kind", "found both"),
        ({"to": {"kind": "files", "format": "dataste"}}, "to.format", "'dataset'"),
        ({"uri": "FS:///other/t.template"}, "uri", "Leave it out"),
        ({"job": {"description": "x"}}, "job.destination", "${to.root}/${flow.job}, found nothing"),
        (with_job(destination="${to.root}/x"), "job.destination", "expected ${to.root} or"),
        (with_parameter({"type": "string", "pattern": "^a$", "x-from": "datasets"}),
         "parameters.properties.more.items.properties", "dataset, job, by; found none with dataset"),
        (with_parameter({"type": "string", "pattern": "^a$", "x-from": "nodes"}),
         "parameters.properties.more.x-from", "expected datasets, found 'nodes'"),
        (with_parameter(taken()), "parameters.properties.more.items.required", "expected dataset and job in each"),
        (with_parameter(taken(default=[], required=["dataset", "job"])),
         "parameters.properties.more.default", "no default"),
        (with_job(destination="/etc"), "job.destination", "expected ${to.root}"),
        (with_job(job="mine"), "job.job", "expected ${flow.job}"),
        (with_job(description="${wrod}"), "job.description", "${wrod} has no parameter. Did you mean ${word}?"),
        (with_job(description="${zzz}"), "job.description", "Add it to the template's parameters"),
        (with_job(description="${each.name}"), "job.description", "has no parameter"),
        (with_job(description="${flow.executionId}"), "job.description", "changes with each execution"),
        (with_job(description="${flow.execution_id}"), "job.description", "Known: flow.group, flow.name, flow.job"),
        (with_job(description="${from.password}"), "job.description", "Known: from.connection"),
        (with_job(description="${env.HOME}"), "job.description", "has no parameter"),
        (with_job(description="${word"), "job.description", "close the brace"),
        (with_job(description="${${word}}"), "job.description", "close the brace"),
        (with_job(description="${words}, ${word}"), "job.description", "words is a list, and stands in a text"),
        (with_job(description="${tables}"), "job.description", "list of objects"),
        (with_job(**{"${word}": 1}), "job", "Placeholders stand in values alone"),
        (with_job(datasets=[{"for_each": "words", "make": {}}]), "job.datasets[0].for_each", "a list of objects"),
        (with_job(datasets=[{"for_each": "tables"}]), "job.datasets[0].make", "a group of options"),
        (
            with_job(datasets=[{"for_each": "tables", "given": "nmae", "make": {}}]),
            "job.datasets[0].given",
            "Known: keys, name, size",
        ),
        (with_job(datasets=[{"for_each": "tables", "if": 1, "make": {}}]), "job.datasets[0].if", "not an option"),
        (
            with_job(datasets=[{"for_each": "tables", "make": {"a": [{"for_each": "tables", "make": {}}]}}]),
            "job.datasets[0].make.a[0].for_each",
            "within another one",
        ),
        (with_job(source={"connection": "${word}"}), "job.source.connection", "stands where the job's connection"),
        (with_job(source="${word}"), "job.source", "the job's source"),
        (with_job(kind="${word}"), "job.kind", "the job's kind"),
        (with_job(into={"type": "${word}"}), "job.into.type", "the job's type"),
        (with_job(into={"type": "kafka", "connection": "x_${word}"}), "job.into.connection", "the job's connection"),
        (with_job(events=[{"kind": "webhook", "url": "${word}"}]), "job.events[0].url", "the job's events"),
        (with_job(defaults={"where": "a = '${word}'"}), "job.defaults.where", "the job's where"),
        (with_job(defaults={"casts": {"a": "${word}"}}), "job.defaults.casts.a", "the job's casts"),
        (with_job(defaults={"converters": [{"drop": "${words}"}]}), "job.defaults.converters[0].drop", "converters"),
        (
            with_job(defaults={"quality": {"rows": [{"name": "a", "check": "${word}"}]}}),
            "job.defaults.quality.rows[0].check",
            "the job's check",
        ),
        (
            with_job(datasets=[{"for_each": "tables", "make": {"where": "${each.name}"}}]),
            "job.datasets[0].make.where",
            "the job's where",
        ),
        (with_job(source={"connection": "a", "jars": "${words}"}), "job.source.jars", "the job's jars"),
        ({"parameters": {"type": "object", "properties": {"a": WORD}}, "job": {"destination": "${to.root}"}},
         "parameters.properties.a", "no placeholder of the job asks for it"),
        ({"parameters": {"type": "array"}}, "parameters", "expected type: object"),
        ({"parameters": {"type": "object", "properties": {"a b": WORD}}}, "parameters.properties", "a name of letters"),
        ({"parameters": {"type": "object", "properties": {"flow": WORD}}}, "parameters.properties.flow", "another"),
        (with_parameter({"type": "string"}), "parameters.properties.more.pattern", "a pattern from ^ to $"),
        (with_parameter({"type": "string", "pattern": "[a-z]"}), "parameters.properties.more.pattern", "from ^ to $"),
        (with_parameter({"type": "string", "pattern": "^[a-z$"}), "parameters.properties.more.pattern", "is no JSON"),
        (with_parameter({"type": "object"}), "parameters.properties.more.type", "a list of objects"),
        (with_parameter({}), "parameters.properties.more.type", "found 'None'"),
        (with_parameter(5), "parameters.properties.more", "is no JSON Schema"),
        (
            with_parameter({"type": "array", "items": {"type": "array"}}),
            "parameters.properties.more.items.type",
            "expected a type",
        ),
        (with_parameter({"type": "text"}), "parameters.properties.more.type", "is no JSON Schema"),
        (
            with_parameter({"$ref": "https://example.com/schema.json"}),
            "parameters.properties.more.$ref",
            "nothing is fetched",
        ),
        (with_parameter({"$ref": "#/properties/word"}), "parameters.properties.more.$ref", "expected a reference"),
        (with_parameter({**WORD, "$id": "x"}), "parameters.properties.more.$id", "no address"),
        (with_parameter({**WORD, "x-secret": True}), "parameters.properties.more.x-secret", "variable of the executor"),
        (
            with_parameter(
                {"$ref": "#/$defs/a0"},
                **{"$defs": {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 9} for n in range(12)}},
            ),
            "parameters",
            "at most 10,000 parts",
        ),
        (
            with_parameter({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
            "parameters",
            "Does a definition name itself",
        ),
    ],
)  # fmt: skip
def test_a_template_that_is_wrong_is_refused_with_the_option_and_the_fix(
    more: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(RejectedError) as caught:
        parse(**more)
    assert said in str(caught.value)
    assert caught.value.field == f"{PLAIN}: {field}"
    assert caught.value.hint


@pytest.mark.parametrize("name", ["flow.group", "flow.name", "word"])
def test_what_people_write_freely_is_no_sql_and_no_connection(name: str) -> None:
    job = {**JOB, "datasets": [{"table": "orders", "where": f"customer = '${{{name}}}'"}]}
    with pytest.raises(RejectedError, match="where the job's where is written"):
        parse(job=job)
    with pytest.raises(RejectedError, match="where the job's connection is written"):
        parse(job={**JOB, "source": {"connection": f"${{{name}}}"}})


@pytest.mark.parametrize("pattern", ["^x|y$", r"^(x|y)\$"])
def test_a_pattern_fits_whole_texts(pattern: str) -> None:
    template = parse(**with_parameter({"type": "string", "pattern": pattern}))
    with pytest.raises(RejectedError) as caught:
        fill(template, tables=[{"name": "a"}], more="xylophone'; DROP")
    assert f"a text like {pattern};" in str(caught.value)


@pytest.mark.parametrize("name", ["description", "version"])
def test_what_no_ticket_may_say_is_refused_before_a_flow_uses_it(name: str) -> None:
    with pytest.raises(RejectedError, match="no control characters") as caught:
        parse(**{name: "a\x7f\x0bb"})
    assert caught.value.field == f"{PLAIN}: {name}"


def test_a_text_that_is_no_yaml_or_too_long_is_refused() -> None:
    for text, said in (("{", "is no YAML"), ("a: &a [*a]", "repeats the group"), ("#" * 300_000, "at most 256 KiB")):
        with pytest.raises(RejectedError, match=said) as caught:
            parse_template(text, URI, PLAIN)
        assert caught.value.field == f"{PLAIN}: template"


@pytest.mark.parametrize(
    ("parameters", "field", "said"),
    [
        ({"wrod": "a"}, "parameters.wrod", "Did you mean 'word'?"),
        ({"zzz": "a"}, "parameters.zzz", "Known: day, flag"),
        ({"word": "A"}, "parameters.word", "a text like"),
        ({"word": 5}, "parameters.word", "expected a text; found 5"),
        ({"word": ["a"]}, "parameters.word", "found a list of 1"),
        ({"word": {"a": 1}}, "parameters.word", "found a group of values"),
        ({"word": None}, "parameters.word", "found nothing"),
        ({"word": "a\n"}, "parameters.word", "no control characters"),
        ({"word": "a\ud800"}, "parameters.word", "no control characters"),
        ({"word": "a" * 5_000}, "parameters.word", "at most"),
        ({"word": object()}, "parameters.word", "a value of JSON"),
        ({"number": "5"}, "parameters.number", "a whole number"),
        ({"number": float("inf")}, "parameters.number", "expected a number"),
        ({"flag": "yes"}, "parameters.flag", "true or false"),
        ({"words": ["a", "B"]}, "parameters.words[1]", "a text like"),
        ({"words": "a"}, "parameters.words", "a list"),
        ({"day": "2026-02-30"}, "parameters.day", "Write it as 2026-01-31"),
        ({"day": "20260131"}, "parameters.day", "expected a date"),
        ({"kept": "c"}, "parameters.kept", "expected a or b"),
        ({"tables": [{"keys": ["a"]}]}, "parameters.tables[0].name", "is missing"),
        ({"tables": [{"name": "a"}, {"name": "a", "kyes": []}]}, "parameters.tables[1].kyes", "'keys'"),
        ({"tables": [5]}, "parameters.tables[0]", "a group of values"),
        ({"words": nest(400)}, "parameters", "too many groups within groups"),
        ({"words": ["a"] * 200_000}, "parameters", "at most 100,000 values"),
    ],
)
def test_parameters_that_are_wrong_are_refused_with_the_place_and_the_fix(
    parameters: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(RejectedError) as caught:
        fill(parse(), **{"tables": [{"name": "a"}], **parameters})
    assert caught.value.field == field
    assert said in str(caught.value)
    assert caught.value.hint


def test_templates_share_parameters_and_each_takes_its_own() -> None:
    first = parse()
    second = parse(
        parameters={
            "type": "object",
            "properties": {
                "tables": {"type": "array", "items": {"type": "object", "properties": {"name": WORD, "topic": WORD}}}
            },
        },
        job={
            "destination": "${to.root}",
            "datasets": [{"for_each": "tables", "make": {"urn": "${each.name}", "topic": "${each.topic}"}}],
        },
    )
    given = check_values({"tables": [{"name": "a", "topic": "t", "keys": ["k"]}], "word": "w"})
    check_known(given, [first.parameters, second.parameters])
    assert fill_in(given, second.parameters, second.validator) == {"tables": [{"name": "a", "topic": "t"}]}
    assert fill_in(given, first.parameters, first.validator)["tables"] == [{"name": "a", "keys": ["k"]}]
    with pytest.raises(RejectedError, match="topic"):
        check_known(given, [first.parameters])


def test_texts_of_properties_are_read_by_the_schemas() -> None:
    texts = {"word": "5", "number": "5", "flag": "true", "words": '["a"]', "day": "2026-01-31", "other": "[1]"}
    read = read_texts({**texts, "tables": '[{"name": "a"}]'}, [parse().parameters])
    assert read == {
        "word": "5",
        "number": 5,
        "flag": True,
        "words": ["a"],
        "day": "2026-01-31",
        "other": "[1]",
        "tables": [{"name": "a"}],
    }
    assert read_texts({"number": "five"}, [parse().parameters]) == {"number": "five"}
