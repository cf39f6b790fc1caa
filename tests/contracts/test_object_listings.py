"""Names that should be free are looked at by one listing, and by a look at each where that tells more or costs less."""

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import google_crc32c
import pytest

from gobblin_assets.commit.object_attempts import ID_KEY
from gobblin_assets.commit.step_calls import execute_steps, verify_steps
from gobblin_assets.commit.step_world import StepPorts, StepWorld
from gobblin_assets.commit.steps import StepVerdict
from gobblin_assets.destinations.files.upload_step import object_id
from gobblin_assets.destinations.fixed_names.object_steps import PlaceObject
from gobblin_assets.fs.object_listings import (
    ENTRIES_PER_NAME_MAX,
    LISTING_WORTH,
    PAGE_ENTRIES,
    find_free_names,
    look_at_files,
)
from gobblin_assets.fs.object_work import ObjectWorkFiles, identity_of
from gobblin_assets.fs.objects import ObjectEntry, expected_etag
from gobblin_assets.model.files import FileIdentity
from tests.support.object_store import MemoryObjects, ObjectStore

TREE = "/bucket/tree"
STAGING = f"{TREE}/.gobblin/.staging/{uuid.UUID(int=5).hex}"


@dataclass(frozen=True)
class CountingObjects(MemoryObjects):
    """``looked``: the paths of single looks. ``listed``: the directories of listings."""

    looked: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    def find_object(self, path: str) -> ObjectEntry | None:
        self.looked.append(path)
        return MemoryObjects.find_object(self, path)

    def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
        self.listed.append(directory)
        return MemoryObjects.list_objects(self, directory, after)


@pytest.fixture
def files() -> CountingObjects:
    return CountingObjects(ObjectStore())


def new_world(files: CountingObjects) -> StepWorld:
    return StepWorld(ObjectWorkFiles(files), StepPorts())


def stage(files: CountingObjects, path: str, number: str) -> PlaceObject:
    upload = files.begin_upload(path, {ID_KEY: object_id(STAGING, number)})
    part = files.write_part(path, upload, 1, b"new", google_crc32c.value(b"new"))
    return PlaceObject(STAGING, path, number, upload, (part,), FileIdentity(3, None, 17, expected_etag((part,))))


def test_free_names_cost_one_listing(files: CountingObjects) -> None:
    names = [f"{TREE}/a/{number:02}" for number in range(20)] + [f"{TREE}/a/b/{number:02}" for number in range(20)]
    steps = [stage(files, name, str(number)) for number, name in enumerate(names)]
    execute_steps(steps[5:6], new_world(files))
    files.put_if_absent(names[30], b"a stranger's")
    files.put_if_absent(f"{TREE}/a/05-other", b"between")
    files.looked.clear()

    verdicts = verify_steps(steps, new_world(files))

    expected = {5: StepVerdict.DONE, 30: StepVerdict.CONFLICT}
    assert verdicts == [expected.get(number, StepVerdict.DO) for number in range(len(names))]
    assert files.listed == [f"{TREE}/a"]
    # The listing begins behind the first name, and what it finds says by its metadata whose it is.
    assert set(files.looked) == {names[0], names[5], names[30]}


def test_what_was_done_is_looked_at_one_by_one(files: CountingObjects) -> None:
    steps = [stage(files, f"{TREE}/{number:02}", str(number)) for number in range(20)]
    execute_steps(steps, new_world(files))
    files.looked.clear()
    assert set(verify_steps(steps, new_world(files))) == {StepVerdict.DONE}
    assert set(files.looked) == {step.target for step in steps}


def test_an_upload_that_is_gone_is_lost_although_its_name_is_free(files: CountingObjects) -> None:
    steps = [stage(files, f"{TREE}/{number:02}", str(number)) for number in range(20)]
    files.abort_upload(steps[7].target, steps[7].upload)
    world = new_world(files)
    execute_steps(steps[7:8], world)
    assert verify_steps(steps, world)[7] is StepVerdict.LOST


def test_few_names_are_not_listed(files: CountingObjects) -> None:
    assert not find_free_names(files, [f"{TREE}/{number}" for number in range(LISTING_WORTH - 1)])
    assert not find_free_names(files, [])
    assert not files.listed


def test_names_far_apart_are_not_listed_to_their_end(files: CountingObjects) -> None:
    names = [f"{TREE}/{number:02}" for number in range(20)]
    between = PAGE_ENTRIES + ENTRIES_PER_NAME_MAX * len(names)
    for number in range(between):
        files.store.put(f"{names[9]}-{number:05}", b"")
    taken = []

    def note(entry: ObjectEntry) -> ObjectEntry:
        taken.append(entry)
        return entry

    class Noting(CountingObjects):
        def list_objects(self, directory: str, after: str = "") -> Iterator[ObjectEntry]:
            return map(note, MemoryObjects.list_objects(self, directory, after))

    free = find_free_names(Noting(files.store), names)

    assert free == frozenset(names[1:10])
    assert len(taken) < between


def test_what_stands_at_many_names_costs_one_listing(files: CountingObjects) -> None:
    names = [f"{TREE}/{number:02}" for number in range(40)]
    for name in names[::2]:
        files.store.put(name, name.encode())
    expected = {name: files.find_object(name) for name in names}
    files.looked.clear()

    found = look_at_files(ObjectWorkFiles(files, 4), names)

    assert found == {name: None if each is None else identity_of(each) for name, each in expected.items()}
    assert files.listed == [TREE]
    assert files.looked == names[:1]


@pytest.mark.parametrize("calls_at_once", [1, 4])
def test_what_no_listing_tells_is_looked_at_side_by_side(files: CountingObjects, calls_at_once: int) -> None:
    names = [f"{TREE}/{number:02}" for number in range(LISTING_WORTH - 1)]
    files.store.put(names[3], b"three")
    under_way, most = Counter[str](), [0]

    class Slow(CountingObjects):
        def find_object(self, path: str) -> ObjectEntry | None:
            under_way["looks"] += 1
            most.append(under_way["looks"])
            time.sleep(0.01)
            under_way["looks"] -= 1
            return MemoryObjects.find_object(self, path)

    found = look_at_files(ObjectWorkFiles(Slow(files.store), calls_at_once), names)

    assert [name for name, each in found.items() if each is not None] == [names[3]]
    assert max(most) == calls_at_once


def test_names_are_compared_as_stores_list_them(files: CountingObjects) -> None:
    """By bytes of UTF-8: a character beyond the first 65,536 comes after U+FFFD."""
    odd = ["\U0001f600", "\ufffd", "é", "e", "~", "z/é", "z", "Z"]
    names = [f"{TREE}/{name}{number}" for name in odd for number in range(3)]
    for name in names[1::3]:
        files.store.put(name, b"")
    first = min(names, key=str.encode)
    assert find_free_names(files, names) == frozenset(names) - {first, *names[1::3]}


def test_directories_are_found_by_their_name() -> None:
    objects = MemoryObjects(ObjectStore())
    for key in (".x/a", "a/.x/inside/.x/b", "a/.x/c", "b/c/.x/d", "d/.x", "e/.xy/f"):
        objects.put_if_absent(f"{TREE}/{key}", b"")

    found = list(ObjectWorkFiles(objects).find_directories(TREE, ".x"))

    assert found == [f"{TREE}/{each}" for each in (".x", "a/.x", "b/c/.x")]
