"""What the plans of one run share: its budget, and how much the log remembers of each dataset's file sets."""

from dataclasses import dataclass, field

from gobblin_assets.jobs.copy.budgets import RunBudget
from gobblin_assets.jobs.copy.memory import UNPACKED_SETS_MAX, MemoryRoom
from gobblin_assets.jobs.copy.unchanged import DIRECTORIES_MAX


@dataclass(frozen=True, slots=True)
class SharedPlanning:
    """``budget``: for all file sets of the run. ``directories`` and ``unpacked``: of each dataset."""

    budget: RunBudget
    directories: MemoryRoom = field(default_factory=lambda: MemoryRoom(DIRECTORIES_MAX))
    unpacked: MemoryRoom = field(default_factory=lambda: MemoryRoom(UNPACKED_SETS_MAX))
