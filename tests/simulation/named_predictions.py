"""What the model of ``tests.models`` foretells of one deed: the code's answer, and every file afterwards."""

from typing import Final

from gobblin_assets.commit.steps import StepVerdict, UndoOutcome
from gobblin_assets.destinations.fixed_names.named_decisions import Act, Found
from gobblin_assets.destinations.fixed_names.named_directory_steps import ClearFile
from gobblin_assets.destinations.fixed_names.named_steps import (
    UNDO_ACTS_MAX,
    NamedStep,
    PlaceFile,
    RemoveFile,
    ReplaceFile,
)
from tests.models.fixed_name_owners import LOOKED_AT, LOOKED_AT_BACK, FixedNames
from tests.models.fixed_names import GUEST, NOTHING, Places, Plan, Way, carry_out
from tests.simulation.disk import SimDisk
from tests.simulation.named_subjects import NEW_CONTENT, OLD_CONTENT

REFUSED: Final = "refused"

_OLD: Final = 1
_NEW: Final = 2

_Answer = tuple[str, dict[str, bytes]]


def predict(step: NamedStep, disk: SimDisk, attempt: str, verb: str, *, is_held: bool) -> _Answer | None:
    """None for kinds and deeds that the model has not. ``is_held``: the owner is the newest in the log."""
    if not isinstance(step, PlaceFile | ReplaceFile | RemoveFile) or isinstance(step, ClearFile):
        return None
    return _Prediction(step, disk, attempt, is_held=is_held).predict(verb)


class _Prediction:
    """The files at the step's four places, as the model's contents."""

    def __init__(
        self, step: PlaceFile | ReplaceFile | RemoveFile, disk: SimDisk, attempt: str, *, is_held: bool
    ) -> None:
        self._is_held = is_held
        self._files = disk.files()
        self._is_there = disk.is_directory(attempt)
        self._contents = {_OLD: OLD_CONTENT, _NEW: NEW_CONTENT}
        self._paths = {
            "source": step.source_in(attempt),
            "slot": step.slot_in(attempt),
            "returned": step.returned_in(attempt),
            "name": step.target,
        }
        self._model = FixedNames(exchanges=isinstance(step, ReplaceFile) and step.exchanges)
        way = {PlaceFile: Way.CREATE, ReplaceFile: Way.REPLACE, RemoveFile: Way.REMOVE}[type(step)]
        self._plan = Plan(_NEW, way, NOTHING if way is Way.CREATE else _OLD, sealer=0)
        self._places = Places(*(self._number(self._paths[place]) for place in Places._fields))
        self._name = self._number(step.target)

    def predict(self, verb: str) -> _Answer | None:
        match verb:
            case "verify":
                return self._verify(), self._files
            case "execute":
                return self._execute()
            case "undo":
                return self._undo()
            case _:
                return None

    def _number(self, path: str) -> int:
        content = self._files.get(path)
        if content is None:
            return NOTHING
        for number, known in self._contents.items():
            if known == content:
                return number
        number = GUEST + len(self._contents)
        self._contents[number] = content
        return number

    def _look(self, places: tuple[str, ...]) -> tuple[Found, ...]:
        contents = (self._name if place == "name" else getattr(self._places, place) for place in places)
        return tuple(self._plan.judge(content) for content in contents)

    def _verify(self) -> str:
        if not self._is_there:
            return StepVerdict.LOST
        act = self._model.decide(self._plan, self._look(LOOKED_AT[self._plan.way]))
        return StepVerdict(act) if act in (Act.DONE, Act.CONFLICT, Act.LOST) else StepVerdict.DO

    def _execute(self) -> _Answer:
        act = self._model.decide(self._plan, self._look(LOOKED_AT[self._plan.way]))
        return ("execute" if self._is_there and self._move(act) else REFUSED), self._list_files()

    def _undo(self) -> _Answer:
        if not self._is_there:
            act = self._model.decide_back(self._plan, self._look(LOOKED_AT_BACK))
            outcome = UndoOutcome.NEVER_HAPPENED if act == Act.DONE else UndoOutcome.STRANGER
            return (outcome if self._is_held else REFUSED), self._files
        for count in range(UNDO_ACTS_MAX):
            act = self._model.decide_back(self._plan, self._look(LOOKED_AT_BACK))
            if act == Act.DONE:
                return (UndoOutcome.UNDONE if count else UndoOutcome.NEVER_HAPPENED), self._list_files()
            if act == Act.CONFLICT:
                break
            if not self._move(act):
                return REFUSED, self._list_files()
        return UndoOutcome.STRANGER, self._list_files()

    def _move(self, act: str) -> bool:
        moved = carry_out(act, self._name, self._places)
        if moved is not None:
            self._name, self._places = moved
        return moved is not None

    def _list_files(self) -> dict[str, bytes]:
        files = {path: content for path, content in self._files.items() if path not in self._paths.values()}
        for place, path in self._paths.items():
            number = self._name if place == "name" else getattr(self._places, place)
            if number != NOTHING:
                files[path] = self._contents[number]
        return files
