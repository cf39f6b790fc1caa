"""What a finder may find: each dataset has a name, and places from and to which something may be copied."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.tree import Tree
from gobblin_assets.jobs.copy import parsing
from gobblin_assets.jobs.copy.copyable import CopyableDataset, FileSet
from gobblin_assets.jobs.copy.parsing import find_copy_datasets, read_copy

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WORK = ".gobblin"


def find(folder: Path, finder: dict[str, Any]) -> list[str]:
    (folder / "in").mkdir(exist_ok=True)
    places = {"source": str(folder / "in"), "destination": str(folder / "out")}
    return list(find_copy_datasets(read_copy({"job": "mirror", "kind": "distcp", "finder": finder, **places}), NOW))


class Finder:
    """A package's own."""

    def __init__(self, *found: CopyableDataset) -> None:
        self._found = found

    def find_datasets(self, tree: Tree, root: str, now: dt.datetime) -> Sequence[CopyableDataset]:
        del tree, root, now
        return self._found


@pytest.mark.parametrize(
    "found",
    [
        CopyableDataset("a", f"raw/{WORK}", "a", (FileSet(""),)),
        CopyableDataset("a", "a", WORK, (FileSet(""),)),
        CopyableDataset("a", "a", "../a", (FileSet(""),)),
        CopyableDataset("a", "a", "a", (FileSet("1", "1"), FileSet("2", f"{WORK}/2"))),
        CopyableDataset("", "a", "a", (FileSet(""),)),
    ],
)
def test_a_packages_finder_gives_places_as_they_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: CopyableDataset
) -> None:
    monkeypatch.setattr(parsing, "open_finder", lambda _options: Finder(found))

    with pytest.raises(RejectedError, match=f"the finder gives '{found.source}'") as refused:
        find(tmp_path, {"kind": "glob"})

    assert refused.value.field == "finder"


def test_a_directory_whose_path_is_too_long_for_a_name_is_named(tmp_path: Path) -> None:
    long = "/".join("n" * 200 for _ in range(6))
    for path in (long, "1/2/3/4/5/6"):
        (tmp_path / "in" / path).mkdir(parents=True)
    with pytest.raises(RejectedError, match="at most 1024 bytes") as refused:
        find(tmp_path, {"pattern": "*/*/*/*/*/*"})
    assert refused.value.field == "finder"
    assert f"'{long}'" in str(refused.value)
    assert "leave it out" in refused.value.hint

    assert find(tmp_path, {"pattern": "[!n]*/*/*/*/*/*"}) == ["1/2/3/4/5/6"]
