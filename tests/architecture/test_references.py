"""What docstrings and comments refer to is there: ``run.job_kind``, ``steps.CommitStep``, ``segment.COLUMNS``."""

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from functools import cache

import pytest

from tests.architecture.sources import names_of, parse_package, read_package

_REFERENCE = re.compile(r"``([A-Za-z_]\w*(?:\.\w+)+)(?:\([^`]*\))?``")

_OPTION = "an option of a job file"
_VARIABLE = "a field of a parameter or a variable, whose type the reader sees beside it"
# What begins like one of our modules and is something else.
OTHERS = {
    "dagster.yaml": "a file of Dagster's",
    "extract.table.type": "an option of Gobblin's",
    "gobblin_assets.copy_converters": "a group of entry points",
    "gobblin_assets.dataset_finders": "a group of entry points",
    "gobblin_assets.destination_kinds": "the same",
    "gobblin_assets.event_sinks": "the same",
    "gobblin_assets.job_programs": "the same",
    "gobblin_assets.file_systems": "the same",
    "gobblin_assets.jdbc_databases": "the same",
    "gobblin_assets.job_kinds": "the same",
    "gobblin_assets.object_stores": "the same",
    "gobblin_assets.source_trees": "the same",
    "gobblin_assets.steps": "the same",
    "interval.low": _VARIABLE,
    "operations.holder": _VARIABLE,
    "quality.dead_letter_count_max": _OPTION,
    "quality.dead_letter_fraction_max": _OPTION,
    "quality.lag_max": _OPTION,
    "quality.quarantine_fraction_max": _OPTION,
    "quality.samples": _OPTION,
    "schema.table": "how a table is named",
    "settings.remote": _VARIABLE,
    "running.lock": "a file of the embedded server",
    "source.type": _OPTION,
    "spec.name": _VARIABLE,
    "split.max_multi_work_units": _OPTION,
}


def find_references(text: str) -> list[str]:
    return _REFERENCE.findall(text)


@cache
def list_members() -> Mapping[str, frozenset[str]]:
    """What can stand behind a dot, by the full name of what stands before it: modules and classes."""
    found: dict[str, set[str]] = {}
    for module, tree in parse_package().items():
        parent, _, name = module.rpartition(".")
        found.setdefault(parent, set()).add(name)
        members = found.setdefault(module, set())
        for statement in tree.body:
            members.update(names_of(statement))
            if isinstance(statement, ast.ClassDef):
                found[f"{module}.{statement.name}"] = {name for inner in statement.body for name in names_of(inner)}
    return {place: frozenset(names) for place, names in found.items()}


@cache
def list_module_names() -> frozenset[str]:
    return frozenset(module.rpartition(".")[2] for module in read_package())


def begins_with_ours(reference: str) -> bool:
    return reference.partition(".")[0] in list_module_names()


def resolves(reference: str) -> bool:
    """From anywhere in the package: a reference may leave out the packages that lead to its module."""
    first, *rest = reference.split(".")
    places = {module for module in parse_package() if module == first or module.endswith(f".{first}")}
    for name in rest:
        places = {f"{place}.{name}" for place in places if name in list_members().get(place, ())}
    return bool(places)


def test_references_lead_somewhere() -> None:
    broken: dict[str, set[str]] = defaultdict(set)
    for module, text in read_package().items():
        for reference in find_references(text):
            if begins_with_ours(reference) and not resolves(reference):
                broken[reference].add(module)
    assert {reference: modules for reference, modules in broken.items() if reference not in OTHERS} == {}
    assert OTHERS.keys() - broken.keys() == set(), "nobody says it any more: take it out"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see ``run.job_kind``", True),
        ("see ``commit.steps.CommitStep.verify``", True),
        ("as ``gobblin_assets.commit.steps.undone_by_hand()``", True),
        ("see ``run.no_such_module``", False),
        ("see ``commit.steps.CommitStep.no_such_method``", False),
    ],
)
def test_a_reference_that_leads_nowhere_would_be_seen(text: str, found: bool) -> None:
    (reference,) = find_references(text)
    assert begins_with_ours(reference)
    assert resolves(reference) is found
