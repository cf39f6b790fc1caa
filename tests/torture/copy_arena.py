"""Where copies are tortured: the arena of small runners, with trees of files as sources and file sets as datasets."""

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gobblin_assets.spec.spec_model import DAY_S
from tests.support.copy_lake import CopyLake
from tests.support.lake import Lake
from tests.torture.copy_history import check_copies, check_last_change, describe_destination
from tests.torture.copy_source import SourceTree, TreeFeeder
from tests.torture.copy_watch import CopyWatch
from tests.torture.disturber import Strike
from tests.torture.feeder import Feeder
from tests.torture.observer import Remembered, Subject, Watch
from tests.torture.schedule import Action, Injection, RunnerPlan, plan_copy_runner
from tests.torture.small_arena import SmallArena
from tests.torture.stranger import LONGER
from tests.torture.tally import Tally

TRASH_KEEP_S: Final = 3.0
# A publication that fails waits for a person at once.
_TRIES_MAX: Final = 1
_HOURS: Final = ("2024/02/28/23", "2024/02/29/00", "2024/02/29/01", "2025/12/31/23")
_SETS: Final[Mapping[str, tuple[str, ...]]] = {"teams": ("",), "topics": _HOURS}
"""The directories of a dataset's file sets, by the directory that both sides' datasets have in common."""

_TAKEN: Final = re.compile(r"(\d+) of [\d,]+ files were there from an earlier attempt")
_SEEN: Final = "and kept its length and time"
_FOLDED: Final = "SELECT count(*) FROM gobblin.past_sequence WHERE state = 'DONE'"

# Slots are emptied and publications folded while the torture lasts; large files are copied in parts.
_OPTIONS: Final[Mapping[str, Any]] = {
    "datasets": (),
    "log": {"fold_keep": 15, "fold_min": 4, "fold_age_s": 0.0},
}
_DEFAULTS: Final[Mapping[str, Any]] = {"deletes": "ours", "split": {"bytes_min": 100_000}}
_JOBS: Final[Mapping[str, Mapping[str, Any]]] = {
    "teams": {
        "finder": {"pattern": "teams/*"},
        "defaults": {**_DEFAULTS, "skip_unchanged_directories": True},
        "verify": "reread",
    },
    "topics": {
        "finder": {"kind": "stream", "pattern": "topics/*/%Y/%m/%d/%H"},
        "defaults": {**_DEFAULTS, "files_per_run_max": 12, "go_first": ["_SUCCESS", "*.bin"]},
    },
}


class CopyArena(SmallArena):
    """Begins with the first files in the trees, nothing copied, and no runner."""

    kind = "copy"
    at_work_max = 6
    disturbed_every_s = 9.0
    names = (("teams/a", "teams/b c", "teams/Ü.x"), ("topics/clicks", "topics/orders", "topics/page views"))

    def __init__(self, home: Path, seed: str, tally: Tally, refused: str | None) -> None:
        self._trees: dict[Subject, tuple[SourceTree, Path]] = {}
        self._rude = random.Random(f"{seed}/stranger")
        super().__init__(home, f"{seed}/{self.kind}", tally, refused)

    def make_lake(self, **options: Any) -> Lake:
        (top,) = {urn.partition("/")[0] for urn in options["urns"]}
        made = CopyLake(trash_keep_s=TRASH_KEEP_S, publish_tries_max=_TRIES_MAX, **options)
        return replace(made, options={**_OPTIONS, **_JOBS[top]})

    def fill(self, lake: Lake, dice: random.Random) -> None:
        source = Path(lake.directory, "source")
        for number, urn in enumerate(lake.urns):
            top, _, place = urn.partition("/")
            aside = Path(lake.directory, "aside", str(number))
            aside.mkdir(parents=True)
            tree = SourceTree(source / urn, place, aside, _SETS[top], dice)
            self._trees[Subject(lake.job_name, urn)] = (tree, Path(lake.root))

    def open_feeder(self, dice: random.Random) -> Feeder:
        return TreeFeeder([tree for tree, _root in self._trees.values()], dice)

    def acts(self) -> Mapping[Injection, Strike]:
        return {Injection.FILES_REWRITTEN: self._rewrite}

    def plan_runner(self, seed: str, number: int) -> RunnerPlan:
        return plan_copy_runner(seed, number, lakes=len(self.names), datasets=len(self.names[0]))

    def plan_calm(self, action: Action, lake: int) -> RunnerPlan:
        """A run that finds nothing new publishes nothing."""
        return replace(super().plan_calm(action, lake), news_only=True)

    def watch(self) -> Watch:
        return CopyWatch(self._trees, self.tally)

    def judge(self, seen: Remembered) -> None:
        worlds = [replace(lake, trash_keep_s=DAY_S).open_world() for lake in self.lakes if isinstance(lake, CopyLake)]
        destinations = [describe_destination(world) for world in worlds]
        check_copies(self.victim.connect, destinations, seen, self.tally)
        for destination in destinations:
            trees = [self._trees[subject][0] for subject in destination.subjects]
            check_last_change(destination, trees, self.tally)
            destination.world.close()
        self._count_files()

    def _rewrite(self, lasts_s: float) -> bool:
        tree, _root = self._rude.choice(list(self._trees.values()))
        self.tally.add("files rewritten in place", tree.rewrite(LONGER * lasts_s))
        return True

    def _count_files(self) -> None:
        versions = (len(each) for tree, _root in self._trees.values() for each in tree.history.values())
        self.tally.add("versions of files at the sources", sum(versions))
        logs = "".join(path.read_text(encoding="utf-8", errors="replace") for path in self.runners.logs.glob("*.log"))
        self.tally.add("files taken from an earlier attempt", sum(map(int, _TAKEN.findall(logs))))
        self.tally.add("rewritten files that a copy saw", logs.count(_SEEN))
        with self.victim.connect() as connection:
            (folded,) = connection.execute(_FOLDED).fetchone() or (0,)
            self.tally.add("sequences folded into others", int(str(folded)))
