"""Which columns of a failed row are shown, and how much of their values."""

import pytest

from gobblin_assets.rows.row_samples import COLUMNS_MAX, ShownValue, choose_columns, write_sample
from gobblin_assets.spec.job_spec import DatasetSpec, RowPolicySpec

SPEC = DatasetSpec.model_validate({"urn": "t", "primary_key": ["id"], "watermark": {"column": "at", "key_column": "n"}})


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        ("amount > 0", ["id", "at", "n", "amount"]),
        ("AMOUNT > 0 and `a b` is not null", ["id", "at", "n", "amount", "a b"]),
        ("amounts > 0 and xid < 3", ["id", "at", "n"]),
        ("address.zip <> ''", ["id", "at", "n", "address"]),
        ("id > 0", ["id", "at", "n"]),
    ],
)
def test_key_watermark_and_what_the_check_speaks_of(check: str, columns: list[str]) -> None:
    names = ["amount", "a b", "address", "zip_code", "id", "n", "at"]
    assert choose_columns(SPEC, [RowPolicySpec(name="p", check=check)], names) == columns


def test_what_a_converter_left_out_is_not_shown_and_many_columns_are_cut() -> None:
    names = [f"c{number}" for number in range(100)]
    check = " and ".join(f"{name} > 0" for name in names)
    assert choose_columns(SPEC, [RowPolicySpec(name="p", check=check)], names) == names[:COLUMNS_MAX]


def test_a_masked_value_tells_its_type_and_size_and_nothing_else() -> None:
    values = {
        "a": ShownValue("string", is_null=False, size=12),
        "b": ShownValue("decimal(10,2)", is_null=False),
        "c": ShownValue("array<struct<a:int>>", is_null=False, size=2),
        "d": ShownValue("binary", is_null=True),
    }
    said = "a: ••• (string, 12 characters), b: ••• (decimal(10,2)), c: ••• (array, 2 elements), d: NULL"
    assert write_sample(values) == said
    assert write_sample(values, ["p", "q"]) == f"p+q: {said}"
    assert write_sample({"a": ShownValue("string", is_null=False, size=2, text="x\ny")}) == "a: 'x\\ny'"
