"""What only the plan can refuse: times and names that can't be published, whatever the options are."""

import os
from pathlib import Path

import pytest

from gobblin_assets.errors import ErrorFamily
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.refusals import find_name_lengths
from gobblin_assets.run.run_values import RunReport
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, files_of

lake = copy_lake.lake
job = copy_lake.job

FAR_S = 10_413_792_000
"""In the year 2300."""


def refused(report: RunReport) -> str:
    """What the dataset ``albums`` says, which fails alone."""
    assert [(each.urn, each.error_family) for each in report.failed] == [("albums", ErrorFamily.REJECTED)]
    return str(report.failed[0].error)


def make_far(path: Path) -> None:
    os.utime(path, (FAR_S, FAR_S))
    if path.stat().st_mtime_ns != FAR_S * 10**9:
        pytest.skip("this file system keeps no such times")


@pytest.mark.parametrize("name", ["kept.bin", "trip", "trip/first.bin"])
def test_a_far_time_at_the_source_fails_its_dataset_alone(lake: CopyLake, job: Open, name: str) -> None:
    lake.write("albums/trip/first.bin", 1)
    make_far(lake.source / "albums" / name)

    said = refused(job().run())

    assert said.startswith("source: ")
    assert repr(name) in said
    assert set(files_of(lake.tree)) == {"logs/app/today.log"}


@pytest.mark.parametrize("replaces", [True, False])
def test_a_far_time_at_the_destination(lake: CopyLake, job: Open, replaces: bool) -> None:
    assert not job().run().failed
    make_far(lake.tree / "albums/kept.bin")
    if not replaces:
        (lake.source / "albums/kept.bin").unlink()

    said = refused(job(deletes="all").run())

    assert said.startswith("destination: ")
    assert "'kept.bin'" in said
    assert "albums/kept.bin" in files_of(lake.tree)


def test_a_name_that_a_converter_makes_too_long(lake: CopyLake, job: Open) -> None:
    lake.write(f"albums/{'x' * 253}", 1)

    said = refused(job(converters=["gzip"]).run())

    assert said.startswith("converters: ")
    assert f"(made of '{'x' * 253}') would have 256 bytes" in said
    assert not [name for name in files_of(lake.tree) if name.startswith("albums/")]


def test_a_path_that_only_the_destination_makes_too_long(lake: CopyLake, job: Open) -> None:
    deep = "/".join(["d" * 200] * 14)
    lake.write(f"albums/{deep}/file", 1)
    to = "/".join(["t" * 200] * 7)

    said = refused(job({"datasets": [{"urn": "albums", "to": to}, {"urn": "logs/app"}]}).run())

    assert said.startswith("destination: ")
    assert "would lead to a path of more than the 4,095 bytes" in said
    assert set(files_of(lake.tree)) == {"logs/app/today.log"}


def test_the_limits_of_a_local_disk_are_asked_for_and_those_of_a_bucket_known(tmp_path: Path) -> None:
    files = PosixNamedFiles()
    limits = files.find_name_limits(f"{tmp_path}/not/there/yet")
    assert limits.name_bytes_max == os.pathconf(tmp_path, "PC_NAME_MAX")
    assert limits.path_bytes_max == os.pathconf(tmp_path, "PC_PATH_MAX") - 1
    lengths = find_name_lengths(None, "/bucket/lake", "/bucket/lake/photos")
    assert lengths.find_trouble("x" * (1_024 - len("lake/photos/"))) is None
    assert "1,024 bytes" in str(lengths.find_trouble("x" * (1_025 - len("lake/photos/"))))
