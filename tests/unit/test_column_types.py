"""Which types go together in one dataset; ``tests/integration/test_types_together.py`` asks Spark for the values."""

from itertools import permutations, product

import pytest
from pyspark.sql import types as t

from gobblin_assets.errors import RejectedError
from gobblin_assets.rows.schema_merge import describe_holders, join_all, join_types, merge_schemas, require_joinable

BYTE, SHORT, INT, LONG = t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType()
FLOAT, DOUBLE, TEXT, DATE = t.FloatType(), t.DoubleType(), t.StringType(), t.DateType()
LOCAL, MOMENT = t.TimestampNTZType(), t.TimestampType()
OTHERS = [t.BooleanType(), t.BinaryType(), TEXT, MOMENT, t.ArrayType(INT), t.MapType(TEXT, INT), t.StructType([])]


def dec(precision: int, scale: int = 0) -> t.DecimalType:
    return t.DecimalType(precision, scale)


ATOMS = [BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, DATE, LOCAL, dec(4), dec(5, 5), dec(10, 2), dec(38), dec(38, 38)]
ATOMS += OTHERS[:4]


@pytest.mark.parametrize(
    ("narrow", "wide", "joined"),
    [
        (BYTE, SHORT, SHORT),
        (SHORT, INT, INT),
        (INT, LONG, LONG),
        (BYTE, dec(3), dec(3)),
        (INT, dec(4), dec(10)),
        (INT, dec(10, 2), dec(12, 2)),
        (LONG, dec(10, 2), dec(21, 2)),
        (LONG, dec(38, 19), dec(38, 19)),
        (LONG, dec(38, 20), None),
        (dec(10, 2), dec(12, 2), dec(12, 2)),
        (dec(10, 2), dec(10, 4), dec(12, 4)),
        (dec(38, 0), dec(5, 5), None),
        (SHORT, FLOAT, FLOAT),
        (INT, FLOAT, DOUBLE),
        (INT, DOUBLE, DOUBLE),
        (FLOAT, DOUBLE, DOUBLE),
        (LONG, DOUBLE, None),
        (LONG, FLOAT, None),
        (dec(4), DOUBLE, None),
        (DATE, LOCAL, LOCAL),
        (DATE, MOMENT, None),
        (LOCAL, MOMENT, None),
        (INT, TEXT, None),
        (DATE, TEXT, None),
        (t.BinaryType(), TEXT, None),
        (t.BooleanType(), INT, None),
        (t.ArrayType(INT), t.ArrayType(LONG), None),
        (INT, t.ArrayType(INT), None),
    ],
)
def test_the_table_of_types(narrow: t.DataType, wide: t.DataType, joined: t.DataType | None) -> None:
    assert join_types(narrow, wide) == joined
    assert join_types(wide, narrow) == joined


def test_the_order_of_types_does_not_matter() -> None:
    for each in ATOMS:
        assert join_types(each, each) == each
    for three in product(ATOMS, repeat=3):
        assert len({str(join_all(order)) for order in permutations(three)}) == 1, three


def test_what_holds_a_type_is_said() -> None:
    assert describe_holders(SHORT) == (
        "smallint, int, bigint, float, double, or a decimal with at least 5 digits before the point"
    )
    assert describe_holders(dec(10, 2)) == (
        "decimal(10,2), or a decimal with at least 8 digits before the point and 2 behind it"
    )
    assert describe_holders(TEXT) == "string"


def test_a_column_has_the_type_that_holds_all_and_the_place_of_the_newest() -> None:
    old = t.StructType([t.StructField("a", LONG), t.StructField("gone", TEXT), t.StructField("B", DATE)])
    new = t.StructType([t.StructField("b", LOCAL), t.StructField("a", INT)])
    assert merge_schemas([new, old]).simpleString() == "struct<b:timestamp_ntz,a:bigint,gone:string>"
    assert merge_schemas([old, new]).simpleString() == "struct<a:bigint,gone:string,B:timestamp_ntz>"


def nested(leaf: t.DataType, *more: t.StructField) -> t.StructType:
    inner = t.StructType([t.StructField("x", leaf), *more])
    return t.StructType(
        [
            t.StructField(
                "s", t.StructType([t.StructField("a", t.ArrayType(inner)), t.StructField("m", t.MapType(TEXT, leaf))])
            ),
            t.StructField("k", t.MapType(INT, inner)),
        ]
    )


def test_parts_of_structs_arrays_and_maps_follow_the_same_rule() -> None:
    added = t.StructField("y", TEXT)
    found = merge_schemas([nested(INT, added), nested(LONG)])
    assert found.simpleString() == (
        "struct<s:struct<a:array<struct<x:bigint,y:string>>,m:map<string,bigint>>,k:map<int,struct<x:bigint,y:string>>>"
    )
    with pytest.raises(RejectedError, match=r"'s\.a\.element\.x' as string and as bigint, and no type holds"):
        merge_schemas([nested(TEXT), nested(LONG)])


def test_the_key_of_a_map_is_widened_but_gets_no_more_fields() -> None:
    def keyed(key: t.DataType) -> t.StructType:
        return t.StructType([t.StructField("m", t.MapType(key, INT))])

    assert merge_schemas([keyed(LONG), keyed(INT)]) == keyed(LONG)
    one = t.StructType([t.StructField("x", INT)])
    with pytest.raises(RejectedError, match=r"'m\.key'"):
        merge_schemas([keyed(t.StructType([*one.fields, t.StructField("y", INT)])), keyed(one)])


def require(new: t.DataType, *stored: t.DataType, allow_retyped: bool = False) -> None:
    def column(each: t.DataType) -> t.StructType:
        return t.StructType([t.StructField("v", each)])

    beside = [column(each) for each in stored]
    require_joinable(column(new), beside, allow_retyped=allow_retyped, label="t", field="schema_change")


@pytest.mark.parametrize(("old", "new"), [(INT, LONG), (dec(10, 2), dec(12, 4)), (FLOAT, DOUBLE), (DATE, LOCAL)])
def test_widening_needs_no_leave_and_narrowing_does(old: t.DataType, new: t.DataType) -> None:
    require(new, old)
    with pytest.raises(RejectedError) as refused:
        require(old, new)
    assert refused.value.field == "schema_change"
    assert f"'v' is {old.simpleString()} now, its published files hold {new.simpleString()}" in refused.value.message
    assert "allow_retyped: true" in refused.value.hint
    assert f"then reads as {new.simpleString()}" in refused.value.hint
    require(old, new, allow_retyped=True)
    # The files have this type already, so one more file of it changes nothing.
    require(old, new, old)


@pytest.mark.parametrize(("old", "new"), [(TEXT, INT), (dec(10, 2), DOUBLE), (LONG, DOUBLE), (t.ArrayType(INT), INT)])
def test_what_no_type_holds_is_refused_with_leave_too(old: t.DataType, new: t.DataType) -> None:
    for allow_retyped in (False, True):
        with pytest.raises(RejectedError, match="no type holds every value of both") as refused:
            require(new, old, allow_retyped=allow_retyped)
        assert describe_holders(old) in refused.value.hint
        assert "allow_retyped" not in refused.value.hint


def test_all_active_files_count_and_not_the_newest_alone() -> None:
    with pytest.raises(RejectedError, match="hold int and string"):
        require(LONG, INT, TEXT)
    with pytest.raises(RejectedError, match=r"hold decimal\(38,0\) and decimal\(3,0\)"):
        require(dec(5, 4), dec(38), dec(3))
    # Files that an older release made unreadable together get no worse, so that partitions can be repaired one by one.
    require(INT, INT, TEXT)
