"""The set-up: locks that agree with each other and with the project, and one line about what a machine lacks."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools" / "check_machine.py"
CHECK_S_MAX = 60

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def read_pins(name: str) -> dict[str, str]:
    """Versions by name. Every pin has a hash."""
    found = {}
    for package, version, rest in _PIN.findall((ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")):
        assert "--hash=sha256:" in rest, f"{package} is not hashed in {name}.lock"
        found[canonicalize_name(package)] = version
    return found


def test_the_locks_agree() -> None:
    everything = read_pins("dev")
    for name in ("runtime", "bootstrap"):
        pins = read_pins(name)
        assert pins
        assert pins.items() <= everything.items()


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pins = read_pins("dev")
    asked = [
        *project["project"]["dependencies"],
        *(line for extra in project["project"]["optional-dependencies"].values() for line in extra),
        *project["dependency-groups"]["dev"],
        *project["build-system"]["requires"],
    ]
    for requirement in map(Requirement, asked):
        locked = pins.get(canonicalize_name(requirement.name))
        assert locked is not None, f"run make lock: {requirement} is missing"
        assert requirement.specifier.contains(locked), f"run make lock: {requirement} is not {locked}"


def ask_machine(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=CHECK_S_MAX,
    )


def test_this_machine_has_what_is_needed() -> None:
    assert ask_machine("java").returncode == 0


@pytest.mark.parametrize("version", ["11.0.2", "25"])
def test_a_wrong_java_gets_one_line_that_names_both_versions(tmp_path: Path, version: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    answer = ask_machine("java", JAVA_HOME=str(tmp_path))
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert "17 or 21" in line
    assert f"found version {version.partition('.')[0]} " in line


def test_a_missing_java_gets_one_line(tmp_path: Path) -> None:
    answer = ask_machine("java", JAVA_HOME="", PATH=str(tmp_path))
    assert answer.returncode == 1
    (line,) = answer.stderr.splitlines()
    assert "expected version 17 or 21, found none" in line
