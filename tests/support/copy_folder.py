"""A folder with the file of a job that copies, and the tree that it copies."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command_lake import invoke

COPY_JOB = """
job: mirror
kind: distcp
source: ./in
destination: ./out
datasets:
  - {urn: docs, deletes: ours}
"""


@dataclass(frozen=True)
class Folder:
    """A job's file ``mirror.yaml`` with a tree to copy."""

    path: Path

    @property
    def job(self) -> str:
        return str(self.path / "mirror.yaml")

    def write(self, name: str, text: str, *, at_s: int) -> None:
        place = self.path / "in" / "docs" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        os.utime(place, (at_s, at_s))

    def remove(self, name: str) -> None:
        (self.path / "in" / "docs" / name).unlink()

    def at(self, name: str) -> Path:
        return self.path / "out" / "docs" / name

    def run(self) -> None:
        found = invoke("run", self.job)
        assert found.exit_code == 0, found.output

    def change(self) -> None:
        """A file is replaced, one is new in a new directory, and one is gone."""
        self.write("a.txt", "longer", at_s=2_000)
        self.write("sub/c.txt", "new", at_s=2_000)
        self.remove("b.txt")


def make_folder(database_url: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """With two files to copy, and the environment in which commands find the log."""
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    monkeypatch.setenv("GOBBLIN_HOME", str(path / "home"))
    made = Folder(path)
    Path(made.job).write_text(COPY_JOB, encoding="utf-8")
    made.write("a.txt", "one", at_s=1_000)
    made.write("b.txt", "two", at_s=1_000)
    return made
