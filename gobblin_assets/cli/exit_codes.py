"""What a command's exit code says: 0, it is done; otherwise one of these."""

from typing import Final

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
"""The input was refused, and nothing was begun; click's own for what it refuses."""
EXIT_SKIPPED: Final = 3
"""A dataset was left out because somebody else works on it."""
EXIT_INTERRUPTED: Final = 130
"""As a shell says it of SIGINT."""
