"""A key that a person wrote twice: refused with both places, wherever YAML or JSON of a person is read."""

import json
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.kafka.avro_schemas import make_whole
from gobblin_assets.spec.doubled_keys import DoubledKeyError, each_key_once, refuse_doubled_keys
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.yaml_files import read_yaml

JOB = """\
job: shop
source: {connection: sales}
destination: /lake
datasets:
  - urn: public.orders
    extract: append_only
    watermark: {column: updated_at}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("more", "field", "first", "second"),
    [
        ("datasets:\n  - urn: public.stock\n", "datasets", 4, 8),
        ("    watermark: {column: created_at}\n", "datasets[0].watermark", 7, 8),
        ("    partitions: {kind: monthly, start: 2026-01-01, kind: daily}\n", "datasets[0].partitions.kind", 8, 8),
        ('"job": other\n', "job", 1, 8),
    ],
)
def test_a_job_file_says_nothing_twice(tmp_path: Path, more: str, field: str, first: int, second: int) -> None:
    path = write(tmp_path, JOB + more)
    with pytest.raises(RejectedError, match=f"{path} says it twice, in line {first} and in line {second}") as caught:
        read_any_job_file(path)
    assert caught.value.field == field


def test_a_component_file_is_a_job_file_too(tmp_path: Path) -> None:
    attributes = "".join(f"  {line}\n" for line in JOB.splitlines())
    path = write(tmp_path, f"type: x.Component\nattributes:\n{attributes}  source: {{connection: other}}\n")
    with pytest.raises(RejectedError) as caught:
        read_any_job_file(path)
    assert caught.value.field == "attributes.source"


def test_equal_keys_in_other_mappings_and_beside_a_merged_one_are_no_doubles() -> None:
    text = "plain: &plain {a: 1, b: 2}\nlist: [{a: 1}, {a: 2}]\nmore: {<<: *plain, a: 3}\nagain: *plain\n1: x\n'1': y\n"
    found = read_yaml(text, Path("job.yaml"))
    assert found == {
        "plain": {"a": 1, "b": 2},
        "list": [{"a": 1}, {"a": 2}],
        "more": {"a": 3, "b": 2},
        "again": {"a": 1, "b": 2},
        1: "x",
        "1": "y",
    }


def test_a_node_that_names_itself_is_looked_at_once() -> None:
    with pytest.raises(RejectedError, match="in line 2 and in line 3"):
        refuse_doubled_keys("&all\na: *all\na: 1\n", Path("job.yaml"))


def test_each_document_of_a_file_is_looked_at() -> None:
    refuse_doubled_keys("a: 1\n---\na: 2\n", Path("defs.yaml"))
    with pytest.raises(RejectedError, match="in line 3 and in line 4"):
        refuse_doubled_keys("a: 1\n---\na: 2\na: 3\n", Path("defs.yaml"))


def test_an_empty_file_is_nothing() -> None:
    assert read_yaml("", Path("job.yaml")) is None


def test_an_object_of_json_has_each_key_once() -> None:
    assert json.loads('{"a": {"b": 1}, "b": 2}', object_pairs_hook=each_key_once) == {"a": {"b": 1}, "b": 2}
    with pytest.raises(DoubledKeyError, match="'b' stands twice"):
        json.loads('{"a": {"b": 1, "b": 2}}', object_pairs_hook=each_key_once)


def test_a_schema_of_avro_says_nothing_twice() -> None:
    doubled = '{"type": "record", "name": "a", "fields": [{"name": "x", "type": "int"}], "fields": []}'
    with pytest.raises(RejectedError, match="broken: 'fields' stands twice in one object"):
        make_whole(doubled, {}, label="the schema", field="schema")
