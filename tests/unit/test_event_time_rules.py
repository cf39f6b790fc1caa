"""The event times that a job may declare, and the errors for others."""

from collections.abc import Mapping

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.urn import DatasetUrn
from gobblin_assets.spec.event_time_spec import EventTimeSpec, Granularity
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import WriterSpec


def _writer(event_time: Mapping[str, object], **options: object) -> WriterSpec:
    writer = {"event_time": {"column": "at", **event_time}, **options}
    job = {
        "job": "shop",
        "source": {"connection": "shop_db"},
        "destination": "/data/lake",
        "datasets": [{"urn": "public.orders", "writer": writer}],
    }
    return resolve_datasets(parse_job(job), None)[DatasetUrn("public.orders")].writer


def _event_time(**options: object) -> EventTimeSpec:
    spec = _writer(options).event_time
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    ("granularity", "pattern"),
    [
        (Granularity.MINUTE, "yyyy-MM-dd-HH-mm"),
        (Granularity.HOUR, "yyyy-MM-dd-HH"),
        (Granularity.DAY, "yyyy-MM-dd"),
        (Granularity.MONTH, "yyyy-MM"),
        (Granularity.YEAR, "yyyy"),
    ],
)
def test_the_pattern_follows_the_granularity_unless_it_is_given(granularity: Granularity, pattern: str) -> None:
    assert _event_time(granularity=granularity.value).directory_pattern == pattern
    assert _event_time(granularity=granularity.value, pattern="yyyy").directory_pattern == "yyyy"


def test_nothing_is_taken_for_good_unless_a_job_says_so() -> None:
    spec = _event_time()
    assert (spec.on_missing, spec.on_future, spec.limit_s, spec.zone) == ("fail", "fail", 86_400.0, "UTC")
    assert not spec.makes_dead_letters


@pytest.mark.parametrize(
    ("options", "limit_s", "makes"),
    [
        ({"on_missing": "dead_letter"}, 86_400.0, True),
        ({"on_future": "dead_letter"}, 86_400.0, True),
        ({"on_future": "dead_letter", "future_s_max": None}, None, False),
        ({"on_future": "accept", "future_s_max": 1}, None, False),
        ({"on_future": "directory", "future_s_max": 0}, 0.0, False),
    ],
)
def test_dead_letters_and_limits_follow_from_the_rules(
    options: dict[str, object], limit_s: float | None, makes: bool
) -> None:
    spec = _event_time(**options)
    assert (spec.limit_s, spec.makes_dead_letters) == (limit_s, makes)


@pytest.mark.parametrize(
    "options",
    [
        {"json_path": "$.a.b"},
        {"json_path": "$['a b'][0].c-d"},
        {"pattern": "yyyy/MM/dd"},
        {"pattern": "'it''s' yyyy"},
        {"pattern": "yyyy-'W'QQ", "granularity": "month"},
        {"zone": "Asia/Kathmandu"},
        {"future_s_max": 1e11},
    ],
)
def test_what_spark_can_do_is_accepted(options: dict[str, object]) -> None:
    assert _event_time(**options)


REFUSED: dict[str, tuple[dict[str, object], str, str]] = {
    # name: (options, field below writer, part of the message or of the hint)
    "no zone": ({"zone": "Mars/Olympus"}, "event_time.zone", "expected a time zone"),
    "an offset for a zone": ({"zone": "+02:00"}, "event_time.zone", "expected a time zone"),
    "a path that is none": ({"json_path": "a.b"}, "event_time.json_path", "$.header.time"),
    "a path to everything": ({"json_path": "$"}, "event_time.json_path", "the path of one value"),
    "a path to many": ({"json_path": "$.a[*]"}, "event_time.json_path", "the path of one value"),
    "an open path": ({"json_path": "$.a["}, "event_time.json_path", "the path of one value"),
    "a letter that is none": ({"pattern": "YYYY-MM-dd"}, "event_time.pattern", "'Y' is not a letter"),
    "a letter too often": ({"pattern": "yyyy-MMMMM"}, "event_time.pattern", "so many times: 1, 2, 3, 4"),
    "a zone in the pattern": ({"pattern": "yyyy-MM-ddXXX"}, "event_time.pattern", "which all rows share"),
    "no time in the pattern": ({"pattern": "'day'"}, "event_time.pattern", "expected a date pattern"),
    "an open quote": ({"pattern": "yyyy'T"}, "event_time.pattern", "'T' is not a letter"),
    "an open quote at the end": ({"pattern": "yyyy'"}, "event_time.pattern", "can't stand in a date pattern"),
    "braces": ({"pattern": "{yyyy}"}, "event_time.pattern", "can't stand in a date pattern"),
    "finer than a day": ({"pattern": "yyyy-MM-dd-HH"}, "event_time.pattern", "granularity: hour"),
    "finer than a month": ({"granularity": "month", "pattern": "yyyy-MM-dd"}, "event_time.pattern", "granularity: day"),
    "finer than a minute": ({"granularity": "minute", "pattern": "ss"}, "event_time.pattern", "leaves nothing of 's'"),
    "no unit": ({"unit": "ns"}, "event_time.unit", "found 'ns'"),
    "no rule": ({"on_missing": "now"}, "event_time.on_missing", "found 'now'"),
    "a negative limit": ({"future_s_max": -1}, "event_time.future_s_max", "a number of at least 0"),
    "no limit at all": ({"future_s_max": float("inf")}, "event_time.future_s_max", "finite number"),
    "an empty name": ({"name": ""}, "event_time.name", "expected a text, found an empty one"),
    "a name that no file system takes": ({"name": "x" * 81}, "event_time.name", "at most 80 characters"),
    "the directory of NULL": (
        {"on_missing": "directory", "missing_name": "__HIVE_DEFAULT_PARTITION__"},
        "event_time.missing_name",
        "come back as NULL",
    ),
    "the name of another directory": ({"name": "REGION"}, "partition_by", "expected different names"),
}  # fmt: skip


@pytest.mark.parametrize(("options", "field", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_can_not_be_meant_is_refused_with_its_field(options: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(RejectedError) as refused:
        _writer(options, partition_by=["region"])
    assert refused.value.field == f"datasets[0].writer.{field}"
    assert said in str(refused.value)
