"""Every case in which a step can be found, on each file system, and what may be done in each."""

import pytest

from gobblin_assets.commit.steps import CommitStep, RenameDirectory, RenameFile, StepVerdict, StepWorld, verify_all
from gobblin_assets.errors import ConflictError
from gobblin_assets.model.files import DataFile
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
    (verdict,) = verify_all([step], StepWorld(place.fs))
    return verdict


def replace(place: Place, path: str, content: bytes = b"stranger") -> None:
    """Another file under the same name: written while the first is there, so that it has an inode of its own."""
    place.write(f"{path}.other", content)
    place.remove(path)
    place.move(f"{path}.other", path)


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_staged_step_is_done_once_and_then_known_as_done(
    kind: str, place: Place, request: pytest.FixtureRequest
) -> None:
    step = request.getfixturevalue(kind)
    assert verify(step, place) is StepVerdict.DO
    step.execute(StepWorld(place.fs))
    assert verify(step, place) is StepVerdict.DONE
    assert all(place.exists(path) for path, _identity, _rows in step.published_files())
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
            step.execute(StepWorld(place.fs))
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
    file_step.execute(StepWorld(place.fs))
    assert verify(file_step, place) is StepVerdict.DONE
    assert place.read(file_step.target) == b"rows"


def test_a_stranger_at_the_source_does_not_undo_what_is_published(place: Place, file_step: RenameFile) -> None:
    file_step.execute(StepWorld(place.fs))
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
    directory_step.execute(StepWorld(place.fs))
    assert verify(directory_step, place) is StepVerdict.DONE
    assert not place.exists(f"{directory_step.target}/late")


def test_a_crowded_directory_is_judged_as_one_file_is(place: Place) -> None:
    place.mkdir(place.at("final"))
    steps = []
    for number in range(40):
        source = place.write(place.at(f"staged/{number}"), b"x")
        steps.append(RenameFile(source, place.at(f"final/{number}"), identity_at(place, source), 1))
    for step in steps[:10]:
        step.execute(StepWorld(place.fs))
    replace(place, steps[20].source)
    place.move(steps[30].source, place.at("elsewhere"))
    found = verify_all(steps, StepWorld(place.fs))
    assert found == [verify(step, place) for step in steps]
    assert found[:10] == [StepVerdict.DONE] * 10
    assert (found[20], found[30]) == (StepVerdict.CONFLICT, StepVerdict.LOST)
