"""The document of figures keeps what a person wrote when tables are measured again."""

from pathlib import Path

import pytest

from benchmarks.document import Conditions, replace_conditions, replace_tables, write_document
from benchmarks.tables import Table

FIGURES = Path(__file__).parents[2] / "docs" / "BENCHMARKS.md"
STEPS = Table("Steps", ("what", "median"), (("staging", "1 s"),))
BUSY = Conditions(runs=3, before="9.1", after="9.2")


def split_document(document: str) -> tuple[str, str]:
    written, heading, tables = document.partition("## All tables\n")
    assert heading
    return written, tables


def test_a_measured_table_takes_the_place_of_the_one_with_its_title() -> None:
    old = "# Figures\n\n## All tables\n\n### Steps\n\n| old |\n\n### Steps of others\n\n| other |\n"
    new = replace_tables(old, [STEPS])
    assert new == f"# Figures\n\n## All tables\n\n{STEPS.write()}\n### Steps of others\n\n| other |\n"
    assert replace_tables(new, [STEPS]) == new


def test_a_table_with_a_new_title_stands_behind_all_others() -> None:
    old = "# Figures\n\n## All tables\n\n### Memory\n\n| old |\n"
    assert replace_tables(old, [STEPS]) == f"{old}\n{STEPS.write()}"


def test_the_first_table_and_the_laboratory_book_stay() -> None:
    figures = FIGURES.read_text(encoding="utf-8")
    assert "| what | beside what | measured | goal | |" in split_document(figures)[0].partition("\n## ")[0]
    new = replace_tables(figures, [Table("Steps: staging and sealing", ("what",), (("new",),))])
    assert split_document(new)[0] == split_document(figures)[0]
    assert split_document(new)[1] != split_document(figures)[1]
    assert new.count("### Steps: staging and sealing\n") == 1


def test_a_whole_run_writes_its_conditions_into_the_laboratory_book() -> None:
    new = replace_conditions(FIGURES.read_text(encoding="utf-8"), BUSY)
    assert "the median of 3 runs" in new
    assert "its load average was 9.1 before and 9.2 after" in new


@pytest.mark.parametrize("whole", [True, False])
def test_only_a_whole_run_says_its_conditions(tmp_path: Path, whole: bool) -> None:
    document = tmp_path / "figures.md"
    document.write_text(FIGURES.read_text(encoding="utf-8"), encoding="utf-8")
    machine = Table("The machine", ("fact", "value"), (("processors", "64"),))
    write_document(document, [machine, STEPS], BUSY, whole=whole)
    assert ("| processors | 64 |" in document.read_text(encoding="utf-8")) is whole
    assert ("was 9.1 before" in document.read_text(encoding="utf-8")) is whole


def test_a_document_that_is_not_there_is_begun(tmp_path: Path) -> None:
    document = tmp_path / "figures.md"
    write_document(document, [STEPS], BUSY, whole=False)
    assert document.read_text(encoding="utf-8").startswith("# Figures\n\n## The laboratory book\n")
    assert document.read_text(encoding="utf-8").endswith(f"## All tables\n\n{STEPS.write()}")
