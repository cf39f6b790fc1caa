"""Every order of all that happens to a closed directory: it is closed again, and a stranger's mode stays."""

import pytest

from tests.models.closed_directories import (
    ChangesWithoutTheAttempt,
    ClosedDirectoryModel,
    ClosesAnyDirectory,
    ClosesAnyMode,
    UndoLeavesItOpen,
    UndoOpensNothing,
)
from tests.models.exhaustive_search import search


@pytest.mark.parametrize(
    "model",
    [
        ClosedDirectoryModel(processes=3, fences=4),
        ClosedDirectoryModel(acts=1),
        ClosedDirectoryModel(acts=2, sequences=1, fences=3),
    ],
    ids=["three processes", "a stranger", "a stranger's two acts"],
)
def test_a_closed_directory_is_closed_again_and_a_stranger_s_mode_stays(model: ClosedDirectoryModel) -> None:
    found = search(model)
    assert found.fault is None, found
    assert found.states > 1_000


@pytest.mark.parametrize(
    ("model", "fault"),
    [
        (ChangesWithoutTheAttempt(), "the directory is open, and no sequence is"),
        (UndoLeavesItOpen(), "the directory is open, and no sequence is"),
        (UndoOpensNothing(), "a sequence waits for a person without a reason"),
        (ClosesAnyMode(acts=1), "a stranger's mode 711 was overwritten"),
        (ClosesAnyDirectory(acts=1), "a stranger's mode 755 was overwritten"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ClosedDirectoryModel) else "",
)
def test_a_rule_that_is_left_out_is_missed(model: ClosedDirectoryModel, fault: str) -> None:
    assert search(model).fault == fault
