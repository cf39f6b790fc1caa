"""The processes of the demo: the service, and executors, which are killed with all that they started."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from demo.server_process import run_guarded, serve
from demo.service.machines import Machine, as_typed
from demo.service.places import DEMO, TOPOLOGY, child_environment
from demo.stage import console

_CLAIM_TTL_S: Final = 5
_PROGRAM: Final = (sys.executable, "-m", "gobblin_assets.cli")


@contextmanager
def serving(port: int | None) -> Iterator[int]:
    """The service on a port; None: on a free one."""

    def command(chosen: int) -> list[str]:
        return [*_PROGRAM, *serve_words(chosen)]

    if port is not None:
        console.print(f"[cyan]$ gobblin-assets {as_typed(serve_words(port))}[/cyan]")
        with run_guarded(command(port), DEMO / "service.log", child_environment()):
            yield port
        return
    with serve(command, DEMO / "service.log", child_environment()) as found:
        console.print(f"[cyan]$ gobblin-assets {as_typed(serve_words(found))}[/cyan]")
        yield found


def serve_words(port: int) -> list[str]:
    return ["service", "serve", "--topology", str(TOPOLOGY), "--port", str(port), "--no-auth"]


def make_executor(name: str, *options: str, failpoint: str = "", database_url: str = "") -> Machine:
    """The executor of a name, of the technology ``process``. ``database_url``: of its log; empty: the home's."""
    words = ["executor", "serve", "--name", name, "--claim-ttl", str(_CLAIM_TTL_S), *options]
    more = {"GOBBLIN_FAILPOINT": failpoint, "GOBBLIN_DATABASE_URL": database_url}
    given = {variable: value for variable, value in more.items() if value}
    return make_machine(f"{name}-failing" if failpoint else name, words, given)


def make_machine(name: str, words: Sequence[str], more: Mapping[str, str] | None = None) -> Machine:
    """A machine that runs a command of the command line. ``more``: variables that its command is shown with."""
    return Machine(name, _PROGRAM, words, child_environment(), more or {}, DEMO)
