"""Rules that the simulated disk keeps, whatever is done to it and whichever changes survive."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.file_system import SimDisk, SimFileSystem

DIRECTORIES = ("/a", "/b", "/a/c", "/n")
TREE = ("/x", "/a/x", "/b/y", "/a/c/x")
NAMES = tuple(f"{directory}/{name}" for directory in ("", *DIRECTORIES) for name in ("x", "y"))
PATHS = (*DIRECTORIES, *NAMES)

operations = st.lists(
    st.one_of(
        st.tuples(st.just("rename"), st.sampled_from(PATHS), st.sampled_from(PATHS)),
        st.tuples(st.just("make"), st.sampled_from(DIRECTORIES), st.just("")),
        st.tuples(st.just("remove directory"), st.sampled_from(DIRECTORIES), st.just("")),
        st.tuples(st.just("sync"), st.sampled_from(("/", *DIRECTORIES)), st.just("")),
    ),
    max_size=16,
)


def do(fs: SimFileSystem, operation: tuple[str, str, str]) -> None:
    """Do it unless it would lose a file; a refused operation does nothing."""
    match operation:
        case ("rename", source, target):
            parent = target.rpartition("/")[0] or "/"
            if fs.disk.is_directory(parent) and not target.startswith(f"{source}/"):
                fs.rename_no_replace(source, target)
        case ("make", path, _):
            if all(fs.disk.is_directory(path[:end]) or not fs.disk.exists(path[:end]) for end in (2, len(path))):
                fs.make_directories(path)
        case ("remove directory", path, _):
            if fs.disk.is_directory(path):
                fs.remove_empty_directory(path)
        case (_, path, _):
            if fs.disk.is_directory(path):
                fs.sync_directories([path])


def make_tree() -> SimFileSystem:
    fs = SimFileSystem(SimDisk())
    for path in TREE:
        fs.disk.write_file(path, path.encode())
    return fs


def sync_all(fs: SimFileSystem) -> None:
    """In any order; here the root first, then directories in the order of a walk."""
    fs.make_durable(fs.disk.files())
    directories = ["/"]
    for directory in directories:
        below = [f"{directory.rstrip('/')}/{name}" for name in fs.disk.list_names(directory)]
        directories += [path for path in below if fs.disk.is_directory(path)]
    fs.sync_directories(directories)


def parents_of(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(2, len(parts))]


@settings(max_examples=400)
@given(operations, st.randoms(use_true_random=False))
def test_a_durable_file_has_exactly_one_name_after_any_power_cut(
    done: list[tuple[str, str, str]], random: Random
) -> None:
    fs = make_tree()
    sync_all(fs)
    before = sorted(fs.disk.files().values())
    for operation in done:
        do(fs, operation)
    fs.disk.power_cut(lambda _change: random.random() < 0.5)
    assert sorted(fs.disk.files().values()) == before


@settings(max_examples=200)
@given(operations)
def test_a_prefix_of_the_changes_is_the_world_as_it_was_then(done: list[tuple[str, str, str]]) -> None:
    fs = make_tree()
    sync_all(fs)
    states = [(0, fs.disk.files())]
    for operation in done:
        if operation[0] != "sync":
            do(fs, operation)
            states.append((len(fs.disk.pending), fs.disk.files()))
    for count, files in states:
        world = fs.disk.copy()
        world.power_cut(set(world.pending[:count]).__contains__)
        assert world.files() == files


@settings(max_examples=200)
@given(operations, st.sampled_from(TREE), st.randoms(use_true_random=False))
def test_what_was_synced_up_to_the_root_survives_any_power_cut(
    done: list[tuple[str, str, str]], path: str, random: Random
) -> None:
    fs = make_tree()
    for operation in done:
        if operation[0] != "rename":
            do(fs, operation)
    fs.make_durable([path])
    fs.sync_directories([*reversed(parents_of(path)), "/"])
    fs.disk.power_cut(lambda _change: random.random() < 0.5)
    assert fs.disk.files()[path] == path.encode()


@settings(max_examples=200)
@given(operations)
def test_one_sync_of_everything_leaves_nothing_pending(done: list[tuple[str, str, str]]) -> None:
    fs = make_tree()
    for operation in done:
        do(fs, operation)
    sync_all(fs)
    assert fs.disk.pending == ()
    assert fs.disk.durable_files() == fs.disk.files()


@given(operations)
def test_a_copy_is_the_same_world_and_lives_its_own_life(done: list[tuple[str, str, str]]) -> None:
    first = make_tree()
    for operation in done[: len(done) // 2]:
        do(first, operation)
    second = SimFileSystem(first.disk.copy())
    before = first.disk.fingerprint()
    assert second.disk.fingerprint() == before
    for operation in done[len(done) // 2 :]:
        do(second, operation)
    second.disk.write_file("/x2", b"only here")
    assert first.disk.fingerprint() == before
    for operation in done[len(done) // 2 :]:
        do(first, operation)
    first.disk.write_file("/x2", b"only here")
    assert first.disk.fingerprint() == second.disk.fingerprint()
    second.disk.power_cut()
    assert first.disk.durable_files() == second.disk.files()
