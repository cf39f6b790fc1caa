"""--help shows each command's own text, though commands are imported late."""

import click
import pytest

from gobblin_assets.cli import main
from gobblin_assets.cli.lazy_commands import LazyGroup
from gobblin_assets.cli.sequences import commit


@pytest.mark.parametrize("group", [main, commit], ids=["main", "commit"])
def test_what_help_says_of_a_command_is_what_the_command_says(group: click.Group) -> None:
    assert isinstance(group, LazyGroup)
    assert group.lazy
    for name, lazy in group.lazy.items():
        found = lazy.load()
        assert found.name == name
        assert lazy.help == found.get_short_help_str(limit=500)
