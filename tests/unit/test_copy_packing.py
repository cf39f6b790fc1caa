"""Items on their way to writers: what is unpacked is what was planned."""

import pytest

from gobblin_assets.fs.tree import EntryKind, TreeEntry, make_placement
from gobblin_assets.jobs.copy.copyable import Attributes, Conversion, CopyItem, PackedOrigin, PlannedFile
from gobblin_assets.jobs.copy.transfer.bins import SplitPart
from gobblin_assets.jobs.copy.transfer.writing import pack_item, pack_part, unpack_item, unpack_part
from gobblin_assets.model.files import FileIdentity

ORIGIN = TreeEntry("in/a", EntryKind.FILE, FileIdentity(12, 3, 9, "tag"), changed_ns=11)
DESIRED = Attributes(0o640, 1, 2, 9, (("user.x", b"\0"),), make_placement("u", None, 3, None))
PARTS = (PackedOrigin.of(ORIGIN), PackedOrigin("in", is_directory=True, size_bytes=0, mode=0o755))
FILES = (
    PlannedFile.of("d/a", ORIGIN),
    PlannedFile.of("d/e/b", ORIGIN, DESIRED, Conversion(5, (0, 1), "m", (2,))),
    PlannedFile.of("d/c.tar", ORIGIN, conversion=Conversion(5, parts=PARTS)),
)


@pytest.mark.parametrize(
    "item",
    [
        CopyItem(7, "d/a", FILES[:1]),
        CopyItem(8, "d", FILES, is_directory=True, directories=(("e", DESIRED), ("f", Attributes())), desired=DESIRED),
        CopyItem(9, "", FILES[:2], is_directory=True),
    ],
)
def test_an_item_is_unpacked_as_it_was_planned(item: CopyItem) -> None:
    assert unpack_item(pack_item(item)) == item


def test_a_part_is_unpacked_with_its_target() -> None:
    part = SplitPart(CopyItem(7, "d/a", FILES[:1]), 2, 8, 4)
    assert unpack_part(pack_part(part, "/attempt/splits/7")) == (part, "/attempt/splits/7")


@pytest.mark.parametrize(("directory", "place"), [("d", "e/b"), ("d/e", "b"), ("", "d/e/b")])
def test_a_file_of_a_directory_has_a_place_in_it(directory: str, place: str) -> None:
    assert CopyItem(1, directory, FILES, is_directory=True).place_of(FILES[1]) == place
