"""A command that a message or a document names exists, and takes the options that are named with it."""

import re
from pathlib import Path

import click
import pytest

from gobblin_assets.cli import main

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"(?:`|bin/|: )gobblin-assets((?: [a-z][a-z|-]*)+)")
_WITH_OPTIONS = re.compile(r"gobblin-assets((?: [a-z][a-z-]*)+)([^`\n#|]*)")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
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


def find_unknown_options(words: list[str], options: list[str]) -> list[str]:
    """The options that neither the command of the words nor a group on the way takes."""
    command: click.Command = main
    context = click.Context(main)
    known = {"--help"}
    for word in words:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            break
        command = found
        known |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    # The command passes its arguments on to another program.
    return [] if words[0] == "dagster" else [each for each in options if each not in known]


def test_an_option_that_a_command_does_not_take_is_found() -> None:
    assert find_unknown_options(["commit", "abandon"], ["--reason", "--why"]) == ["--why"]


def test_options_that_are_named_with_a_command_exist() -> None:
    named = {
        (str(path.relative_to(ROOT)), words, tuple(_OPTION.findall(rest)))
        for path in TEXTS
        if path.suffix == ".md"
        for words, rest in _WITH_OPTIONS.findall(path.read_text(encoding="utf-8"))
    }
    assert len([each for *_, options in named for each in options]) > 40
    found = [
        f"{name}: {words} {unknown}"
        for name, words, options in sorted(named)
        for unknown in find_unknown_options(words.split(), list(options))
    ]
    assert found == [], "\n".join(found)
