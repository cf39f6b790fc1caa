"""The document of figures: measured tables take the place of older ones, and what a person wrote stays."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import MACHINE_TITLE
from benchmarks.tables import Table

_NEW = """# Figures

## The laboratory book

Each figure is the median of {runs} runs, with the smallest and the largest beside it. Nothing else should use the
machine during the run: its load average was {before} before and {after} after.

## All tables
"""
_HEADING = re.compile(r"^#{1,3} .*$", re.MULTILINE)
_RUNS = re.compile(r"the\s+median\s+of\s+\d+\s+runs")
_LOAD = re.compile(r"its\s+load\s+average\s+was\s+\S+\s+before\s+and\s+\S+\s+after")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of a run of measures: ``runs`` of each, and the load average ``before`` and ``after``."""

    runs: int
    before: str
    after: str


def replace_tables(document: str, tables: Sequence[Table]) -> str:
    """The document with the tables, each in place of the section of its title, or behind all others."""
    for table in tables:
        document = _replace_section(document, f"### {table.title}", table.write())
    return document


def replace_conditions(document: str, conditions: Conditions) -> str:
    """The document with the conditions in its laboratory book, wherever the lines of the sentences break."""
    before, heading, book = document.partition("## The laboratory book\n")
    book = _RUNS.sub(f"the median of {conditions.runs} runs", book, count=1)
    load = f"its load average was {conditions.before} before and {conditions.after} after"
    return before + heading + _LOAD.sub(load, book, count=1)


def write_document(path: Path, tables: Sequence[Table], conditions: Conditions, *, whole: bool) -> None:
    """Bring the document at the path up to date, or begin it. ``whole``: all measures were taken.

    A part of the measures leaves the facts about the machine as they are: the other tables were measured there.
    """
    if path.exists():
        document = path.read_text(encoding="utf-8")
        document = replace_conditions(document, conditions) if whole else document
        tables = [table for table in tables if whole or table.title != MACHINE_TITLE]
    else:
        document = _NEW.format(runs=conditions.runs, before=conditions.before, after=conditions.after)
    path.write_text(replace_tables(document, tables), encoding="utf-8")


def _replace_section(document: str, heading: str, section: str) -> str:
    found = next((each for each in _HEADING.finditer(document) if each.group() == heading), None)
    if found is None:
        return f"{document.rstrip()}\n\n{section}"
    following = _HEADING.search(document, found.end())
    rest = f"\n{document[following.start() :]}" if following is not None else ""
    return document[: found.start()] + section + rest
