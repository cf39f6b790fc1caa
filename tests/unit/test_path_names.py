import string
from urllib.parse import unquote

import dagster as dg
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.path_names import (
    SEGMENT_BYTES_MAX,
    asset_key_of,
    encode_segment,
    path_of,
)
from gobblin_assets.model.urn import (
    JOB_NAME_LENGTH_MAX,
    URN_BYTES_MAX,
    DatasetUrn,
    JobName,
    Role,
    parse_job_name,
    parse_urn,
)

HOSTILE = [
    "a/b", "a.b", "a_b", "a%2Fb", "a%2fb", ".", "..", "...", "/", "//", "a/", "/a", "a/b/c", " ", "  ", " a", "a ",
    "a b", "Orders", "orders", "ORDERS", "oRDERS", "_a", ".a", "~", "~1", "a~1", "+", "a+", "a+/b", "%", "%empty",
    "%EMPTY", "empty", "día", "di\u0301a", "日本", "日本\u3000", "x=1", "x*", "x?", "[x]", "{a,b}", "a\\b", 'a"b',
    "a:b", "a;b", "a\nb", "a\n", "\u2028", "\u0085", "quarantine", "data", "dead_letter", "a/quarantine",
    "a/dead_letter", "i", "I", "\u0130", "\u0131", "ß", "SS", "s", "\u017f", "k", "\u212a", "x" * 180, "x" * 179,
    "x" * 181, "X" * 1024, "x" * 1024, "." * 1024, "_" * 400, "é" * 512, "😀" * 256,
]  # fmt: skip
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.text(st.sampled_from("aAbB./_-%~+=2Ff \\é"), max_size=12),
    st.text(st.sampled_from(string.ascii_letters + "._"), min_size=150, max_size=420),
    st.sampled_from(HOSTILE),
)
urns = texts.filter(lambda text: text and "\0" not in text and len(text.encode()) <= URN_BYTES_MAX).map(DatasetUrn)
jobs = st.text(
    st.sampled_from(string.ascii_letters + string.digits + "_"), min_size=1, max_size=JOB_NAME_LENGTH_MAX
).map(JobName)
places = st.tuples(jobs, urns, st.sampled_from(Role))


def read_back(segments: tuple[str, ...]) -> str:
    """The text that the segments were made of, by the rules in the module's docstring."""
    if segments == ("%empty",):
        return ""
    joined = "".join(segment.removesuffix("+") for segment in segments)
    return unquote(joined.partition("~")[0])


@given(texts)
def test_a_text_comes_back_from_its_segments(text: str) -> None:
    assert read_back(encode_segment(text)) == text


@given(texts)
def test_segments_are_short_ascii_and_never_hidden(text: str) -> None:
    for segment in encode_segment(text):
        assert 0 < len(segment.encode("ascii")) <= SEGMENT_BYTES_MAX
        assert segment[0] not in "._"
        assert set(segment) <= set(string.ascii_letters + string.digits + ".-_%~+")


@given(texts, texts)
@example("ab", "aB")
@example("A", "a~1")
@example("", "%empty")
def test_two_texts_never_meet_on_a_file_system_that_ignores_case(one: str, other: str) -> None:
    met = [s.casefold() for s in encode_segment(one)] == [s.casefold() for s in encode_segment(other)]
    assert met == (one == other)


@given(texts, texts)
@example("x" * 179, "x" * 180)
@example("x" * 180, "x" * 400)
def test_no_text_lives_inside_the_directory_of_another(one: str, other: str) -> None:
    outer, inner = ["/".join(encode_segment(text)).casefold() + "/" for text in (one, other)]
    assert one == other or not inner.startswith(outer)


def test_hostile_names_all_stay_apart() -> None:
    paths = {"/".join(encode_segment(text)).casefold() for text in HOSTILE}
    keys = {"/".join(asset_key_of(JobName("job"), DatasetUrn(text), role)) for text in HOSTILE for role in Role}
    assert len(paths) == len(HOSTILE) == len(set(HOSTILE))
    assert len(keys) == len(HOSTILE) * len(Role)


@given(places, places)
def test_two_datasets_have_neither_one_path_nor_nested_ones(
    one: tuple[JobName, DatasetUrn, Role], other: tuple[JobName, DatasetUrn, Role]
) -> None:
    outer, inner = (path_of("/lake", *place).casefold() + "/" for place in (one, other))
    assert one == other or not inner.startswith(outer)


@given(places)
def test_job_urn_and_role_come_back_from_an_asset_key(place: tuple[JobName, DatasetUrn, Role]) -> None:
    job, component, *role = asset_key_of(*place)
    assert (job, unquote(component), *(role or ["data"])) == place


@given(places, places)
def test_two_datasets_never_meet_in_a_key_nor_in_its_text(
    one: tuple[JobName, DatasetUrn, Role], other: tuple[JobName, DatasetUrn, Role]
) -> None:
    assert ("/".join(asset_key_of(*one)) == "/".join(asset_key_of(*other))) == (one == other)


@given(places)
def test_dagster_gives_a_key_back_from_its_text_and_its_stored_form(place: tuple[JobName, DatasetUrn, Role]) -> None:
    key = dg.AssetKey(list(asset_key_of(*place)))
    assert dg.AssetKey.from_user_string(key.to_user_string()) == key
    assert dg.AssetKey.from_db_string(key.to_string()) == key


@pytest.mark.parametrize("urn", HOSTILE)
def test_dagster_selects_exactly_one_dataset_by_its_quoted_key(urn: str) -> None:
    specs = [dg.AssetSpec(list(asset_key_of(JobName("job"), DatasetUrn(other)))) for other in HOSTILE]
    wanted = dg.AssetKey(list(asset_key_of(JobName("job"), DatasetUrn(urn))))
    selection = dg.AssetSelection.from_string(f'key:"{wanted.to_user_string()}"')
    assert selection.resolve(dg.Definitions(assets=specs).resolve_asset_graph()) == {wanted}


def test_plain_names_stay_readable_in_a_key() -> None:
    assert asset_key_of(JobName("job"), DatasetUrn("public.día de pago:0")) == ("job", "public.día de pago:0")
    assert asset_key_of(JobName("job"), DatasetUrn("a/b"), Role.DEAD_LETTER) == ("job", "a%2Fb", "dead_letter")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("", "empty"), ("a\0b", "NUL"), ("\ud800", "surrogate"), ("x" * 1025, "1025"), ("é" * 513, "1026")],
)
def test_a_urn_that_could_not_be_stored_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(RejectedError, match=complaint) as refused:
        parse_urn(text)
    assert refused.value.field == "urn"
    assert refused.value.hint


@given(urns)
def test_any_other_urn_is_kept_as_it_is(urn: DatasetUrn) -> None:
    assert parse_urn(urn) == urn


@pytest.mark.parametrize("name", ["", "a b", "a-b", "a.b", "día", "a\n", "x" * 101])
def test_a_job_name_that_dagster_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(RejectedError, match="job"):
        parse_job_name(name)


def test_a_job_name_of_a_hundred_characters_is_accepted() -> None:
    assert parse_job_name("a_B9" * 25) == "a_B9" * 25
