"""Whether two names are one column: our rule beside Spark's two, and what happens to the values."""

from collections.abc import Callable
from itertools import groupby, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.column_names import name_key
from gobblin_assets.rows.column_names import require_distinct_fields
from gobblin_assets.rows.dataset_reader import read_dataset
from tests.support.publishing import Publisher

AWKWARD = "sS\u017fßẞiI\u0131İ\u0307kKK\u03c3ΣςåÅÅµμ\u039cǆǅǄﬁf éeᾳᾼ𐐀𐐨_'"
SparkSays = Callable[[str, str], bool]


@pytest.fixture
def publisher(engine: Engine, tmp_path: Path) -> Publisher:
    return Publisher(engine, tmp_path / "lake")


@pytest.fixture
def spark_says_one(spark: SparkSession) -> SparkSays:
    """Whether the session's resolver, or the check of names before a write, treats two names as one."""
    assert spark.conf.get("spark.sql.caseSensitive") == "false"
    resolver = spark._jsparkSession.sessionState().analyzer().resolver()  # type: ignore[attr-defined]  # only the classic session has it
    assert spark._jvm is not None
    text, root = spark._jvm.org.apache.commons.lang3.StringUtils, spark._jvm.java.util.Locale.ROOT

    def says(one: str, other: str) -> bool:
        return bool(resolver.apply(one, other)) or text.lowerCase(one, root) == text.lowerCase(other, root)

    return says


def test_letters_that_are_one_to_spark_are_exactly_those_of_the_rule(spark_says_one: SparkSays) -> None:
    def has_case(letter: str) -> bool:
        return len({letter, letter.lower(), letter.upper(), letter.title(), letter.casefold()}) > 1

    # Up to the letters of Unicode 13, which Java 17 knows.
    letters = sorted((c for c in map(chr, range(0x2C00)) if has_case(c)), key=name_key)
    classes = [list(group) for _key, group in groupby(letters, key=name_key)]
    for group in classes:
        assert all(spark_says_one(group[0], letter) for letter in group[1:]), group
    by_fold = sorted(letters, key=str.casefold)
    for _folded, fellows in groupby(by_fold, key=str.casefold):
        for one, other in product(*[list(fellows)] * 2):
            assert spark_says_one(one, other) == (name_key(one) == name_key(other)), (one, other)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_two_names_are_one_exactly_where_spark_takes_them_for_one(
    spark_says_one: SparkSays, data: st.DataObject
) -> None:
    one = data.draw(st.text(st.sampled_from(AWKWARD), min_size=1, max_size=4))
    swaps = {"cased": str.upper, "lower": str.lower, "title": str.title, "fold": str.casefold, "same": str}
    other = "".join(swaps[data.draw(st.sampled_from(sorted(swaps)))](letter) for letter in one)
    if "i" in name_key(one) and "\u0307" in one + other + one.lower() + other.lower():
        # Only one of Spark's ways takes a dot above an i as a part of the i: the rule follows both ways.
        assert not spark_says_one(one, other) or name_key(one) == name_key(other)
    else:
        assert spark_says_one(one, other) == (name_key(one) == name_key(other))


@pytest.mark.parametrize(("one", "other"), [("masse", "maße"), ("ﬁ", "fi"), ("é", "e\u0301")])
def test_columns_that_only_casefold_takes_for_one_keep_their_values(
    spark: SparkSession, publisher: Publisher, one: str, other: str
) -> None:
    frame = spark.sql(f"SELECT 1 AS id, 100 AS `{one}`, named_struct('{one}', 5, '{other}', 6) AS n, 7 AS `{other}`")
    publisher.publish(frame, "public.t")
    publisher.publish(spark.sql(f"SELECT 2 AS id, 8 AS `{other}`, named_struct('{other}', 9) AS n"), "public.t")
    found = read_dataset(spark, "public.t", job="shop", database=publisher.engine)
    rows = {row["id"]: (row[one], row[other], row["n"][one], row["n"][other]) for row in found.collect()}
    assert rows == {1: (100, 7, 5, 6), 2: (None, 8, None, 9)}


def test_a_column_whose_name_changed_its_case_is_one_column(spark: SparkSession, publisher: Publisher) -> None:
    publisher.publish(spark.sql("SELECT 1 AS id, 100 AS s, named_struct('k', 5) AS n"), "public.t")
    publisher.publish(spark.sql("SELECT 2 AS id, 7 AS `\u017f`, named_struct('\u212a', 6) AS n"), "public.t")
    found = read_dataset(spark, "public.t", job="shop", database=publisher.engine)
    assert found.columns == ["id", "\u017f", "n"]
    assert sorted((row[0], row[1], row[2][0]) for row in found.collect()) == [(1, 100, 5), (2, 7, 6)]


@pytest.mark.parametrize("below", ["{0}", "array({0})", "map('k', {0})", "named_struct('n', {0})"])
def test_fields_that_spark_would_write_and_not_read_are_refused(spark: SparkSession, below: str) -> None:
    struct = "named_struct('İ', 1, 'i\u0307', 2)"
    schema = spark.sql(f"SELECT {below.format(struct)} AS c").schema
    with pytest.raises(RejectedError, match="two columns would be called") as refused:
        require_distinct_fields(schema.jsonValue(), label="t", field="converters")
    assert refused.value.field == "converters"
