import os
from pathlib import Path

import pytest

from gobblin_assets.spark.class_archive import archive_path, with_archive

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java and a cache folder of this test's own; the cache's name has a blank."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    return java


@pytest.fixture
def archive(java: Path) -> Path:
    archive = archive_path()
    archive.parent.mkdir(parents=True)
    archive.touch()
    return archive


def test_without_an_archive_nothing_is_asked_of_the_jvm(java: Path) -> None:
    assert java.exists()
    assert with_archive({DRIVER_OPTIONS: "-Dx=y"}) == {DRIVER_OPTIONS: "-Dx=y"}


def test_an_archive_comes_before_the_options_that_are_there(archive: Path) -> None:
    options = with_archive({DRIVER_OPTIONS: "-Dx=y"})[DRIVER_OPTIONS]
    assert options == f'-Xshare:auto "-XX:SharedArchiveFile={archive}" -Dx=y'


def test_a_user_s_own_archive_stays(archive: Path) -> None:
    assert archive.exists()
    own = {DRIVER_OPTIONS: "-XX:SharedArchiveFile=/own.jsa"}
    assert with_archive(own) == own


def test_another_owner_s_archive_is_left_alone(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = archive.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert with_archive({}) == {}


def test_another_java_has_another_archive(archive: Path, java: Path) -> None:
    os.utime(java, ns=(0, java.stat().st_mtime_ns + 1))
    assert archive_path() != archive
    assert with_archive({}) == {}
