"""What the plans of one run share: budget, what the log remembers of file sets, and what was looked at."""

from dataclasses import dataclass, field

from gobblin_assets.jobs.copy.budgets import RunBudget
from gobblin_assets.jobs.copy.destination_names import DestinationNames
from gobblin_assets.jobs.copy.losses import PLACES_MAX
from gobblin_assets.jobs.copy.memory import UNPACKED_SETS_MAX, MemoryRoom
from gobblin_assets.jobs.copy.target_tree import WayToSets
from gobblin_assets.jobs.copy.unchanged import DIRECTORIES_MAX


@dataclass(frozen=True, slots=True)
class SharedPlanning:
    """``budget``: for all file sets of the run. ``directories``, ``unpacked`` and ``places``: of each
    dataset.

    ``names``: those of all datasets. ``mtime_precision_ns``: the destination's.
    """

    budget: RunBudget
    names: DestinationNames
    mtime_precision_ns: int
    directories: MemoryRoom = field(default_factory=lambda: MemoryRoom(DIRECTORIES_MAX))
    unpacked: MemoryRoom = field(default_factory=lambda: MemoryRoom(UNPACKED_SETS_MAX))
    places: MemoryRoom = field(default_factory=lambda: MemoryRoom(PLACES_MAX))
    ways: WayToSets = field(default_factory=WayToSets)
