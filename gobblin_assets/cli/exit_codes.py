"""Exit codes of commands other than 0, which means success."""

from typing import Final

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2
"""The input was refused, and nothing was begun; click uses the same code."""
EXIT_SKIPPED: Final = 3
"""Nothing failed, but a dataset was left out because another process works on it."""
EXIT_INTERRUPTED: Final = 130
"""Interrupted: the code that a shell gives for SIGINT."""
