"""What the log remembers of a dataset's file sets, each since its last complete copy, and how much of it."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gobblin_assets.commit.named_repair import EVERY_NAME, UNLOGGED_FACT
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.datasets import FileSet
from gobblin_assets.jobs.copy.parsing import CopyDataset
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.run.job_kind import PlanRequest

UNPACKED_FACT: Final = "unpacked"
"""Key in a dataset's facts: by partition, the digest of the options by which its archives were unpacked."""

UNPACKED_SETS_MAX: Final = 10_000
"""Of a dataset. The log writes all of them with each publication, some 40 bytes each."""


@dataclass(slots=True)
class MemoryRoom:
    """How much is remembered of each dataset, as far as one run has planned it."""

    amount_max: int
    _amounts: dict[DatasetUrn, dict[str, int]] = field(default_factory=dict)

    def take(self, urn: DatasetUrn, key: str, amount: int, known: Mapping[str, int]) -> bool:
        """Whether there is room for ``amount`` of the file set ``key``. ``known``: what is remembered, by file set."""
        amounts = self._amounts.setdefault(urn, dict(known))
        amounts[key] = 0
        if sum(amounts.values()) + amount > self.amount_max:
            return False
        amounts[key] = amount
        return True


@dataclass(frozen=True, slots=True)
class UnloggedNames:
    """Names of a file set at which something stands that the log does not know (``commit.named_repair``).

    ``root``: full path of the file set at the destination.
    """

    request: PlanRequest
    file_set: FileSet
    root: str

    def read(self) -> Callable[[str], bool]:
        """Whether a path below the file set is one of them."""
        names = self._names
        if EVERY_NAME in names:
            return lambda _path: True
        return lambda path: bool(names) and f"{self.root}/{path}" in names

    @property
    def is_empty(self) -> bool:
        return not self._names

    def write(self, plan: CopyPlan) -> Mapping[str, object]:
        """The facts of the file set once the plan is published: it has copied them, unless files wait."""
        return {UNLOGGED_FACT: None} if self._names and not plan.waiting.files else {}

    @property
    def _names(self) -> frozenset[str]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(UNLOGGED_FACT, {})  # type: ignore[assignment]  # as it was written
        return frozenset(found.get(self.file_set.key) or ())


@dataclass(frozen=True, slots=True)
class UnpackedMemory:
    """Whether archives that stand unpacked were unpacked by the options of now, for one plan of one file set.

    What stands tells by its times that the archive has not changed; by which options it was chosen and converted, only
    the log knows.
    """

    request: PlanRequest
    dataset: CopyDataset
    file_set: FileSet
    room: MemoryRoom

    @property
    def agrees(self) -> bool:
        return self.request.mode is not Mode.REFRESH and self._known.get(self.file_set.key) == self._options

    def write(self, plan: CopyPlan, *, unpacks: bool) -> Mapping[str, object]:
        """The facts of the file set once the plan is published. Where files wait, only what holds already."""
        if unpacks and (self.agrees or not plan.waiting.files):
            known = dict.fromkeys(self._known, 1)
            if self.room.take(self.request.urn, self.file_set.key, 1, known):
                return {UNPACKED_FACT: self._options}
        return {UNPACKED_FACT: None} if self.file_set.key in self._known else {}

    @property
    def _known(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.request.state.source_facts.get(UNPACKED_FACT, {})  # type: ignore[assignment]  # as it was written
        return found

    @property
    def _options(self) -> str:
        spec, found = self.dataset.spec, self.dataset.found
        chosen = (spec.include, spec.exclude, spec.filters, spec.links, spec.preserve, spec.deletes, spec.converters)
        places = (found.source, found.destination, self.file_set.directory)
        return hashlib.sha256(json.dumps([chosen, places]).encode()).hexdigest()[:12]
