"""The port of a commit step: one effect of a sealed sequence, with a ``verify`` that says whether it has happened.

A step is a value. Any process can verify and execute a step any number of times, before and after a crash.
The protocol knows no kind of step: ``CommitStep`` is its interface, and ``StepKind`` says how the log stores it.
``step_kinds`` finds the kinds, which destinations and other packages have. The moves of watermarks
and the retirement of an earlier generation are no steps: the finishing transaction does both.

What a kind promises.

    verify    looks, changes nothing, and answers with a StepVerdict. It decides by identity whether the step is done,
              never by existence alone: another file may have that name.
    execute   is called only after ``verify`` answered DO or DROP_SOURCE, and after ``prepare``. It has one atomic
              effect, and never replaces or deletes what it did not make. The effect survives a power cut when
              ``execute`` returns, or once the directories that ``touches`` names are synced.
    undo      finds out by identity whether the effect is there, and takes it back by one atomic effect. From then on
              a paused process that calls ``execute`` late must have no effect. For a step that publishes staged files
              the capture ensures this, because the step's source is gone. Any other step must leave a mark of its own.

Steps of one segment are executed in their order and undone in the reverse order. Segments have no order, except that
each has the steps of one phase, and phases are executed one after another and undone in the reverse order. A step may
raise any family of ``errors``. Any other exception counts as a ``RetryableError`` of that step, and its text is not
kept, since it may hold a secret.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.repair import NamedRepair, UnsettledName
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.errors import ConflictError, RejectedError
from gobblin_assets.fs.objects import UploadId
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId

PublishedStepFile = tuple[str, FileIdentity, int]
"""Full path, identity and row count of a file that a step makes visible."""


class StepVerdict(StrEnum):
    """The four cases of a step, and a fifth, in which a rename left both names.

    LOST: the step is not done, and its source is gone. CONFLICT: something else is in the step's place.
    """

    DO = "do"
    DONE = "done"
    DROP_SOURCE = "drop_source"
    CONFLICT = "conflict"
    LOST = "lost"


class UndoOutcome(StrEnum):
    """The result of ``undo``. STRANGER: something else is in the place, and stays as it is."""

    UNDONE = "undone"
    NEVER_HAPPENED = "never_happened"
    STRANGER = "stranger"


@dataclass(frozen=True, slots=True)
class StepFault:
    """The reason why a step can't be done or undone, for a person: ``place`` and what was ``found`` there, as "is
    missing".

    ``hint``: sentences on what a person can do about it, whether the publication is then resumed or abandoned.
    ``is_repaired``: it can't be taken back as it was; a person decides what its name keeps.
    """

    place: str
    found: str
    hint: str = ""
    is_repaired: bool = False


@dataclass(frozen=True, slots=True)
class CapturedStaging:
    """The staging of a sequence that is being abandoned.

    ``directories`` maps each attempt's staging path to the fences under which it was captured, ``fence`` among them.
    A process that knows only the staging path finds nothing there any more. ``require_held`` asks the log, and raises
    FencedError if the sequence has another owner.
    """

    sequence_id: SequenceId
    fence: int
    directories: Mapping[str, frozenset[int]]
    require_held: Callable[[], None] = field(default=lambda: None, compare=False)

    def place_for(self, source: str) -> str:
        """The path, new with each fence, to which the file published from ``source`` is taken back.

        ConflictError for a path outside the sequence's staging.
        """
        for staging in self.directories:
            if source.startswith(f"{staging}/"):
                return _returned(staging, source, self.fence)
        raise ConflictError(f"{source} belongs to no attempt of this sequence", path=source)

    def place_of(self, staging: str) -> str:
        """The attempt's directory under this capture."""
        return captured_directory(staging, self.fence)

    def places_of(self, source: str) -> Iterator[str]:
        """The paths to which this abandonment and earlier ones may have taken the file back."""
        for staging, fences in self.directories.items():
            if source.startswith(f"{staging}/"):
                for fence in fences:
                    yield _returned(staging, source, fence)


class CommitStep(Protocol):
    """One step of a sequence: a value that can look at the world and change it once.

    A class with this protocol as its base inherits defaults that suit most kinds.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of its ``StepKind``."""
        ...

    @property
    def phase(self) -> int:
        """Steps of a lower phase are durable and verified before a step of a higher one is executed."""
        return 0

    @abstractmethod
    def verify(self, world: StepWorld) -> StepVerdict: ...

    @abstractmethod
    def execute(self, world: StepWorld) -> None: ...

    @abstractmethod
    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        """Take the effect back. A kind that is ``irreversible`` answers ``undone_by_hand(self.verify(world))``."""
        ...

    @property
    def is_independent(self) -> bool:
        """Whether it may be verified and executed while other steps of its segment are, by other threads."""
        return False

    def expects(self) -> Iterable[str]:
        """Files of the destination that ``verify`` looks up; where they are many, they are listed at once instead."""
        return ()

    def prepare(self, world: StepWorld) -> None:
        """Make what ``execute`` needs, such as a parent directory, unless it exists."""
        del world

    def published(self) -> Iterable[PublishedStepFile]:
        """The files that the step makes visible and that hold rows of the dataset.

        They are below the dataset's directory, under paths that are new with each sequence.
        """
        return ()

    @property
    def loaded_rows(self) -> int:
        """Rows of the dataset that the step makes visible, and that are in none of the files of ``published``."""
        return 0

    def touches(self, captured: CapturedStaging | None = None) -> Iterable[str]:
        """Directories of the destination whose entries ``execute`` changes; with ``captured``, those of ``undo`` too.

        They are synced also if the step was found done: the process that executed it may have died before syncing.
        """
        del captured
        return ()

    def uploads(self) -> Iterable[UploadId]:
        """Uploads to an object store that are used up once the step is done."""
        return ()

    def forbid(self, world: StepWorld) -> StepFault | None:
        """Before the decision to abandon is recorded: let no process execute the step from now on, or say why it is
        too late. For kinds that a process may execute although the staging was captured.
        """
        del world
        return None

    def find_unsettled(self, world: StepWorld) -> UnsettledName | None:
        """Of a kind at given names: the name if it can't be taken back as it is now. Changes nothing."""
        del world
        return None

    def settle(self, world: StepWorld, captured: CapturedStaging, repair: NamedRepair) -> None:
        """``undo`` of a kind at given names: what can't be taken back keeps what a person decided.

        ConflictError if a name changes meanwhile; RejectedError of kinds at other names.
        """
        del world, repair
        raise RejectedError(
            f"a step of the kind {self.kind!r} publishes at no given name",
            field="sequence",
            hint=f"`gobblin-assets commit abandon {captured.sequence_id}` takes it back.",
        )

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        """The fault for a person to look at, after ``verify`` answered LOST or CONFLICT, or ``undo`` STRANGER."""
        del world
        place = next((path for path, _identity, _rows in self.published()), f"a step of the kind {self.kind}")
        lost = verdict is StepVerdict.LOST
        return StepFault(place, "is neither staged nor published" if lost else "is not what was staged")


def undone_by_hand(verdict: StepVerdict) -> UndoOutcome:
    """The answer of ``undo`` of an irreversible kind: the effect stays until a person has taken it back."""
    return UndoOutcome.STRANGER if verdict is StepVerdict.DONE else UndoOutcome.NEVER_HAPPENED


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Many steps of one kind and phase, a row each, where a value each would cost too much.

    ``columns``: those of ``segment.COLUMNS`` but for the step's number and its kind.
    """

    kind: str
    phase: int
    columns: Sequence[Sequence[Any]]

    def __len__(self) -> int:
        return len(self.columns[0])

    def cut(self, start: int, end: int) -> "StepColumns":
        return StepColumns(self.kind, self.phase, [column[start:end] for column in self.columns])


StepBatch = CommitStep | StepColumns
"""What a destination gives to a segment: a step, or many."""

StepRow = tuple[Any, ...]
"""One row of a segment, in the order of ``segment.COLUMNS``."""


class StepCodec(Protocol):
    """The form of steps of one kind in a segment. Every file that a step publishes is one row with its target."""

    def to_columns(self, steps: Sequence[Any], first: int) -> Sequence[Sequence[object]]:
        """The columns of ``segment.COLUMNS`` but for the kind; ``first`` is the number of the first step."""
        ...

    def from_rows(self, rows: Iterable[StepRow]) -> Iterator[CommitStep]:
        """Rebuild the steps of consecutive rows of the kind."""
        ...


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of steps, as a package registers it. ``name``: such as ``<package>.<kind>``.

    ``irreversible`` says why its steps can't be undone; a sequence with such a step can't be abandoned. ``opens`` maps
    each type that its steps ask their world for to a context manager function that opens the type by a URI or another
    name. A URI must not hold a secret, because the log stores it.

    ``at_given_names``: other publications use its names too, so that what a name holds follows from their order. Then
    ``removes_files`` says that nothing is at the name after a step, and ``folded_as`` names the kind as which a
    fold of publications keeps a file that a step published; "": this one.
    """

    name: str
    codec: StepCodec
    irreversible: str = ""
    opens: Mapping[Any, Callable[[str], Any]] = field(default_factory=dict)
    at_given_names: bool = False
    removes_files: bool = False
    folded_as: str = ""


def _returned(staging: str, source: str, fence: int) -> str:
    return f"{captured_directory(staging, fence)}/returned/{source[len(staging) + 1 :]}"
