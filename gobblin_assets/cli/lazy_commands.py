"""Groups whose commands are imported when they are called, and the examples of a command's help.

Dagster, pandas and PySpark take seconds to import, and most commands need none of them. So the short help of a command
is written twice, in the command and for ``--help`` of its group; a test compares both.
"""

import difflib
import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

import click
from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """The command ``attribute`` of ``module``; ``help`` is its first sentence."""

    module: str
    attribute: str
    help: str

    def load(self) -> click.Command:
        with _no_collections():
            is_new = self.module not in sys.modules
            found = getattr(import_module(self.module), self.attribute)
            if is_new:
                # Modules stay to the end: the first search after an import would look at all of their objects.
                gc.freeze()
        if not isinstance(found, click.Command):
            raise TypeError(f"{self.module}.{self.attribute} is not a command")
        return found


@contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no garbage: modules stay, and the search takes a tenth of the time of an import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_NO_COMMANDS: Final[Mapping[str, LazyCommand]] = MappingProxyType({})


class LazyGroup(click.Group):
    """A group of commands. ``lazy``: by name, shown in this order, before commands that are added in the ordinary way.

    Sentences are shown whole, where click would cut them.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, LazyCommand] = _NO_COMMANDS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self.lazy.get(cmd_name)
        return super().get_command(ctx, cmd_name) if found is None else found.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not ctx.resilient_parsing:
            close = difflib.get_close_matches(name, known, n=3)
            if close:
                ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(close)}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self._list_helps(ctx, limit=200))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, but without an import of each command: a shell asks at each press of the Tab key."""
        rows = self._list_helps(ctx, limit=45)
        names = [CompletionItem(name, help=said) for name, said in rows if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def _list_helps(self, ctx: click.Context, *, limit: int) -> list[tuple[str, str]]:
        rows = [(name, each.help) for name, each in self.lazy.items()]
        given = {name: super(LazyGroup, self).get_command(ctx, name) for name in super().list_commands(ctx)}
        return rows + [(name, each.get_short_help_str(limit=limit)) for name, each in given.items() if each is not None]


def example(words: str) -> str:
    """The epilog of a command: ``words`` are what follows ``gobblin-assets``. A test parses all of them."""
    # click folds no lines of a paragraph that begins with \b.
    return f"\b\nExample:\n  gobblin-assets {words}"
