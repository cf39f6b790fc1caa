"""Links on the way from a job's source to what is copied."""

import os
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.errors import ErrorFamily, RejectedError
from gobblin_assets.run.run_values import RunReport
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, files_of

job = copy_lake.job


@pytest.fixture
def lake(database_url: str, tmp_path: Path) -> CopyLake:
    made = CopyLake(database_url, str(tmp_path))
    made.make_source()
    (tmp_path / "secret/sub").mkdir(parents=True)
    (tmp_path / "secret/sub/f").write_text("secret")
    return made


def said(report: RunReport) -> str:
    """What the failures of a run say, all of them of the family of wrong input."""
    assert {each.error_family for each in report.failed} == {ErrorFamily.REJECTED}
    return " ".join(str(each.error) for each in report.failed)


@pytest.mark.parametrize("links", ["fail", "skip", "follow"])
@pytest.mark.parametrize(
    "way",
    [
        {"datasets": [{"urn": "d"}, {"urn": "d/sub", "to": "x"}]},
        {"datasets": [], "finder": {"kind": "glob", "pattern": "d/*"}},
        {"datasets": [], "finder": {"kind": "manifest", "path": "{d}/m.jsonl"}},
    ],
    ids=["written", "found", "named"],
)
def test_no_link_leads_out_of_the_source(
    lake: CopyLake, job: Open, tmp_path: Path, way: dict[str, Any], links: str
) -> None:
    (lake.source / "d").symlink_to("../secret")
    (tmp_path / "m.jsonl").write_text('{"path": "d/sub/f"}\n')
    if "finder" in way:
        way = {**way, "finder": {name: value.format(d=tmp_path) for name, value in way["finder"].items()}}
    world = job(way, links=links)
    try:
        refused = said(world.run())
    except RejectedError as error:
        # Finders refuse all of a run.
        refused = str(error)
    assert refused
    assert files_of(lake.tree) == {}


def test_a_link_to_a_name_that_is_no_utf8_fails_its_dataset_alone(lake: CopyLake, job: Open) -> None:
    (lake.source / "albums/link").symlink_to(os.fsdecode(b"../../\xff"))

    world = job(links="follow")
    refused = said(world.run())

    assert "albums/link leads" in refused
    assert r"\udcff" in refused
    assert set(files_of(lake.tree)) == {"logs/app/today.log"}
    assert world.scalar("SELECT count(*) FROM gobblin.run_dataset WHERE error LIKE '%udcff%'") == 1


@pytest.mark.parametrize("links", ["fail", "skip"])
def test_a_link_inside_the_source_is_followed_where_that_is_asked(lake: CopyLake, job: Open, links: str) -> None:
    (lake.source / "alias").symlink_to("albums")
    datasets = {"datasets": [{"urn": "alias"}]}
    refused = said(job(datasets, links=links).run())
    assert "links: " in refused
    assert f"{lake.source}/alias is a link" in refused
    assert files_of(lake.tree) == {}

    assert not job(datasets, links="follow").run().failed

    assert "alias/kept.bin" in files_of(lake.tree)


@pytest.mark.parametrize("target", ["lake", "lake/albums", ""])
def test_a_link_that_leads_to_the_destination(lake: CopyLake, job: Open, target: str) -> None:
    """The source has the destination by a link only."""
    (lake.source / "d").symlink_to(Path(lake.directory, target), target_is_directory=True)
    (lake.tree / "albums").mkdir(parents=True)

    assert "source: the link" in said(job({"datasets": [{"urn": "d"}]}, links="follow").run())


def test_a_link_that_leads_nowhere_or_to_itself(lake: CopyLake, job: Open) -> None:
    (lake.source / "lost").symlink_to("nothing")
    (lake.source / "loop").symlink_to("loop")
    datasets = {"datasets": [{"urn": "lost"}, {"urn": "loop"}]}

    refused = said(job(datasets, links="follow").run())

    assert "lost leads nowhere" in refused
    assert "loop can't be followed" in refused


def test_a_source_that_is_a_link_itself(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    """As a mount often is."""
    (tmp_path / "mounted").symlink_to(lake.source)

    for links in ("fail", "follow"):
        assert not job({"source": f"{tmp_path}/mounted"}, links=links).run().failed

    assert files_of(lake.tree) == files_of(lake.source)


def test_a_file_set_behind_a_link(lake: CopyLake, job: Open, tmp_path: Path) -> None:
    lake.write("topics/clicks/2026/01/01/part", 1)
    (lake.source / "topics/clicks/2026/02").symlink_to(tmp_path / "secret")
    finder = {"datasets": [], "finder": {"kind": "stream", "pattern": "topics/*/%Y/%m/%d"}}

    assert not job(finder).run().failed

    assert set(files_of(lake.tree)) == {"clicks/2026/01/01/part"}
