"""Every state in which a step can be found, on each file system, and what is allowed in each."""

import uuid
from pathlib import PurePosixPath

import pytest

from gobblin_assets.commit.attempts import captured_directory
from gobblin_assets.commit.step_calls import execute_steps, undo_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import CapturedStaging, CommitStep, StepVerdict, UndoOutcome
from gobblin_assets.destinations.files.rename_steps import RenameDirectory, RenameFile
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.state import SequenceId
from tests.support.places import Place, identity_at


@pytest.fixture
def file_step(place: Place) -> RenameFile:
    source = place.write(place.at("staged/a"), b"rows")
    place.mkdir(place.at("final"))
    return RenameFile(source, place.at("final/a"), identity_at(place, source), 4)


@pytest.fixture
def directory_step(place: Place) -> RenameDirectory:
    source = place.at("staged/part")
    place.mkdir(place.at("final"))
    files = []
    for name in ("a", "deeper/b"):
        path = place.write(f"{source}/{name}", name.encode())
        files.append(DataFile(name, identity_at(place, path), 1))
    return RenameDirectory(source, place.at("final/part"), tuple(files))


def verify(step: CommitStep, place: Place) -> StepVerdict:
    (verdict,) = verify_steps([step], world_of(place))
    return verdict


def world_of(place: Place) -> StepWorld:
    return StepWorld(place.fs, StepPorts())


def replace(place: Place, path: str, content: bytes = b"stranger") -> None:
    """Put another file under the same name. It is written while the first exists, so it has another inode."""
    place.write(f"{path}.other", content)
    place.remove(path)
    place.move(f"{path}.other", path)


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_staged_step_is_done_once_and_then_known_as_done(
    kind: str, place: Place, request: pytest.FixtureRequest
) -> None:
    step = request.getfixturevalue(kind)
    assert verify(step, place) is StepVerdict.DO
    step.execute(world_of(place))
    assert verify(step, place) is StepVerdict.DONE
    assert all(place.exists(path) for path, _identity, _rows in step.published())
    assert not place.exists(step.source)


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_step_that_is_nowhere_is_lost(kind: str, place: Place, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(kind)
    place.move(step.source, place.at("elsewhere"))
    assert verify(step, place) is StepVerdict.LOST


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_stranger_at_the_target_is_a_conflict_and_is_never_replaced(
    kind: str, place: Place, request: pytest.FixtureRequest
) -> None:
    step = request.getfixturevalue(kind)
    stranger = place.write(step.target if kind == "file_step" else f"{step.target}/theirs", b"theirs")
    assert verify(step, place) is StepVerdict.CONFLICT
    if kind == "directory_step":
        with pytest.raises(ConflictError):
            step.execute(world_of(place))
    assert place.read(stranger) == b"theirs"


def test_a_stranger_under_the_staged_name_is_a_conflict(place: Place, file_step: RenameFile) -> None:
    replace(place, file_step.source)
    assert verify(file_step, place) is StepVerdict.CONFLICT


def test_a_stranger_of_the_same_size_is_a_stranger(place: Place, file_step: RenameFile) -> None:
    replace(place, file_step.source, b"swor")
    assert verify(file_step, place) is StepVerdict.CONFLICT


def test_a_rename_cut_between_link_and_unlink_only_drops_its_source(place: Place, file_step: RenameFile) -> None:
    place.link(file_step.source, file_step.target)
    assert verify(file_step, place) is StepVerdict.DROP_SOURCE
    file_step.execute(world_of(place))
    assert verify(file_step, place) is StepVerdict.DONE
    assert place.read(file_step.target) == b"rows"


def test_a_stranger_at_the_source_does_not_undo_what_is_published(place: Place, file_step: RenameFile) -> None:
    file_step.execute(world_of(place))
    place.write(file_step.source, b"made by a zombie")
    assert verify(file_step, place) is StepVerdict.DONE


def test_a_directory_that_lost_a_file_is_a_conflict_on_either_side(
    place: Place, directory_step: RenameDirectory
) -> None:
    place.remove(f"{directory_step.source}/a")
    assert verify(directory_step, place) is StepVerdict.CONFLICT
    place.fs.rename_no_replace(directory_step.source, directory_step.target)
    assert verify(directory_step, place) is StepVerdict.CONFLICT


def test_a_directory_publishes_what_was_staged_and_nothing_that_came_later(
    place: Place, directory_step: RenameDirectory
) -> None:
    place.write(f"{directory_step.source}/late", b"late")
    assert verify(directory_step, place) is StepVerdict.DO
    directory_step.execute(world_of(place))
    assert verify(directory_step, place) is StepVerdict.DONE
    assert not place.exists(f"{directory_step.target}/late")


def test_a_crowded_directory_is_judged_as_one_file_is(place: Place) -> None:
    place.mkdir(place.at("final"))
    steps = []
    for number in range(40):
        source = place.write(place.at(f"staged/{number}"), b"x")
        steps.append(RenameFile(source, place.at(f"final/{number}"), identity_at(place, source), 1))
    for step in steps[:10]:
        step.execute(world_of(place))
    replace(place, steps[20].source)
    place.move(steps[30].source, place.at("elsewhere"))
    found = verify_steps(steps, world_of(place))
    assert found == [verify(step, place) for step in steps]
    assert found[:10] == [StepVerdict.DONE] * 10
    assert (found[20], found[30]) == (StepVerdict.CONFLICT, StepVerdict.LOST)


# Undoing ----------------------------------------------------------------------------------------------------

FENCE = 7


def capture(place: Place) -> CapturedStaging:
    """Capture like an abandonment: the staging gets a name that only its fence knows."""
    staging, fences = place.at("staged"), frozenset({FENCE - 1, FENCE})
    place.fs.rename_no_replace(staging, captured_directory(staging, FENCE))
    return CapturedStaging(SequenceId(uuid.UUID(int=1)), FENCE, {staging: fences})


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
@pytest.mark.parametrize("happened", [False, True], ids=["never happened", "happened"])
def test_what_happened_is_taken_back_and_can_t_happen_again(
    kind: str, happened: bool, place: Place, request: pytest.FixtureRequest
) -> None:
    step = request.getfixturevalue(kind)
    if happened:
        step.execute(world_of(place))
    captured = capture(place)

    expected = UndoOutcome.UNDONE if happened else UndoOutcome.NEVER_HAPPENED
    assert step.undo(world_of(place), captured) is expected
    assert step.undo(world_of(place), captured) is UndoOutcome.NEVER_HAPPENED
    with pytest.raises(ConflictError):
        step.execute(world_of(place))
    assert verify(step, place) is StepVerdict.LOST
    assert not place.exists(step.target)
    changed = {str(PurePosixPath(captured.place_for(step.source)).parent), str(PurePosixPath(step.target).parent)}
    assert changed <= set(step.touches(captured))
    assert any(f"captured-{FENCE - 1}" in directory for directory in step.touches(captured))


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_stranger_is_not_undone(kind: str, place: Place, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(kind)
    stranger = place.write(step.target if kind == "file_step" else f"{step.target}/theirs", b"theirs")
    captured = capture(place)
    assert step.undo(world_of(place), captured) is UndoOutcome.STRANGER
    with pytest.raises(ConflictError, match="it stays as it is"):
        undo_steps([step], world_of(place), captured)
    assert place.read(stranger) == b"theirs"


def test_steps_are_done_in_order_and_undone_in_reverse(place: Place) -> None:
    steps = []
    for number in range(3):
        source = place.write(place.at(f"staged/{number}/a"), b"x")
        steps.append(RenameFile(source, place.at(f"deep/er/{number}/a"), identity_at(place, source), 1))
    execute_steps(steps, world_of(place))
    assert verify_steps(steps, world_of(place)) == [StepVerdict.DONE] * 3
    captured = capture(place)
    replace(place, steps[1].target)
    with pytest.raises(ConflictError, match="deep/er/1/a is not the file that was staged"):
        undo_steps(steps, world_of(place), captured)
    assert [place.exists(step.target) for step in steps] == [True, True, False]


def test_a_directory_with_nested_files_is_prepared_by_its_parent_alone(
    place: Place, directory_step: RenameDirectory
) -> None:
    place.remove(place.at("final"))
    execute_steps([directory_step], world_of(place))
    assert verify(directory_step, place) is StepVerdict.DONE


def test_what_was_staged_elsewhere_has_no_place_to_go_back_to(place: Place, file_step: RenameFile) -> None:
    file_step.execute(world_of(place))
    captured = CapturedStaging(SequenceId(uuid.UUID(int=1)), FENCE, {})
    with pytest.raises(ConflictError, match="belongs to no attempt"):
        file_step.undo(world_of(place), captured)
