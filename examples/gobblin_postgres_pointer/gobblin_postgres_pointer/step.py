"""The step, and the kind that the entry point names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gobblin_assets.commit.step_kinds import JsonCodec
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import (
    CapturedStaging,
    CommitStep,
    StepFault,
    StepKind,
    StepVerdict,
    UndoOutcome,
)
from gobblin_postgres_pointer.table import MoveState, PointerTable, open_pointer_table

KIND: Final = "gobblin_postgres_pointer.move"


@dataclass(frozen=True, slots=True)
class MovePointer(CommitStep):
    """Let the pointer of ``dataset`` name ``location``.

    ``move_id`` is this move's own, such as the id of its sequence: by it the table tells whether the move has
    happened. ``variable`` names the environment variable that holds the URL of the table's database: the URL itself
    may hold a password, and a step stands in the log.
    """

    variable: str
    dataset: str
    location: str
    move_id: str

    @property
    def kind(self) -> str:
        return KIND

    def verify(self, world: StepWorld) -> StepVerdict:
        table = world.get(PointerTable, self.variable)
        match table.find_move(self.move_id):
            case MoveState.DONE:
                return StepVerdict.DONE
            case MoveState.UNDONE:
                return StepVerdict.LOST
            case None:
                return StepVerdict.CONFLICT if table.is_changed_by_others(self.dataset) else StepVerdict.DO

    def execute(self, world: StepWorld) -> None:
        world.get(PointerTable, self.variable).move(self.move_id, self.dataset, self.location)

    def undo(self, world: StepWorld, captured: CapturedStaging) -> UndoOutcome:
        """The staging does not matter: the move's own row keeps a paused process from moving the pointer later."""
        del captured
        return UndoOutcome(world.get(PointerTable, self.variable).undo(self.move_id, self.dataset))

    def find_fault(self, world: StepWorld, verdict: StepVerdict) -> StepFault:
        del world
        found = "was taken back before" if verdict is StepVerdict.LOST else "was changed by somebody else"
        return StepFault(f"the pointer of {self.dataset}", found)


def _write(step: MovePointer) -> Mapping[str, object]:
    return {
        "variable": step.variable,
        "dataset": step.dataset,
        "location": step.location,
        "move_id": step.move_id,
    }


MOVE: Final = StepKind(
    KIND,
    JsonCodec(write=_write, read=lambda data: MovePointer(**data)),
    opens={PointerTable: open_pointer_table},
)
