"""People's comments on columns follow the columns through converters, and stay small."""

from gobblin_assets.model.source_declarations import SourceComments, comments_from_json, comments_to_json
from gobblin_assets.rows.carried_facts import (
    COMMENT_LENGTH_MAX,
    COMMENTS_LENGTH_MAX,
    carry_comments,
)
from gobblin_assets.spec.job_spec import ConverterSpec


def carry(found: SourceComments, columns: list[str], **link: object) -> SourceComments:
    links = [ConverterSpec.model_validate(link)] if link else []
    return carry_comments(found, links, dict.fromkeys(columns, "int"))


def test_names_that_swap_keep_what_was_said_of_their_values() -> None:
    found = SourceComments("sales", {"a": "of a", "b": "of b", "c": "of c"})
    assert carry(found, ["a", "b", "d"], rename={"a": "b", "b": "a", "c": "d"}).columns == {
        "a": "of b",
        "b": "of a",
        "d": "of c",
    }
    assert carry(SourceComments(None, {"b": "of b"}), ["a", "b"], rename={"a": "b", "b": "a"}).columns == {"a": "of b"}


def test_a_column_that_sql_makes_anew_has_none_and_neither_has_one_that_is_gone() -> None:
    found = SourceComments(None, {"a": "of a", "b": "of b"})
    assert carry(found, ["a"], sql={"a": "a + 1"}).columns == {}
    assert carry(found, ["a"], drop=["b"]).columns == {"a": "of a"}


def test_all_of_it_is_bounded() -> None:
    found = SourceComments(" x" * 5_000, {f"c{n}": "y" * 5_000 for n in range(100)} | {"last": "  "})
    kept = carry(found, [*found.columns])
    assert kept.table is not None
    assert len(kept.table) == COMMENT_LENGTH_MAX
    assert {len(text) for text in kept.columns.values()} == {COMMENT_LENGTH_MAX}
    assert sum(map(len, kept.columns.values())) == COMMENTS_LENGTH_MAX


def test_the_log_has_them_and_nothing_where_there_are_none() -> None:
    found = SourceComments("sales", {"a": "of a"})
    assert comments_from_json(comments_to_json(found)) == found
    assert comments_to_json(SourceComments()) == {}
    assert comments_from_json({}) == SourceComments()
