"""A command that a message or a document names exists."""

import re
from pathlib import Path

import click
import pytest

from gobblin_assets.cli import main

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"(?:`|bin/|: )gobblin-assets((?: [a-z][a-z|-]*)+)")
TEXTS = [*ROOT.glob("gobblin_assets/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]


def find_unknown(words: list[str]) -> str | None:
    """The first of the words that names no command where it stands; options and arguments follow the last command."""
    group: click.Command | None = main
    context = click.Context(main)
    for place, word in enumerate(words):
        if not isinstance(group, click.Group):
            return None
        names = group.list_commands(context)
        if not all(each in names for each in word.split("|")):
            return word
        # Only what is asked further is imported.
        group = group.get_command(context, word.split("|")[0]) if place + 1 < len(words) else None
    return None


@pytest.mark.parametrize(
    ("words", "unknown"),
    [(["commit", "resume|abandon"], None), (["sink", "adopt", "it"], None), (["recover"], "recover")],
)
def test_a_command_that_does_not_exist_is_found(words: list[str], unknown: str | None) -> None:
    assert find_unknown(words) == unknown


def test_commands_that_are_named_exist() -> None:
    named = {
        (str(path.relative_to(ROOT)), match)
        for path in TEXTS
        for match in _NAMED.findall(" ".join(path.read_text(encoding="utf-8").split()))
    }
    assert len(named) > 50
    found = [f"{name}:{words}" for name, words in sorted(named) if find_unknown(words.split()) is not None]
    assert found == [], "\n".join(found)
