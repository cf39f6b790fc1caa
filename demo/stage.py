"""How the demos are presented: acts with their durations, commands as if typed, and a run that is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console

from gobblin_assets.cli import main as gobblin_assets

CHILD_WAIT_S_MAX: Final = 300

# A terminal has a width, or COLUMNS gives one; a pipe has none.
_WIDTH: Final = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 120

console: Final = Console(highlight=False, width=_WIDTH)


@contextmanager
def act(title: str) -> Iterator[None]:
    console.rule(f"[bold]{title}", align="left")
    begun = time.monotonic()
    yield
    console.print(f"[dim]{time.monotonic() - begun:.1f} s[/dim]\n")


def command(*arguments: str) -> None:
    """Run a command of the command line in this process, as if it had been typed."""
    console.print(f"[cyan]$ gobblin-assets {' '.join(arguments)}[/cyan]")
    code = gobblin_assets.main(args=list(arguments), prog_name="gobblin-assets", standalone_mode=False)
    if code:
        raise SystemExit(f"The command failed with exit code {code}.")


def killed_command(failpoint: str, clone: Path, *arguments: str) -> None:
    """Run a command in its own process, which kills itself at the failpoint; SystemExit if it does not."""
    console.print(f"[cyan]$ GOBBLIN_FAILPOINT={failpoint} gobblin-assets {' '.join(arguments)}[/cyan]")
    code = subprocess.run(  # noqa: S603  our own command, as separate words
        [sys.executable, "-m", "gobblin_assets.cli", *arguments],
        env={**os.environ, "GOBBLIN_FAILPOINT": failpoint, "PYTHONPATH": _search_path(clone)},
        timeout=CHILD_WAIT_S_MAX,
        check=False,
    ).returncode
    if code != -signal.SIGKILL:
        raise SystemExit(f"The run should have been killed; it ended with {code}.")
    console.print(f"[red]killed: exit code {code} (SIGKILL)[/red]")


def say_counts(where: str, counts: Mapping[str, int]) -> None:
    console.print(f"{where}: {join_counts(counts)}")


def join_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {what}" for what, count in counts.items())


def list_visible(folder: Path, pattern: str = "*.parquet") -> set[str]:
    """Files that a reader of the directory would read."""
    return {
        str(path)
        for path in folder.rglob(pattern)
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    }


def _search_path(clone: Path) -> str:
    return os.pathsep.join(filter(None, (str(clone), os.environ.get("PYTHONPATH"))))
