"""The help of each command has an example, and the command takes it."""

import shlex
from collections.abc import Iterator

import click
import pytest

from gobblin_assets.cli import main

_BEGIN = "\b\nExample:\n  gobblin-assets "


def list_commands(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from list_commands(found, *path, name)
        else:
            yield (*path, name), found


@pytest.mark.parametrize(
    ("path", "command"), [pytest.param(path, found, id="-".join(path)) for path, found in list_commands(main)]
)
def test_an_example_is_what_the_command_takes(path: tuple[str, ...], command: click.Command) -> None:
    assert command.epilog is not None
    assert command.epilog.startswith(_BEGIN)
    words = shlex.split(command.epilog.removeprefix(_BEGIN))
    assert tuple(words[: len(path)]) == path
    with command.make_context(path[-1], words[len(path) :]) as context:
        assert not context.args
