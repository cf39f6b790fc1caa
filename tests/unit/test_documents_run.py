"""What documents show is so: exit codes and completion (docs/COMMANDS.md), whole jobs, options, definitions."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from gobblin_assets.cli import output
from gobblin_assets.dagster.component import GobblinJobComponent
from gobblin_assets.service.topology_file import read_topology_file
from gobblin_assets.spec.job_kinds import read_options
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets

DOCS = Path(__file__).parents[2] / "docs"
COMMANDS = (DOCS / "COMMANDS.md").read_text(encoding="utf-8")
FIRST_HOUR = (DOCS / "TABLES.md").read_text(encoding="utf-8")
TABLES = (DOCS / "TABLES_HOWTO.md").read_text(encoding="utf-8")
INDEX = (DOCS / "README.md").read_text(encoding="utf-8")
DAGSTER = (DOCS / "DAGSTER.md").read_text(encoding="utf-8")
SAID = {0: "published", 1: "try again later", 2: "a person must correct the input", 3: "another process works on it"}


def find_blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", document, flags=re.MULTILINE | re.DOTALL)


def run_bash(script: str) -> subprocess.CompletedProcess[str]:
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_the_exit_codes_are_those_of_the_commands() -> None:
    written = {int(code) for code in re.findall(r"^\| (\d+) \|", COMMANDS, flags=re.MULTILINE)}
    assert written == {0, *(value for name, value in vars(output).items() if name.startswith("EXIT_"))}


@pytest.mark.parametrize(("code", "said"), SAID.items())
def test_the_script_tells_the_exit_codes_apart(code: int, said: str) -> None:
    script, *_completion = find_blocks(COMMANDS, "bash")
    done = run_bash(f"gobblin-assets() {{ return {code}; }}\n{script}")
    assert (done.stdout.strip(), done.returncode) == (said, code if code in {1, 2} else 0)


def test_bash_completes_commands_and_options() -> None:
    _script, completion = find_blocks(COMMANDS, "bash")
    ask = "COMPREPLY=(); _gobblin_assets_completion gobblin-assets; echo ${COMPREPLY[@]}"
    asked = "\n".join(
        f"COMP_WORDS=({words}); COMP_CWORD={words.count(' ')}; {ask}"
        for words in ("gobblin-assets com", "gobblin-assets run --no")
    )
    assert run_bash(f"{completion}{asked}").stdout.split("\n")[:2] == ["commit compact", "--no-dagster"]


@pytest.mark.parametrize(("shell", "sign"), [("zsh", "compdef"), ("fish", "complete --no-files --command")])
def test_other_shells_get_their_scripts(shell: str, sign: str) -> None:
    (line,) = find_blocks(COMMANDS, "zsh" if shell == "zsh" else "fish")
    done = run_bash(f"_GOBBLIN_ASSETS_COMPLETE={shell}_source gobblin-assets")
    assert f"_GOBBLIN_ASSETS_COMPLETE={shell}_source gobblin-assets" in line
    assert sign in done.stdout, done.stderr


def test_the_job_of_the_first_hour_is_the_one_of_the_readme_and_grows_to_a_whole_job() -> None:
    job, *added = find_blocks(FIRST_HOUR, "yaml")
    (of_readme,) = find_blocks((DOCS.parent / "README.md").read_text(encoding="utf-8"), "yaml")
    assert yaml.safe_load(job) == yaml.safe_load(of_readme)
    grown = resolve_datasets(parse_job(yaml.safe_load(job + "".join(added))), None)
    assert [str(urn) for urn in grown] == ["public.orders", "public.customers", "public.payments"]
    assert [each.name for dataset in grown.values() for each in dataset.quality.rows] == ["positive"]


def list_whole_jobs() -> list[Any]:
    """The jobs that documents show from their name on."""
    documents = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]
    blocks = [(each.name, block) for each in documents for block in find_blocks(each.read_text("utf-8"), "yaml")]
    return [pytest.param(yaml.safe_load(block), id=name) for name, block in blocks if block.startswith("job:")]


@pytest.mark.parametrize("job", list_whole_jobs())
def test_a_job_that_a_document_shows_is_read(job: dict[str, Any]) -> None:
    assert read_options(job).job == job["job"]


def list_pages(kind: str) -> list[str]:
    """The pages of one kind in the index."""
    (section,) = re.findall(rf"^## {kind}: [^\n]*\n(.*?)(?=^## |\Z)", INDEX, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\((\w+\.md)\)", section)


def test_the_index_has_every_page_once() -> None:
    listed = [page for kind in ("Tutorials", "How-to", "Reference", "Explanation") for page in list_pages(kind)]
    assert sorted(listed) == sorted(each.name for each in DOCS.glob("*.md") if each.name != "README.md")


@pytest.mark.parametrize("page", [*list_pages("Tutorials"), *list_pages("How-to")])
def test_a_page_of_tasks_shows_a_whole_job_or_a_program(page: str) -> None:
    """Which are read or run by this module or by ``test_public_names``; a developer's page has commands alone.

    Of the service, a page shows a whole topology.
    """
    document = (DOCS / page).read_text(encoding="utf-8")
    whole = [each for each in find_blocks(document, "yaml") if each.startswith(("job:", "nodes:"))]
    assert whole or find_blocks(document, "python") or page == "CONTRIBUTING.md"


def list_topologies() -> list[Any]:
    """The topologies that pages show."""
    blocks = [
        (each.name, block)
        for each in sorted(DOCS.glob("*.md"))
        for block in find_blocks(each.read_text("utf-8"), "yaml")
    ]
    return [pytest.param(block, id=name) for name, block in blocks if block.startswith("nodes:")]


@pytest.mark.parametrize("block", list_topologies())
def test_a_topology_that_a_page_shows_is_read(block: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(block, encoding="utf-8")
    assert read_topology_file(file).executors


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_says_before_its_first_section_for_whom_it_is(page: Path) -> None:
    _title, beginning, *_sections = re.split(r"^#+ .*$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "For whoever" in beginning or page.name == "README.md", beginning


def test_rows_that_fail_a_check_are_written_as_shown() -> None:
    job: dict[str, Any] = yaml.safe_load(find_blocks(TABLES, "yaml")[0])
    (dataset,) = resolve_datasets(parse_job(job), None).values()
    assert [each.on_failure for each in dataset.quality.rows] == ["fail", "err_file", "optional"]


def test_a_translation_is_written_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_SALES_URL", "jdbc:postgresql://db.example.com:5432/sales")
    component: dict[str, Any] = yaml.safe_load(find_blocks(DAGSTER, "yaml")[0])
    assert component["type"].endswith(f".{GobblinJobComponent.__name__}")
    loaded = GobblinJobComponent.from_attributes_dict(attributes=component["attributes"])
    found = loaded.build_defs(dg.ComponentTree.for_test().load_context)
    specs = [spec for each in found.assets or () if isinstance(each, dg.AssetsDefinition) for spec in each.specs]
    shown = [(spec.key.path[0], spec.group_name, spec.tags.get("tier")) for spec in specs]
    assert ("lake", "data_shop", "gold") in shown


def test_the_definitions_in_python_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALES_PASSWORD", "not one")
    program, *_functions = find_blocks(DAGSTER, "python")
    names: dict[str, Any] = {}
    exec(program, names)
    assert isinstance(names["defs"], dg.Definitions)
