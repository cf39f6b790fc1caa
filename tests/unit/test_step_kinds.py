"""How a kind of step is found: built in, registered by code, or by the entry point of a package."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from gobblin_assets.commit.step_kinds import (
    GROUP,
    StepKindMissingError,
    find_provider,
    get_kind,
    register_step,
)
from gobblin_assets.commit.step_world import StepPorts, register_port
from gobblin_assets.commit.steps import StepKind
from gobblin_assets.destinations.files.rename_steps import RENAME_KINDS
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.file_system import FileSystem
from gobblin_assets.fs.registry import open_file_system
from tests.support.custom_steps import CATALOGUES, ENTER, REGISTER, Catalogue, open_catalogue, registered


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packages are installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def offer(site: Path, name: str, value: str, package: str = "a-package") -> str:
    """Install a package that offers a kind."""
    metadata = site / f"{package.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n", encoding="utf-8")
    return name


def test_our_own_kinds_are_known_without_an_entry_point() -> None:
    for kind in RENAME_KINDS:
        assert get_kind(kind.name) is kind
        assert find_provider(kind.name) is None


def test_a_kind_is_found_by_its_entry_point_with_its_openers(site: Path) -> None:
    name = offer(site, "tests.enter", "tests.support.custom_steps:ENTER")
    assert get_kind(name) is ENTER
    assert find_provider(name) == {"package": "a-package"}
    with StepPorts() as ports:
        assert isinstance(ports.get(Catalogue, "c"), Catalogue)
        assert CATALOGUES["c"].opened == CATALOGUES["c"].closed + 1


def test_a_name_belongs_to_the_first_who_registers_it() -> None:
    register_step(REGISTER)
    register_step(REGISTER)
    for taken in ("tests.register", "rename_file"):
        with pytest.raises(RejectedError, match=f"the step kind '{taken}' is already registered"):
            register_step(StepKind(taken, REGISTER.codec))


def test_a_type_has_one_opener() -> None:
    register_port(Catalogue, open_catalogue)
    register_port(Catalogue, open_catalogue)
    with pytest.raises(RejectedError, match="an opener of Catalogue is registered already"):
        register_port(Catalogue, partial(open_catalogue))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("tests.no_such_module:KIND", "can't be loaded: ModuleNotFoundError"),
        ("tests.support.custom_steps:NOTHING", "can't be loaded: AttributeError"),
        ("tests.support.custom_steps:CATALOGUES", "is no StepKind of that name"),
        ("tests.support.custom_steps:REGISTER", "is no StepKind of that name"),
    ],
)
def test_an_entry_point_that_is_wrong_is_told_with_its_package(site: Path, value: str, said: str) -> None:
    name = offer(site, "tests.other", value)
    with pytest.raises(StepKindMissingError, match="of the package 'a-package'") as caught:
        get_kind(name)
    assert said in caught.value.message


def test_a_kind_that_two_packages_offer_is_refused_with_both_names(site: Path) -> None:
    offer(site, "tests.register", "tests.support.custom_steps:REGISTER")
    offer(site, "tests.register", "tests.support.lake:World", "b-package")
    with pytest.raises(StepKindMissingError, match="by several packages: a-package, b-package"):
        get_kind("tests.register")


@pytest.mark.parametrize(
    ("provider", "fix"),
    [
        ({"package": "a-package"}, "Install the package 'a-package' (entry point 'tests.gone'"),
        ({"module": "a.module"}, "Import the module 'a.module'"),
        (None, "Install the package that has this kind"),
    ],
)
def test_who_wrote_it_is_told_where_a_kind_is_missing(provider: dict[str, str] | None, fix: str) -> None:
    with pytest.raises(StepKindMissingError) as caught:
        get_kind("tests.gone", provider)
    assert fix in caught.value.hint


def test_no_package_is_imported_before_the_log_holds_a_step_of_it(site: Path) -> None:
    offer(site, "tests.register", "tests.support.custom_steps:REGISTER")
    program = "import sys, gobblin_assets.commit.segment; assert not [m for m in sys.modules if m.startswith('tests')]"
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(site)}, check=True, timeout=100)


def test_the_file_system_of_another_destination_is_opened_once(tmp_path: Path) -> None:
    opened = []

    def open_counted(uri: str) -> tuple[FileSystem, str]:
        opened.append(uri)
        return open_file_system(uri)

    with StepPorts(open_counted) as ports:
        assert [ports.get(FileSystem, str(tmp_path)).scheme for _twice in range(2)] == ["file", "file"]
    assert opened == [str(tmp_path)]


def test_what_fails_while_it_is_closed_is_told_as_a_family() -> None:
    @contextmanager
    def open_badly(_name: str) -> Iterator[Catalogue]:
        yield Catalogue()
        raise ValueError("password=verysecret")

    register_port(Catalogue, open_badly)
    with pytest.raises(RetryableError) as caught, StepPorts() as ports:
        ports.get(Catalogue, "c")
    assert str(caught.value) == "what the steps opened can't be closed: ValueError"
