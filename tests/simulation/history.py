"""The checker: what a reader may expect of the published datasets, at every moment and in the end.

It knows nothing of the code under test. It looks at the database's rows and the disk's files: a sequence's files are
in directories with its id, and each file lists the rows of its source that it holds.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from gobblin_assets.commit.destination import IDENTITY_NAME
from gobblin_assets.commit.segment import decode_segment
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import DatasetId, KeyId, SequenceId, WorkingState
from gobblin_assets.run.run_values import RunReport
from tests.simulation.file_system import SimDisk, SimFileSystem
from tests.simulation.rows import DatasetRow, SequenceRow
from tests.simulation.world import ROOT, World

Rows = Counter[tuple[str, int]]

_STAGING = "/.staging/"
_MARKERS = "/.markers/"
_OPEN = (SequenceState.BUILDING, SequenceState.PREPARED, SequenceState.BLOCKED, SequenceState.ABANDONING)


@dataclass
class Checker:
    """Remembers what it saw, so that an acknowledged row that is taken back is noticed."""

    versions: dict[DatasetId, int] = field(default_factory=dict)
    watermarks: dict[KeyId, int] = field(default_factory=dict)
    done: frozenset[SequenceId] = frozenset()

    def copy(self) -> Self:
        return replace(self, versions=dict(self.versions), watermarks=dict(self.watermarks))

    def fingerprint(self) -> object:
        return (tuple(sorted(self.versions.items())), tuple(sorted(self.watermarks.items())), len(self.done))

    def look(self, world: World) -> None:
        """At any moment, a reader sees whole publications, each row once, and nothing goes back."""
        done = frozenset(i for i, row in world.db.sequences.items() if row.state is SequenceState.DONE)
        done |= {i for i, row in world.db.past_sequences.items() if row.state is SequenceState.DONE}
        assert done >= self.done, "a finished publication is not finished any more"
        self.done = done
        self._look_at_watermarks(world)
        for dataset in world.db.datasets.values():
            self._look_at_versions(world, dataset)
        survivor = world.disk.copy()
        survivor.power_cut()
        self.look_at_files(world, world.disk, "")
        self.look_at_files(world, survivor, " after a power cut")
        unknown = [str(i) for i in world.events if SequenceId(i) not in done]
        assert not unknown, f"Dagster was told of what is not published: {unknown}"

    def look_at_files(self, world: World, disk: SimDisk, when: str) -> None:
        files = _read(self.contents_of(world, disk))
        for dataset in world.db.datasets.values():
            self._look_at_rows(world, dataset, list_active(world, dataset), files, when)

    def contents_of(self, world: World, disk: SimDisk) -> Mapping[str, bytes]:
        """All files below the destination, except the one that identifies it."""
        del world
        paths = [stat.path for stat in SimFileSystem(disk).list_files(ROOT)]
        return {path: disk.read(path) for path in paths if not path.endswith(IDENTITY_NAME)}

    def acknowledge(self, world: World, report: RunReport | None) -> None:
        """Publications that a run reports are published, and a run that calls itself good did what it was asked for."""
        if report is None:
            return
        for dataset in report.datasets:
            if dataset.publication is not None:
                sequence_id = dataset.publication.sequence_id
                row = world.db.sequences.get(sequence_id) or world.db.past_sequences[sequence_id]
                assert row.state is SequenceState.DONE, f"{dataset.urn} was reported, but is {row.state}"
        called_bad = {dataset.urn for dataset in report.failed}
        undone = [dataset.urn for dataset in report.datasets if dataset.publication is None]
        assert called_bad.issuperset(undone), f"a run calls itself good, and did nothing to {undone}"
        assert (report.state is WorkingState.FAILED) == bool(called_bad), f"a run that left out {called_bad} ended well"

    def check_rest(self, world: World) -> None:
        """After everything has come to rest: source and sink are equal, and nothing is left over."""
        for row in world.db.sequences.values():
            assert row.state not in _OPEN, f"a sequence stays {row.state}: {row.last_error}"
        self.check_files_at_rest(world)
        silent = [str(i) for i in self.done if not world.events[i]]
        assert not silent, f"Dagster was never told of {silent}"

    def check_files_at_rest(self, world: World) -> None:
        active: set[str] = set()
        contents = self.contents_of(world, world.disk)
        files = _read(contents)
        for dataset in world.db.datasets.values():
            expected = Counter((dataset.urn, number) for number in range(world.source[dataset.urn]))
            found = _rows_of(list_active(world, dataset), files)
            assert found == expected, f"{dataset.urn} is not its source: {_difference(expected, found)}"
            active |= {name for row in list_active(world, dataset) for name in row.names}
        for path in contents:
            if _MARKERS not in path:
                assert _STAGING not in path, f"staging is left: {path}"
                assert {path, _sequence_of(path)} & active, f"a phantom file: {path}"

    def _look_at_watermarks(self, world: World) -> None:
        for key in world.db.keys.values():
            position = 0 if key.watermark is None else int(str(key.watermark))
            before = self.watermarks.get(key.key_id, 0)
            assert position >= before, f"the watermark of {key.name} went back from {before} to {position}"
            self.watermarks[key.key_id] = position

    def _look_at_versions(self, world: World, dataset: DatasetRow) -> None:
        done = _list_done(world, dataset)
        made = sorted(row.result_version or 0 for row in done)
        assert max(made, default=0) == dataset.version, f"{dataset.urn} has the versions {made}"
        counted = sum(row.publication_count for row in done)
        assert counted == dataset.version, (
            f"{dataset.urn} has {counted} publications, and its version {dataset.version}"
        )
        before = self.versions.get(dataset.dataset_id, 0)
        assert dataset.version >= before, f"the version of {dataset.urn} went back from {before} to {dataset.version}"
        self.versions[dataset.dataset_id] = dataset.version

    def _look_at_rows(
        self, world: World, dataset: DatasetRow, active: list["Active"], files: dict[str, Rows], when: str
    ) -> None:
        for row in active:
            held = _rows_of([row], files).total()
            assert held == row.row_count, f"a reader of {dataset.urn} finds {held} of {row.row_count} rows{when}"
        keys = [key for key in world.db.keys.values() if key.dataset_id == dataset.dataset_id]
        reached = max((self.watermarks[key.key_id] for key in keys), default=0)
        expected = Counter((str(dataset.urn), number) for number in range(reached))
        found = _rows_of(active, files)
        assert found == expected, f"{dataset.urn} up to its watermark {reached}{when}: {_difference(expected, found)}"


@dataclass(frozen=True)
class Active:
    """A finished sequence that no later one has replaced. ``names``: the id in the directories of its files; for a
    fold, the paths of its files.
    """

    sequence_id: SequenceId
    row_count: int
    names: frozenset[str]


def list_active(world: World, dataset: DatasetRow) -> list[Active]:
    """The sequences that a reader reads. The files of a fold never moved; only its segments list them."""
    active = []
    for row in _list_done(world, dataset):
        segments = [s for s in world.db.segments.values() if s.sequence_id == row.sequence_id and s.sealed]
        if any(segment.retired_by is not None for segment in segments):
            continue
        names = frozenset({row.sequence_id.hex})
        if row.folded_at is not None:
            steps = [step for segment in segments for step in decode_segment(segment.payload, segment.digest)]
            paths = [path for step in steps for path, _identity, _rows in step.published()]
            names = frozenset(paths)
        active.append(Active(row.sequence_id, row.row_count, names))
    return active


def _list_done(world: World, dataset: DatasetRow) -> list[SequenceRow]:
    return [
        row
        for row in world.db.sequences.values()
        if row.dataset_id == dataset.dataset_id and row.state is SequenceState.DONE
    ]


def _rows_of(active: list[Active], files: dict[str, Rows]) -> Rows:
    found: Rows = Counter()
    for row in active:
        for name in row.names:
            found.update(files.get(name, Counter()))
    return found


def _read(contents: Mapping[str, bytes]) -> dict[str, Rows]:
    """The rows in directories with a sequence's id, by that id and by their files' paths."""
    found: dict[str, Rows] = {}
    for path, content in contents.items():
        if _STAGING not in path and _MARKERS not in path:
            rows = [(str(urn), int(number)) for urn, number in json.loads(content)] if content else []
            found.setdefault(_sequence_of(path), Counter()).update(rows)
            found[path] = Counter(rows)
    return found


def _sequence_of(path: str) -> str:
    """``…/<sequence id>-<number>/<file>``"""
    return path.split("/")[-2].rpartition("-")[0]


def _difference(expected: Rows, found: Rows) -> str:
    return f"missing {sorted((expected - found).elements())}, too many {sorted((found - expected).elements())}"
