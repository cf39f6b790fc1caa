"""Dagster's resource of a kind of source: one that a package offers, else one made of the connection's fields."""

from pathlib import Path

import pytest

from gobblin_assets.dagster.resources.connections import SOURCE_RESOURCES, resource_class
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.postgres_log.log_database import LogDatabase
from gobblin_assets.sources.postgres_log.postgres_log_kind import POSTGRES_LOG

WRITTEN = """
from gobblin_assets.dagster.resources.connections import SourceConnectionResource
from gobblin_assets.sources.postgres_log.log_database import LogDatabase


class WrittenLogResource(SourceConnectionResource):
    FIELDS = LogDatabase
    KIND = "postgres_log"
"""


def offer(folder: Path, value: str) -> None:
    (folder / "written_log.py").write_text(WRITTEN, encoding="utf-8")
    (folder / "written_log-1.0.dist-info").mkdir()
    for name, text in {
        "METADATA": "Metadata-Version: 2.1\nName: written-log\nVersion: 1.0\n",
        "entry_points.txt": f"[gobblin_assets.source_resources]\npostgres_log = {value}\n",
    }.items():
        (folder / "written_log-1.0.dist-info" / name).write_text(text, encoding="utf-8")


def test_a_kind_without_a_written_resource_gets_one_of_its_fields() -> None:
    made = resource_class(POSTGRES_LOG)
    assert made.__name__ == "LogDatabaseResource"
    assert made.FIELDS is LogDatabase
    assert made is resource_class(POSTGRES_LOG)


def test_a_package_offers_the_resource_of_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "written_log:WrittenLogResource")
    monkeypatch.setattr(SOURCE_RESOURCES, "_known", {})
    monkeypatch.syspath_prepend(tmp_path)
    assert resource_class(POSTGRES_LOG).__name__ == "WrittenLogResource"


def test_what_is_no_resource_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, "written_log:LogDatabase")
    monkeypatch.setattr(SOURCE_RESOURCES, "_known", {})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RejectedError, match="is no resource of a kind of source"):
        resource_class(POSTGRES_LOG)
