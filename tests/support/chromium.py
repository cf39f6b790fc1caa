"""A Chromium for tests of pages, brought once into the user's cache folder, without a right of root.

The build that playwright was made for comes from its own servers. Where these can't be reached, Debian's packages come
by apt, with the libraries that the machine lacks, and are unpacked into a folder. Where neither can be had, tests that
need a browser are skipped.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import cache_folder

_OWN_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_BROUGHT: Final = ("*/*/chrome-headless-shell", "*/*/headless_shell", "usr/lib/chromium/chromium")
_BRING_S_MAX: Final = 600.0
_TRY_S_MAX: Final = 60.0
_LOG_CHARACTERS_MAX: Final = 1_000
_WAIT_MS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Chromium:
    """The program, and what its processes have in their environment besides this one's."""

    program: Path
    environment: Mapping[str, str]

    def starts(self) -> bool:
        """False for a program that lacks a library, or only says how it is installed."""
        done = subprocess.run(
            [str(self.program), "--version"],
            env={**os.environ, **self.environment},
            capture_output=True,
            check=False,
            timeout=_TRY_S_MAX,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode == 0


def install_chromium() -> Chromium:
    """The machine's, or the one that is brought. RejectedError where none can be had."""
    for name in _OWN_NAMES:
        if (found := shutil.which(name)) and (own := Chromium(Path(found), {})).starts():
            return own
    home = cache_folder() / f"chromium-{version('playwright')}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / "chromium.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _bring(home)
    return _find_in(home)


def _bring(home: Path) -> None:
    said = ""
    for bring in (_bring_by_playwright, _bring_by_apt):
        with tempfile.TemporaryDirectory(prefix="chromium.", dir=home.parent) as folder:
            work = Path(folder) / "found"
            work.mkdir()
            try:
                bring(work)
                is_whole = _find_in(work).starts()
            except (RejectedError, OSError, subprocess.SubprocessError) as error:
                said, is_whole = f"{said}\n{error}", False
            if is_whole:
                # It appears complete, by a rename.
                work.rename(home)
                return
    hint = "The servers of playwright, or a Debian mirror, must be reachable."
    raise RejectedError(f"no Chromium could be brought:{said}", field="chromium", hint=hint)


def _bring_by_playwright(work: Path) -> None:
    command = [sys.executable, "-m", "playwright", "install", "chromium-headless-shell"]
    _run(command, work, PLAYWRIGHT_BROWSERS_PATH=str(work))


def _bring_by_apt(work: Path) -> None:
    """The package and those it needs that the machine lacks."""
    planned = _run(["apt-get", "--simulate", "--no-install-recommends", "install", "chromium"], work)
    names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    _run(["apt-get", "download", *names], work)
    for package in sorted(work.glob("*.deb")):
        _run(["dpkg-deb", "-x", package.name, "."], work)
        package.unlink()
    # Pictures and documents, half of all bytes.
    shutil.rmtree(work / "usr" / "share", ignore_errors=True)


def _run(command: list[str], folder: Path, **variables: str) -> str:
    """What the command says. RejectedError where it is missing, or fails."""
    if shutil.which(command[0]) is None:
        raise RejectedError(f"there is no {command[0]}", field="chromium", hint="Install it, or a Chromium.")
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
        timeout=_BRING_S_MAX,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace")[-_LOG_CHARACTERS_MAX:]
        raise RejectedError(f"{' '.join(command[:4])}: {text}", field="chromium", hint="Install a Chromium.")
    return done.stdout.decode()


def _find_in(home: Path) -> Chromium:
    program = next((path for pattern in _BROUGHT for path in home.glob(pattern)), None)
    if program is None:
        raise RejectedError(f"there is no Chromium in {home}", field="chromium", hint="Remove the folder.")
    folders = sorted({str(path.parent) for path in (home / "usr" / "lib").glob("*-linux-*/**/lib*.so*")})
    return Chromium(program, {"LD_LIBRARY_PATH": os.pathsep.join(folders)} if folders else {})


@contextmanager
def run_browser() -> Iterator[Browser]:
    """One browser, without a window. Skips the test where there is none."""
    try:
        chromium = install_chromium()
    except RejectedError as error:
        pytest.skip(f"there is no browser: {error}")
    with sync_playwright() as playwright:
        environment = {**os.environ, **chromium.environment}
        browser = playwright.chromium.launch(executable_path=chromium.program, env=environment)
        try:
            yield browser
        finally:
            browser.close()


def open_page(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of a site, for a fixture: at the end, the browser must have had nothing to complain of."""
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(_WAIT_MS_MAX)
    complaints: list[str] = []
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    # The browser says of each answer from 400 on that it is one; tests look at those themselves.
    context.on(
        "console",
        lambda said: (
            complaints.append(said.text)
            if said.type in {"error", "warning"} and not said.text.startswith("Failed to load resource")
            else None
        ),
    )
    yield context.new_page()
    context.close()
    assert not complaints
