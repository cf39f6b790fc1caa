"""Budgets: how much one run may copy, and the order in which files go first where that is not everything."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.model.wording import count_of

PERCENT: Final = 100


@dataclass(frozen=True, slots=True)
class CopyBudget:
    """A limit of what one run may copy; None: everything."""

    files_max: int | None = None
    bytes_max: int | None = None

    @property
    def is_bounded(self) -> bool:
        return self.files_max is not None or self.bytes_max is not None


@dataclass(slots=True)
class RunBudget:
    """A budget, and what is taken of it. Items are taken in their order until it is used up.

    The last one may be larger than what is left. So no item waits because it is large, or because smaller ones come
    before it in every run: it waits only while the more urgent ones alone use the budget up.
    """

    budget: CopyBudget
    files: int = 0
    size_bytes: int = 0

    def list_used_up(self) -> list[str]:
        """The options that leave no room for another item."""
        found = (
            ("files_per_run_max", self.budget.files_max, self.files),
            ("bytes_per_run_max", self.budget.bytes_max, self.size_bytes),
        )
        return [name for name, most, taken in found if most is not None and taken >= most]

    @property
    def taken(self) -> tuple[int, int]:
        """Files and bytes."""
        return self.files, self.size_bytes

    @taken.setter
    def taken(self, taken: tuple[int, int]) -> None:
        self.files, self.size_bytes = taken

    def take(self, files: int, size_bytes: int) -> None:
        self.files += files
        self.size_bytes += size_bytes


@dataclass(frozen=True, slots=True)
class Tiers:
    """The order of files under a budget: those of the first glob, those of the second, and so on; then the others."""

    globs: tuple[str, ...] = ()
    _tier_of: Callable[[str], int] = field(default=lambda _path: 0, repr=False)

    def tier_of(self, path: str) -> int:
        """The tier of a path below the file set, from 0."""
        return self._tier_of(path)

    def name(self, tier: int) -> str:
        return f"of `{self.globs[tier]}`" if tier < len(self.globs) else "of no glob"


def parse_tiers(globs: Sequence[str]) -> Tiers:
    """RejectedError names the glob, such as ``go_first[0]``."""
    parsed = [parse_glob(text, field=f"go_first[{number}]") for number, text in enumerate(globs)]

    def tier_of(path: str) -> int:
        return next((tier for tier, glob in enumerate(parsed) if glob.matches(path)), len(parsed))

    return Tiers(tuple(globs), tier_of)


@dataclass(slots=True)
class Waiting:
    """Files and bytes that later runs copy, by tier.

    ``limits``: the options that left no room for them. ``removals``: files that are removed once none waits.
    """

    files: Counter[int] = field(default_factory=Counter)
    size_bytes: Counter[int] = field(default_factory=Counter)
    limits: set[str] = field(default_factory=set)
    removals: int = 0

    def add(self, tier: int, files: int, size_bytes: int, limits: Iterable[str] = ()) -> None:
        self.limits.update(limits)
        self.files[tier] += files
        self.size_bytes[tier] += size_bytes

    def describe(self, tiers: Tiers, priority: int) -> Iterator[str]:
        """A sentence for people, if anything waits. ``priority``: that of the file set."""
        if not self.files:
            return
        by_tier = ", ".join(f"{self.files[tier]:,} {tiers.name(tier)}" for tier in sorted(self.files))
        yield (
            f"{count_of(self.files.total(), 'file', 'files')} of {self.size_bytes.total():,} bytes left for later runs "
            f"({', '.join(sorted(self.limits))})"
            f"{f'; by go_first: {by_tier}' if tiers.globs else ''}{f'; priority {priority}' if priority else ''}"
            f"{f'; {self.removals:,} removals wait until they are copied' if self.removals else ''}"
        )


def read_share(text: str) -> float:
    """A percentage, such as "20%" or "0.5%". ValueError for anything else."""
    number = float(text.removesuffix("%"))
    if not text.endswith("%") or not 0 <= number <= PERCENT:
        raise ValueError(f"expected a share such as 20%, found {text!r}")
    return number
