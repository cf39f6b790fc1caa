"""Text of any kind must become JSON that Postgres accepts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.db.statement_texts import to_jsonb

TEXTS = st.lists(st.sampled_from(["\x00", "\\", "u0000", "a", '"', "ü"])).map("".join)


@given(TEXTS)
def test_only_the_nul_is_replaced(text: str) -> None:
    assert json.loads(to_jsonb({text: [text]})) == {text.replace("\x00", "\ufffd"): [text.replace("\x00", "\ufffd")]}


def test_what_postgres_says_of_a_nul_is_no_nul() -> None:
    said = r"\u0000 cannot be converted to text."

    assert json.loads(to_jsonb(said)) == said
