"""The commands of a person beside workers, in processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_COMMAND_S_MAX: Final = 120.0


@dataclass(frozen=True)
class Commands:
    """``folder`` gets what they say. ``variables``: how they reach the log, the source and the destination now."""

    folder: Path
    variables: Callable[[], Mapping[str, str]]

    def run(self, *arguments: str) -> bool:
        """Whether the command has done its work."""
        command = [sys.executable, "-m", "gobblin_assets.cli", *arguments]
        environment = {**os.environ, **self.variables(), "GOBBLIN_HOME": str(self.folder / "person")}
        with (self.folder / "person.txt").open("ab", buffering=0) as said:
            said.write(f"$ {' '.join(arguments)}\n".encode())
            try:
                return not subprocess.run(
                    command, env=environment, stdout=said, stderr=said, timeout=_COMMAND_S_MAX, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return False
