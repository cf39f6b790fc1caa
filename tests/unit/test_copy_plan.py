"""Plans of copies: from differences to items, removals and directories, and the budget of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.named_files import NameLimits
from gobblin_assets.fs.tree import EntryKind, TreeEntry, sort_key
from gobblin_assets.jobs.copy.budgets import CopyBudget, RunBudget, parse_tiers
from gobblin_assets.jobs.copy.copy_plan import CopyPlan, CopyPlanner, describe_plan
from gobblin_assets.jobs.copy.copy_spec import CopyDatasetSpec
from gobblin_assets.jobs.copy.copy_trees import place_of_origin
from gobblin_assets.jobs.copy.copyable import Attributes, ConvertedEntry
from gobblin_assets.jobs.copy.difference import Deletes, DifferenceRules, compare_trees
from gobblin_assets.jobs.copy.globs import parse_glob
from gobblin_assets.jobs.copy.kept_attributes import Ownership
from gobblin_assets.jobs.copy.memory import MemoryRoom
from gobblin_assets.jobs.copy.refusals import ANY_LENGTH, NameLengths
from gobblin_assets.jobs.copy.removals import DestinationFiles, RemovalRules
from gobblin_assets.jobs.copy.transfer.preserve import parse_preserve
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn


def entry(path: str, size_bytes: int = 1, *, mtime_ns: int = 1, kind: EntryKind = EntryKind.FILE) -> TreeEntry:
    return TreeEntry(path, kind, FileIdentity(size_bytes, hash(path) % 1_000, mtime_ns), 0o555, 1, 2)


def directory(path: str) -> TreeEntry:
    return entry(path, kind=EntryKind.DIRECTORY)


def is_metadata(path: str) -> bool:
    return "/metadata/" in f"/{path}" or path.rpartition("/")[2] == "_SUCCESS"


def plan(
    source: Sequence[TreeEntry],
    destination: Sequence[TreeEntry] = (),
    *,
    place: str = "",
    bytes_max: int | None = None,
    files_max: int | None = None,
    missing: Mapping[str, TreeEntry | None] = MappingProxyType({}),
    shared: RunBudget | None = None,
    go_first: Sequence[str] = (),
    lengths: NameLengths = ANY_LENGTH,
) -> CopyPlan:
    budgets = (RunBudget(CopyBudget(files_max, bytes_max)), shared or RunBudget(CopyBudget()))
    planner = CopyPlanner(
        *("/in", place, parse_preserve("pt"), is_metadata),
        budgets=budgets,
        tiers=parse_tiers(go_first),
        lengths=lengths,
    )
    rules = DifferenceRules(deletes=Deletes.ALL if destination else Deletes.OFF)
    return planner.plan(missing, compare_trees(source, destination, rules))


@pytest.mark.parametrize(
    ("delete_max", "is_refused"), [(1, True), (2, False), ("49%", True), ("50%", False), ("0%", True), (None, False)]
)
def test_more_removals_than_allowed_are_refused(delete_max: int | str | None, is_refused: bool) -> None:
    destination = DestinationFiles([entry("a"), entry("b"), directory("d"), entry("k"), entry("l")])
    differences = compare_trees([entry("k"), entry("l")], iter(destination), DifferenceRules(deletes=Deletes.ALL))
    planner = CopyPlanner(*("/in", "", parse_preserve("pt"), is_metadata))
    planner.removal_rules = RemovalRules(delete_max, destination)
    if not is_refused:
        assert len(planner.plan({}, differences).removals) == 2
        return
    with pytest.raises(RejectedError, match="would be deleted: 2, 'b' among them") as refused:
        planner.plan({}, differences)
    assert (refused.value.field, bool(refused.value.hint)) == ("delete_max", True)


def test_each_difference_becomes_its_change() -> None:
    found = plan(
        [entry("_SUCCESS"), entry("new"), entry("old", 2), entry("same")],
        [entry("gone"), entry("old", 1), entry("same")],
    )
    assert sorted((change.path, change.action) for change in found.changes) == [
        ("_SUCCESS", "create"),
        ("gone", "remove"),
        ("new", "create"),
        ("old", "replace"),
    ]
    (replaced,) = [item for item in found.items if item.number in found.replaced]
    assert (replaced.path, found.replaced[replaced.number].size_bytes) == ("old", 1)
    assert [path for _number, path, _identity in found.removals] == ["gone"]
    assert [item.path for item in found.items if item.number in found.metadata] == ["_SUCCESS"]
    assert len({*found.replaced, *(item.number for item in found.items), *(n for n, *_ in found.removals)}) == 4


@pytest.mark.parametrize("name", ["_SUCCESS", "_SUCCESS.crc", "metadata/v1.json", "orders.manifest"])
@pytest.mark.parametrize("directory", ["", "deep/down/"])
def test_what_says_that_files_are_there_is_metadata(name: str, directory: str) -> None:
    globs = [parse_glob(text, field="metadata") for text in CopyDatasetSpec().metadata]
    assert any(glob.matches(directory + name) for glob in globs)
    assert not any(glob.matches(f"{directory}orders.csv") for glob in globs)


def test_a_new_directory_is_one_item() -> None:
    found = plan([directory("d"), directory("d/e"), entry("d/e/f"), entry("d/x")])
    (item,) = found.items
    assert (item.path, item.is_directory, [file.path for file in item.files]) == ("d", True, ["d/e/f", "d/x"])
    assert item.directories[0][0] == "e"
    assert item.desired.mode == 0o555
    assert item.files[0].desired.mode == 0o555


@pytest.mark.parametrize(("name", "is_metadata"), [("metadata/v1", True), ("x", False)])
def test_a_new_directory_is_metadata_if_all_of_its_files_are(name: str, is_metadata: bool) -> None:
    files = [entry("d/_SUCCESS"), directory("d/metadata"), entry("d/metadata/v0")]
    found = plan([directory("d"), *files, entry(f"d/{name}")])
    assert [item.number in found.metadata for item in found.items] == [is_metadata]


def test_a_new_directory_without_files_is_made_with_those_inside() -> None:
    found = plan([directory("d"), directory("d/e")])
    assert found.items == ()
    assert [path for _number, path, _desired in found.directories] == ["d", "d/e"]


def test_paths_are_those_of_the_dataset_and_origins_those_of_the_file_set() -> None:
    found = plan([entry("f")], place="day=1", missing={"..": None, "day=1": directory("day=1")})
    assert [item.path for item in found.items] == ["day=1/f"]
    assert found.items[0].files[0].origin == "f"
    assert [(path, desired.mode) for _number, path, desired in found.directories] == [("..", None), ("day=1", 0o555)]


@pytest.mark.parametrize(
    ("source", "destination", "path", "expected"),
    [
        ("albums", "albums", "", "albums"),
        ("albums", "photos", "2026/01", "albums/2026/01"),
        ("logs/app", "logs/app", "..", "logs"),
        ("logs/app", "logs/other", "..", "logs"),
        ("a/b/c", "a/b/c", "../..", "a"),
        ("logs/app", "archive/app", "..", None),
        ("x/b/c", "a/b/c", "../..", None),
        ("a/x/c", "a/b/c", "../..", None),
        ("app", "logs/app", "..", None),
        ("", "all", "", ""),
    ],
)
def test_a_new_directory_is_like_the_source_s_of_the_same_name(
    source: str, destination: str, path: str, expected: str | None
) -> None:
    assert place_of_origin(source, destination, path) == expected


def test_what_a_budget_leaves_waits_and_is_counted() -> None:
    source = [entry("a", 5), entry("b", 5), entry("c", 1)]
    found = plan(source, bytes_max=6)
    assert [item.path for item in found.items] == ["a", "b"]
    assert waiting(found) == ["1 file of 1 bytes left for later runs (bytes_per_run_max)"]
    assert [item.path for item in plan(source, bytes_max=5).items] == ["a"]
    found = plan(source, files_max=1)
    assert [item.path for item in found.items] == ["a"]
    assert waiting(found) == ["2 files of 6 bytes left for later runs (files_per_run_max)"]


@pytest.mark.parametrize("files_max", [1, 2])
@pytest.mark.parametrize("go_first", [(), ("_SUCCESS", "b")])
def test_what_says_that_files_are_there_waits_for_them(files_max: int, go_first: Sequence[str]) -> None:
    """It would be the first by name, and by ``go_first``."""
    source = [entry("_SUCCESS", 7), entry("a"), entry("b"), entry("c")]

    found = plan(source, files_max=files_max, go_first=go_first)

    assert len(found.items) == files_max
    assert not found.metadata
    assert found.waiting.files.total() == 4 - files_max
    assert found.waiting.size_bytes.total() == 4 - files_max + 6
    whole = plan(source, files_max=4)
    assert [item.path for item in whole.items if item.number in whole.metadata] == ["_SUCCESS"]


def test_a_replaced_success_file_waits_too_and_metadata_has_the_budget_that_is_left() -> None:
    source = [entry("_SUCCESS", 2), entry("a", 2), entry("x/_SUCCESS"), entry("x/b")]
    destination = [entry("_SUCCESS", 1), entry("a", 1), directory("x")]
    source.insert(2, directory("x"))

    found = plan(source, destination, files_max=3)

    assert [item.path for item in found.items] == ["a", "x/b", "_SUCCESS"]
    assert found.waiting.files.total() == 1


def test_a_new_directory_of_metadata_alone_is_published_with_the_metadata() -> None:
    source = [entry("a"), directory("metadata"), directory("metadata/v1"), entry("metadata/v1/x"), entry("z")]

    found = plan(source)

    assert [item.path for item in found.items] == ["a", "z", "metadata"]
    assert [item.path for item in found.items if item.number in found.metadata] == ["metadata"]
    some = plan(source, files_max=1)
    assert [item.path for item in some.items] == ["a"]
    assert not some.directories
    assert some.waiting.files.total() == 2


def test_metadata_in_a_new_directory_comes_with_its_files() -> None:
    found = plan([entry("a"), directory("d"), entry("d/_SUCCESS"), entry("d/x")], files_max=1)
    assert [item.path for item in found.items] == ["a"]
    found = plan([directory("d"), entry("d/_SUCCESS"), entry("d/x"), entry("e")], files_max=2)
    assert [item.path for item in found.items] == ["d"]


def test_nothing_is_removed_while_its_new_name_may_wait() -> None:
    source = [entry(name) for name in ("new1", "new2", "new3")]
    destination = [entry(name) for name in ("old1", "old2", "old3")]

    found = plan(source, destination, files_max=1)

    assert [item.path for item in found.items] == ["new1"]
    assert not found.removals
    assert not [each for each in found.changes if each.action == "remove"]
    (said,) = waiting(found)
    assert said.endswith("; 3 removals wait until they are copied")
    assert len(plan(source, destination, files_max=3).removals) == 3


@pytest.mark.parametrize("mtime_ns", [-(1 << 63) - 1, 1 << 63])
def test_times_that_the_log_can_t_write_are_refused_by_path(mtime_ns: int) -> None:
    far = entry("far", 2, mtime_ns=mtime_ns)
    for source in (
        [far],
        [directory("d"), replace(far, path="d/far")],
        [replace(directory("far"), identity=far.identity)],
    ):
        with pytest.raises(RejectedError, match=r"1 files and directories have times .*far'") as refused:
            plan(source)
        assert refused.value.field == "source"
    for source in ([entry("far", 1)], [entry("other")]):
        with pytest.raises(RejectedError, match=r"'far'") as refused:
            plan(source, [far])
        assert refused.value.field == "destination"
    assert plan([entry("other")], [replace(far, path="other", identity=entry("other").identity)]).is_empty
    assert plan([entry("last", mtime_ns=(1 << 63) - 1)]).items


def test_names_that_are_too_long_are_refused_by_path() -> None:
    lengths = NameLengths(NameLimits(255, 4_095), base_bytes=1_000, root_bytes=900)
    long = "\u00e4" * 127
    assert plan([entry(f"{long}1")], lengths=lengths).items
    assert plan([entry(f"{long}12")], [entry(f"{long}12", 2)], lengths=lengths).items, "it is there already"
    for source in ([entry(f"{long}12")], [directory(f"{long}12")], [directory("d"), entry(f"d/{long}12")]):
        with pytest.raises(RejectedError, match=r"would have 256 bytes, and a name has 255 at most") as refused:
            plan(source, lengths=lengths)
        assert refused.value.field == "destination"


def test_paths_that_are_too_long_are_refused_also_where_they_are_staged() -> None:
    lengths = NameLengths(NameLimits(255, 1_000), base_bytes=500, root_bytes=500)
    deep = "/".join(["x" * 99] * 4)
    assert plan([entry(f"{deep}/{'y' * 99}")], lengths=lengths).items
    for source in ([entry(f"{deep}/{'y' * 100}")], [directory("d"), entry(f"d/{'/'.join(['x' * 99] * 3)}")]):
        with pytest.raises(RejectedError, match=r"more than the 1,000 bytes"):
            plan(source, lengths=lengths)


def test_a_name_that_a_converter_made_too_long_is_told_with_its_origin() -> None:
    origin = entry("x" * 254)
    made = ConvertedEntry(f"{origin.path}.gz", EntryKind.FILE, origin.identity, 0o600, 1, 2, origin=origin)
    above = {"..": replace(directory("d"), path="/in/" + "x" * 300)}
    assert plan([], missing=above, lengths=NameLengths(NameLimits(255, None))).directories
    with pytest.raises(RejectedError, match=r"made of 'xxx.*'\) would have 257 bytes") as refused:
        plan([made], lengths=NameLengths(NameLimits(255, None)))
    assert refused.value.field == "converters"


def waiting(found: CopyPlan, go_first: Sequence[str] = (), priority: int = 0) -> list[str]:
    return list(found.waiting.describe(parse_tiers(go_first), priority))


def test_urgent_files_go_first_and_what_waits_is_said_by_tier() -> None:
    source = [entry("a"), entry("b.now"), entry("c.soon"), directory("d"), entry("d/x"), entry("d/y.now"), entry("e")]
    order = ("*.now", "*.soon")

    found = plan(source, files_max=4, go_first=order)

    assert [item.path for item in found.items] == ["b.now", "d", "c.soon"]
    (said,) = waiting(found, order, priority=3)
    assert said.endswith("(files_per_run_max); by go_first: 2 of no glob; priority 3")
    (said,) = waiting(plan(source, files_max=1, go_first=order), order)
    assert said.startswith("5 files of 5 bytes left")
    assert said.endswith("; by go_first: 2 of `*.now`, 1 of `*.soon`, 2 of no glob")
    assert [item.path for item in plan(source, go_first=order).items] == ["b.now", "d", "c.soon", "a", "e"]


def test_a_budget_of_a_run_is_shared_by_its_file_sets() -> None:
    shared = RunBudget(CopyBudget(files_max=3))
    assert plan([entry("a"), entry("b")], shared=shared).file_count == 2
    found = plan([entry("c"), entry("d")], shared=shared)
    assert [item.path for item in found.items] == ["c"]
    waits = plan([entry("e")], shared=shared)
    assert waits.is_empty
    assert next(describe_plan(waits)) == "what differs waits: 0 entries are the same"


def test_a_dataset_s_file_sets_share_what_is_remembered() -> None:
    room, photos, logs = MemoryRoom(10), DatasetUrn("photos"), DatasetUrn("logs")
    known = {"a": 4, "b": 3}
    assert room.take(photos, "a", 6, known)
    assert not room.take(photos, "c", 2, known), "a has grown, and b is there"
    assert room.take(photos, "c", 1, known)
    assert room.take(logs, "a", 10, {})
    assert not room.take(photos, "b", 4, known)
    assert room.take(photos, "d", 3, known), "b is not remembered any more"


def test_an_item_larger_than_the_budget_does_not_wait_for_ever() -> None:
    found = plan([entry("a", 50)], bytes_max=6)
    assert [item.path for item in found.items] == ["a"]
    assert not waiting(found)
    shared = RunBudget(CopyBudget(bytes_max=6))
    assert [item.path for item in plan([entry("a", 5)], shared=shared).items] == ["a"]
    assert [item.path for item in plan([entry("b", 50)], shared=shared).items] == ["b"]
    assert plan([entry("c", 1)], shared=shared).is_empty


@pytest.mark.parametrize(
    ("files_max", "bytes_max"), [(2, None), (None, 10), (2, 10)], ids=["by files", "by bytes", "by both"]
)
@pytest.mark.parametrize("count", [2, 6])
@pytest.mark.parametrize("go_first", [(), ("a*",)])
def test_nothing_waits_for_ever_while_small_files_keep_coming(
    files_max: int | None, bytes_max: int | None, count: int, go_first: Sequence[str]
) -> None:
    """A directory that fills the budget, or exceeds it, a large file, metadata and a removal; a file comes each run."""
    waits = [entry("_SUCCESS"), directory("dir"), *(entry(f"dir/{n}", 5) for n in range(count)), entry("large", 50)]
    copied: list[TreeEntry] = []
    planned = None
    for number in range(5):
        source = sorted([*waits, entry(f"a{number}"), *copied], key=sort_key)
        stands = sorted([*copied, entry("gone")], key=sort_key)
        planned = plan(source, stands, files_max=files_max, bytes_max=bytes_max, go_first=go_first)
        done = {file.path for item in planned.items for file in item.files}
        done |= {item.path for item in planned.items}
        copied += [each for each in source if each.path in done]
        waits = [each for each in waits if each.path not in done]
        if planned.removals:
            break
    assert not waits
    assert planned is not None
    assert [path for _number, path, _identity in planned.removals] == ["gone"]


def test_what_can_t_give_way_refuses_the_whole_plan() -> None:
    with pytest.raises(RejectedError, match="1 names can't be published: a is a file in the source and a directory"):
        plan([entry("a")], [directory("a")])


@pytest.mark.parametrize(
    ("mode", "kind", "may"),
    [
        (0o400, EntryKind.FILE, True),
        (0o040, EntryKind.FILE, False),
        (0o300, EntryKind.FILE, False),
        (0o500, EntryKind.DIRECTORY, True),
        (0o470, EntryKind.DIRECTORY, False),
        (0o170, EntryKind.DIRECTORY, False),
    ],
)
def test_a_copy_must_be_readable_by_its_owner(mode: int, kind: EntryKind, may: bool) -> None:
    is_directory = kind is EntryKind.DIRECTORY
    assert Ownership(reader=7).may_read(Attributes(mode=mode), is_directory=is_directory) is may
    assert Ownership(reader=7).may_read(Attributes(mode=mode, owner=7), is_directory=is_directory) is may
    for ownership, desired in (
        (Ownership(), Attributes(mode=mode)),
        (Ownership(reader=7), Attributes(mode=mode, owner=8)),
        (Ownership(reader=7), Attributes()),
    ):
        assert ownership.may_read(desired, is_directory=is_directory)


@pytest.mark.parametrize(
    ("root", "mode", "is_refused"),
    [("/in", 0o040, True), ("/in", 0, False), ("sftp://h/in", 0, True), ("sftp://h/in", 0o040, True)],
)
def test_what_nobody_may_read_at_a_local_source_is_left_to_its_copy(root: str, mode: int, is_refused: bool) -> None:
    planner = CopyPlanner(root, "", parse_preserve("p"), is_metadata, ownership=Ownership(reader=7))
    differences = compare_trees([replace(entry("a"), mode=mode)], [], DifferenceRules(deletes=Deletes.OFF))
    if not is_refused:
        assert planner.plan({}, differences).file_count == 1
        return
    with pytest.raises(RejectedError, match=rf"'a' \(mode {mode:04o}\)") as refused:
        planner.plan({}, differences)
    assert refused.value.field == "preserve"
