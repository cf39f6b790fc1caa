"""A job's own SQL stays within the parentheses that we put around it, whichever database reads it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.converters import MODULES_VARIABLE, require_allowed_module
from gobblin_assets.sources.jdbc.expressions import require_expression

POSTGRES = "postgresql"


@pytest.mark.parametrize(
    ("text", "subprotocol"),
    [
        ("status = 'open' AND amount > 10", POSTGRES),
        ("note = 'it''s; (not) -- a /* comment'", POSTGRES),
        ('"odd ; name)" IS NOT NULL', "oracle"),
        ("`odd ; name)` IS NOT NULL", "mysql"),
        ("id IN (SELECT id FROM other WHERE f(a[1]) = ARRAY[1, 2]['1'::int])", POSTGRES),
        ("payload #>> '{a,b}' = '1' AND payload ? 'k'", POSTGRES),
        ("note ~ '^\\d+$'", POSTGRES),
        ("{fn NOW()} > at", "sqlserver"),
        ("[odd name] = 1", "sqlserver"),
        ("a$b$ = 1 AND $1a = 2", "oracle"),
        ("E'tab\\t' = note", POSTGRES),
        ("unique_q = 'x' AND x'ff' = y", "h2"),
        ("a - -1 > 0\n", "derby"),
    ],
)
def test_an_expression_is_let_through(text: str, subprotocol: str) -> None:
    require_expression(text, subprotocol=subprotocol, field="where")


@pytest.mark.parametrize(
    ("text", "subprotocol", "found"),
    [
        ("1 = 1) ; DROP TABLE orders; --", POSTGRES, "')' at character 6"),
        ("1 = 1; DELETE FROM orders", POSTGRES, "';' at character 6"),
        ("(1 = 1", POSTGRES, "'(' at character 1"),
        ("1 = 1) OR (2 = 2", POSTGRES, "')' at character 6"),
        ("(a[1)]", POSTGRES, "')' at"),
        ("1 = 1 -- and so on", POSTGRES, "'--' at"),
        ("1 = 1 /* and so on", POSTGRES, "'/*' at"),
        ("1 = 1 # and so on", "mysql", "'#' at"),
        ("1 = 1 # and so on", "unheard-of", "'#' at"),
        ("note = 'open", POSTGRES, '"\'" at'),
        ("note = 'a\\' OR 1 = 1) ; --'", "mysql", "at character 8"),
        ("note = E'a\\'') ; --'", POSTGRES, "at character 9"),
        ('note = "a\\"") ; --"', "mariadb", "at character 8"),
        ("note = $$a$$", POSTGRES, "'$$' at"),
        ("note = $t$) ; --$t$", "duckdb", "'$t$' at"),
        ("note = q'[it's]'", "oracle", "'q' at"),
        ("note = `a`", POSTGRES, "`a`' at"),
        ("[a'] ) ; DROP TABLE x -- ['] = 1", "sqlserver", "at character 3"),
        ("a\x00b", POSTGRES, "x00"),
        ("  ", POSTGRES, "expected an expression"),
    ],
)
def test_what_ends_the_parentheses_or_is_read_in_two_ways_is_refused_with_its_place(
    text: str, subprotocol: str, found: str
) -> None:
    with pytest.raises(RejectedError, match=re.escape(found)) as refused:
        require_expression(text, subprotocol=subprotocol, field="datasets[orders].where")
    assert refused.value.field == "datasets[orders].where"
    assert refused.value.hint


PIECES = st.sampled_from(
    ["'", "''", '"', "(", ")", "[", "]", "--", "/*", "*/", ";", "\\", "$$", "a", " ", "1", "=", "`", "#", "q", "E"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_whatever_is_let_through_ends_where_we_end_it(text: str) -> None:
    """A second reader of Postgres' texts, written by hand: after the expression, it is outside of all of them."""
    try:
        require_expression(text, subprotocol=POSTGRES, field="where")
    except RejectedError:
        return
    depth, place = 0, 0
    while place < len(text):
        letter = text[place]
        if letter in "'\"":
            escapes = letter == "'" and place > 0 and text[place - 1] == "E"
            place += 1
            while text[place] != letter or text[place + 1 : place + 2] == letter:
                doubled = text[place] == letter
                place += 2 if doubled or (escapes and text[place] == "\\") else 1
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        assert letter != ";"
        assert depth >= 0
        assert not text.startswith(("--", "/*"), place) or letter in "'\""
        place += 1
    assert depth == 0
    assert place == len(text)


@pytest.mark.parametrize("module", ["os", "subprocess", "builtins", "pyspark.sql", "yaml", "concurrent.futures"])
def test_a_function_of_python_itself_or_of_an_installed_package_is_refused(module: str) -> None:
    with pytest.raises(RejectedError, match=re.escape(f"{MODULES_VARIABLE}={module}")):
        require_allowed_module(module, label="orders", field="converters[0].function", environment={})
    require_allowed_module(module, label="orders", field="f", environment={MODULES_VARIABLE: f"x, {module}"})


def test_the_owner_s_own_code_is_allowed_until_the_owner_names_modules() -> None:
    require_allowed_module("tests.unit.tidy", label="orders", field="f", environment={})
    require_allowed_module("no_such_package", label="orders", field="f", environment={})
    named = {MODULES_VARIABLE: "shop.tidy,tests.unit"}
    for allowed in ("shop.tidy", "shop.tidy.more", "tests.unit.x"):
        require_allowed_module(allowed, label="orders", field="f", environment=named)
    for refused in ("shop", "shop.tidying", "tests", "os"):
        with pytest.raises(RejectedError, match=r"is not among shop\.tidy, tests\.unit"):
            require_allowed_module(refused, label="orders", field="f", environment=named)
    with pytest.raises(RejectedError, match="there are none"):
        require_allowed_module("tests.unit", label="orders", field="f", environment={MODULES_VARIABLE: ""})
