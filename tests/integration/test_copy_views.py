"""What commands show of copies: plan, status, ledger, verify, and what a run says."""

from pathlib import Path

import pytest

from tests.support.command_lake import ask, invoke
from tests.support.copy_folder import Folder, make_folder


@pytest.fixture
def folder(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    return make_folder(database_url, tmp_path, monkeypatch)


def test_the_ledger_lists_what_names_hold_now_and_tells_earlier_versions_apart(folder: Folder) -> None:
    folder.run()
    folder.change()
    folder.run()
    folder.write("a.txt", "the third", at_s=3_000)
    folder.run()

    def listed(*options: str) -> list[tuple[str, int, str | None]]:
        found = ask("ledger", "--files", *options)["files"]
        return sorted((Path(each["path"]).name, each["bytes"], each["became"]) for each in found)

    assert listed() == [("a.txt", 9, None), ("c.txt", 3, None)]
    earlier = [("a.txt", 3, "replaced"), ("a.txt", 6, "replaced"), ("b.txt", 3, "removed")]
    assert listed("--all") == sorted([*listed(), *earlier], key=str)
    assert "replaced" in invoke("ledger", "--files", "--all").output
