"""What --help lists: each command with a whole sentence."""

from collections.abc import Iterator

import click
from click.testing import CliRunner

from gobblin_assets.cli import main


def list_groups(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield names
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from list_groups(command, (*names, name))


def test_no_list_of_commands_is_cut() -> None:
    groups = list(list_groups(main))
    shown = {names: CliRunner().invoke(main, [*names, "--help"], terminal_width=80).output for names in groups}
    assert {names: text for names, text in shown.items() if "..." in text.partition("Commands:")[2]} == {}
    assert len(groups) > 5
