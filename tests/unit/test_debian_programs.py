"""Programs of Debian's packages for demos and tests: fetched once, with lists of their own, or refused with reasons."""

from pathlib import Path

import pytest

from demo.debian_programs import find_debian_files
from gobblin_assets.errors import RejectedError

# It knows no package until it has fetched lists into a folder that it is told.
APT = """#!/bin/sh
lists=$(printf '%s\\n' "$@" | sed -n 's/^Dir::State::lists=//p')
case "$*" in
*update) touch "$lists/there" ;;
*download*known)
  [ -n "$lists" ] && [ -e "$lists/there" ] || { echo "E: Unable to locate package known" >&2; exit 100; }
  touch known_1.deb ;;
*) echo "E: Unable to locate package" >&2; exit 100 ;;
esac
"""
DPKG = '#!/bin/sh\nmkdir -p "$3/usr/sbin" && touch "$3/usr/sbin/known"\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    for name, text in (("apt-get", APT), ("dpkg-deb", DPKG)):
        program = tmp_path / "bin" / name
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
    return tmp_path / "cache" / "gobblin-assets"


def test_a_package_is_fetched_once_also_where_the_machine_has_no_lists(cache: Path) -> None:
    said: list[str] = []
    found = find_debian_files("known", ["known"], ["*/sbin/known"], say=said.append)
    again = find_debian_files("known", ["known"], ["*/sbin/known"], say=said.append)
    assert found == again == (cache / "known/usr/sbin/known",)
    assert said == [f"Fetching known from the packages of Debian, once, into {cache / 'known'}"]


def test_what_apt_says_and_the_fix_are_told(cache: Path) -> None:
    with pytest.raises(RejectedError, match=r"(?s)apt-get can't fetch it.*Unable to locate.*Install the package other"):
        find_debian_files("other", ["other"], ["*/sbin/other"])
    assert not (cache / "other").exists()


def test_a_package_without_the_program_is_refused_and_not_kept(cache: Path) -> None:
    with pytest.raises(RejectedError, match=r"the packages known have no \*/sbin/other"):
        find_debian_files("other", ["known"], ["*/sbin/other"])
    assert not (cache / "other").exists()


def test_a_machine_without_apt_is_told_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(RejectedError, match=r"no apt-get that could fetch it\. Install the package known"):
        find_debian_files("known", ["known"], ["*/sbin/known"])
