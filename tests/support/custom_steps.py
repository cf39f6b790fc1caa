"""Kinds of steps as a user adds them: ``Register`` makes a directory, ``Enter`` an entry in a catalogue in memory."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from gobblin_assets.commit import step_kinds, step_world
from gobblin_assets.commit.step_kinds import JsonCodec, register_step
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    PublishedStepFile,
    StepKind,
    StepVerdict,
    UndoOutcome,
    undone_by_hand,
)
from gobblin_assets.model.files import FileIdentity


@dataclass(frozen=True, slots=True)
class Register(CommitStep):
    """``catalog`` is a directory; a table is registered when it holds a directory of the table's name."""

    catalog: str
    table: str

    @property
    def kind(self) -> str:
        return "tests.register"

    @property
    def path(self) -> str:
        return f"{self.catalog}/{self.table}"

    def verify(self, world: StepWorld) -> StepVerdict:
        return StepVerdict.DONE if world.fs.is_directory(self.path) else StepVerdict.DO

    def prepare(self, world: StepWorld) -> None:
        world.make_directories(self.catalog)

    def execute(self, world: StepWorld) -> None:
        world.fs.make_directories(self.path)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        del captured
        if not world.fs.is_directory(self.path):
            return UndoOutcome.NEVER_HAPPENED
        return UndoOutcome.UNDONE if world.fs.remove_empty_directory(self.path) else UndoOutcome.STRANGER

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        del captured
        return (self.catalog,)


@dataclass
class Catalogue:
    """Entries by name, with the file that each one names; ``opened`` and ``closed`` count its users."""

    entries: dict[str, str] = field(default_factory=dict)
    opened: int = 0
    closed: int = 0


CATALOGUES: dict[str, Catalogue] = {}


@contextmanager
def open_catalogue(name: str) -> Iterator[Catalogue]:
    found = CATALOGUES.setdefault(name, Catalogue())
    found.opened += 1
    try:
        yield found
    finally:
        found.closed += 1


@dataclass(frozen=True, slots=True)
class Enter(CommitStep):
    """Enters an existing file into a catalogue. Nothing takes an entry out again."""

    catalogue: str
    path: str
    identity: FileIdentity
    row_count: int

    @property
    def kind(self) -> str:
        return "tests.enter"

    def verify(self, world: StepWorld) -> StepVerdict:
        entered = self.path in world.get(Catalogue, self.catalogue).entries
        return StepVerdict.DONE if entered else StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        world.get(Catalogue, self.catalogue).entries[self.path] = "entered"

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        del captured
        return undone_by_hand(self.verify(world))

    def published(self) -> Iterable[PublishedStepFile]:
        return ((self.path, self.identity, self.row_count),)


def _write_enter(step: Enter) -> dict[str, object]:
    i = step.identity
    return {
        "catalogue": step.catalogue, "path": step.path, "rows": step.row_count,
        "identity": [i.size_bytes, i.inode, i.mtime_ns, i.tag],
    }  # fmt: skip


REGISTER = StepKind(
    "tests.register",
    JsonCodec(
        write=lambda step: {"catalog": step.catalog, "table": step.table},
        read=lambda data: Register(data["catalog"], data["table"]),
    ),
)
ENTER = StepKind(
    "tests.enter",
    JsonCodec(
        write=_write_enter,
        read=lambda data: Enter(data["catalogue"], data["path"], FileIdentity(*data["identity"]), data["rows"]),
    ),
    irreversible="a catalogue forgets nothing",
    opens={Catalogue: open_catalogue},
)


@contextmanager
def registered(*kinds: StepKind) -> Iterator[None]:
    """In the block, the kinds are known to this process."""
    step_kinds._provider_of.cache_clear()
    known, opened = dict(step_kinds._kinds), dict(step_world._openers)
    for kind in kinds:
        register_step(kind)
    try:
        yield
    finally:
        step_kinds._provider_of.cache_clear()
        for registry, before in ((step_kinds._kinds, known), (step_world._openers, opened)):
            registry.clear()  # type: ignore[attr-defined]  # each is a dict
            registry.update(before)  # type: ignore[attr-defined]  # the same
