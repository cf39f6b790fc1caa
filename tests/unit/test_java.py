from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.spark.java import check_java


def java_home(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return folder


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2024-01-16' >&2"


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("21", 21), ("21.0.1-ea", 21)])
def test_a_java_that_spark_takes_is_found_by_java_home_and_by_path(tmp_path: Path, version: str, major: int) -> None:
    home = java_home(tmp_path / "my java", says(version))
    assert check_java({"JAVA_HOME": str(home), "PATH": "/bin"}) == major
    assert check_java({"PATH": f"{home / 'bin'}:/bin"}) == major


@pytest.mark.parametrize(("version", "found"), [("1.8.0_392", "8"), ("11.0.1", "11"), ("25", "25")])
def test_a_wrong_java_is_named_in_one_line_with_what_is_wanted(tmp_path: Path, version: str, found: str) -> None:
    home = java_home(tmp_path, says(version))
    with pytest.raises(RejectedError, match=f"expected version 17 or 21, found version {found} ") as refused:
        check_java({"JAVA_HOME": str(home), "PATH": "/bin"})
    assert refused.value.field == "java"
    assert str(home) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    good, bad = java_home(tmp_path / "good", says("17.0.1")), java_home(tmp_path / "bad", says("11.0.1"))
    assert check_java({"JAVA_HOME": str(good), "PATH": f"{bad}/bin:/bin"}) == 17
    with pytest.raises(RejectedError, match="found version 11"):
        check_java({"JAVA_HOME": str(bad), "PATH": f"{good}/bin:/bin"})


@pytest.mark.parametrize(
    ("script", "found"),
    [("exit 1", "names no version"), ("echo hello", "names no version"), (None, "none"), ("#", "names no")],
)
def test_no_java_and_no_answer_are_refused(tmp_path: Path, script: str | None, found: str) -> None:
    path = str(java_home(tmp_path, script) / "bin") if script else str(tmp_path)
    with pytest.raises(RejectedError, match=found):
        check_java({"PATH": path})


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="JAVA_HOME"):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
