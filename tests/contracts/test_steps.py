"""Every case in which a step can be found, on a real file system, and what may be done in each."""

from pathlib import Path

import pytest

from gobblin_assets.commit.steps import CommitStep, RenameDirectory, RenameFile, StepVerdict, StepWorld, verify_all
from gobblin_assets.errors import ConflictError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.model.files import DataFile, FileIdentity

FS = PosixFileSystem()


def identity_of(path: Path) -> FileIdentity:
    found = FS.find_identity(str(path))
    assert found is not None
    return found


@pytest.fixture
def file_step(tmp_path: Path) -> RenameFile:
    (tmp_path / "staged").mkdir()
    (tmp_path / "final").mkdir()
    source = tmp_path / "staged" / "a"
    source.write_bytes(b"rows")
    return RenameFile(str(source), str(tmp_path / "final" / "a"), identity_of(source), 4)


@pytest.fixture
def directory_step(tmp_path: Path) -> RenameDirectory:
    source = tmp_path / "staged" / "part"
    (source / "deeper").mkdir(parents=True)
    (tmp_path / "final").mkdir()
    files = []
    for name in ("a", "deeper/b"):
        (source / name).write_bytes(name.encode())
        files.append(DataFile(name, identity_of(source / name), 1))
    return RenameDirectory(str(source), str(tmp_path / "final" / "part"), tuple(files))


def verify(step: CommitStep) -> StepVerdict:
    (verdict,) = verify_all([step], StepWorld(FS))
    return verdict


def replace(path: str, content: bytes = b"stranger") -> None:
    """Another file under the same name: written elsewhere, so that it has an inode of its own."""
    other = Path(f"{path}.other")
    other.write_bytes(content)
    other.replace(path)


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_staged_step_is_done_once_and_then_known_as_done(kind: str, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(kind)
    assert verify(step) is StepVerdict.DO
    step.execute(StepWorld(FS))
    assert verify(step) is StepVerdict.DONE
    assert all(Path(path).exists() for path, _identity, _rows in step.published_files())
    assert not Path(step.source).exists()


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_step_that_is_nowhere_is_lost(kind: str, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(kind)
    Path(step.source).rename(Path(step.source).with_name("elsewhere"))
    assert verify(step) is StepVerdict.LOST


@pytest.mark.parametrize("kind", ["file_step", "directory_step"])
def test_a_stranger_at_the_target_is_a_conflict_and_is_never_replaced(
    kind: str, request: pytest.FixtureRequest
) -> None:
    step = request.getfixturevalue(kind)
    stranger = Path(step.target) if kind == "file_step" else Path(step.target) / "theirs"
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_bytes(b"theirs")
    assert verify(step) is StepVerdict.CONFLICT
    if kind == "directory_step":
        with pytest.raises(ConflictError):
            step.execute(StepWorld(FS))
    assert stranger.read_bytes() == b"theirs"


def test_a_stranger_under_the_staged_name_is_a_conflict(file_step: RenameFile) -> None:
    replace(file_step.source)
    assert verify(file_step) is StepVerdict.CONFLICT


def test_a_stranger_of_the_same_size_is_a_stranger(file_step: RenameFile) -> None:
    replace(file_step.source, b"swor")
    assert verify(file_step) is StepVerdict.CONFLICT


def test_a_rename_cut_between_link_and_unlink_only_drops_its_source(file_step: RenameFile) -> None:
    Path(file_step.target).hardlink_to(file_step.source)
    assert verify(file_step) is StepVerdict.DROP_SOURCE
    file_step.execute(StepWorld(FS))
    assert verify(file_step) is StepVerdict.DONE
    assert Path(file_step.target).read_bytes() == b"rows"


def test_a_stranger_at_the_source_does_not_undo_what_is_published(file_step: RenameFile) -> None:
    file_step.execute(StepWorld(FS))
    Path(file_step.source).write_bytes(b"made by a zombie")
    assert verify(file_step) is StepVerdict.DONE


def test_a_directory_that_lost_a_file_is_a_conflict_on_either_side(directory_step: RenameDirectory) -> None:
    (Path(directory_step.source) / "a").unlink()
    assert verify(directory_step) is StepVerdict.CONFLICT
    FS.rename_no_replace(directory_step.source, directory_step.target)
    assert verify(directory_step) is StepVerdict.CONFLICT


def test_a_directory_publishes_what_was_staged_and_nothing_that_came_later(directory_step: RenameDirectory) -> None:
    (Path(directory_step.source) / "late").write_bytes(b"late")
    assert verify(directory_step) is StepVerdict.DO
    directory_step.execute(StepWorld(FS))
    assert verify(directory_step) is StepVerdict.DONE
    assert not (Path(directory_step.target) / "late").exists()


def test_a_crowded_directory_is_judged_as_one_file_is(tmp_path: Path) -> None:
    (tmp_path / "staged").mkdir()
    (tmp_path / "final").mkdir()
    steps = []
    for number in range(40):
        source = tmp_path / "staged" / str(number)
        source.write_bytes(b"x")
        steps.append(RenameFile(str(source), str(tmp_path / "final" / str(number)), identity_of(source), 1))
    for step in steps[:10]:
        step.execute(StepWorld(FS))
    replace(steps[20].source)
    Path(steps[30].source).rename(tmp_path / "elsewhere")
    found = verify_all(steps, StepWorld(FS))
    assert found == [verify(step) for step in steps]
    assert found[:10] == [StepVerdict.DONE] * 10
    assert (found[20], found[30]) == (StepVerdict.CONFLICT, StepVerdict.LOST)
