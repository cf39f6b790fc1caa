"""A Kafka job in a real Dagster instance, over a real broker: runs, lag, checks, requests and reports of its sensors.

A tick is evaluated as the daemon does it, and the requested runs get the daemon's tags.
"""

import datetime as dt
import uuid
from collections.abc import Callable

import dagster as dg
import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.dagster.resources import KafkaConnectionResource
from gobblin_assets.errors import RetryableError
from gobblin_assets.sources.discovery import find_discovery, write_discovery
from gobblin_assets.spec.job_parsing import parse_job
from tests.support.dagster_topics import NEW_DATA, Events
from tests.support.kafka import delete_topics, produce

pytestmark = pytest.mark.turns(of=8)

DISCOVERY = "events_discovery_sensor"
FOUND_AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.core
def test_new_records_are_asked_for_read_and_then_nothing_is(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    views, clicks = topic("views", 2), topic("clicks")
    events.define(*({"topic": name, "kafka": {"value": {"format": "string"}}} for name in (views, clicks)))
    produce(kafka_broker.bootstrap, views, [b"one", b"two"])

    (first,) = events.tick().run_requests or []
    assert set(first.asset_selection or ()) == {events.key(views), events.key(clicks)}, "positions are to be set"
    events.run(first)
    assert [event["gobblin/rows"] for event in events.shown(views)] == [2]
    assert [event["gobblin/rows"] for event in events.shown(clicks)] == [0]
    assert events.shown(views)[0]["gobblin/lag"] == 0

    quiet = events.tick()
    assert not quiet.run_requests
    assert quiet.skip_message == "Nothing is new in the 2 topics of the job."

    produce(kafka_broker.bootstrap, clicks, [b"three"])
    (second,) = events.tick().run_requests or []
    assert second.asset_selection == [events.key(clicks)]
    assert second.run_key != first.run_key
    events.run(second)
    assert [event["gobblin/rows"] for event in events.shown(clicks)] == [0, 1]
    assert [event["gobblin/mode"] for event in events.shown(clicks)] == ["append", "append"]
    assert len(events.shown(views)) == 1
    assert not events.tick().run_requests


def test_what_a_limited_run_leaves_shows_as_lag_and_fails_the_check_until_it_is_read(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    views = topic("views")
    kafka = {"value": {"format": "string"}, "records_per_partition_max": 3}
    events.define({"topic": views, "kafka": kafka, "quality": {"lag_max": 1}})
    produce(kafka_broker.bootstrap, views, [b"x"] * 5)

    (request,) = events.tick().run_requests or []
    told = events.lag_check(views)
    assert (told.passed, told.metadata["lag"].value) == (False, 5), "the lag shows before any run"
    events.run(request)

    (shown,) = events.shown(views)
    assert (shown["gobblin/rows"], shown["gobblin/lag"], shown["gobblin/lag_largest"]) == (3, 2, 2)
    (row,) = shown["gobblin/lag_by_key"].records
    assert row.data == {"key": f"{views}:0", "lag": 2, "published": 3, "end": 5}
    told = events.lag_check(views)
    assert (told.passed, told.severity, told.metadata["lag"].value) == (False, dg.AssetCheckSeverity.WARN, 2)

    (rest,) = events.tick().run_requests or []
    events.run(rest)
    assert events.lag_check(views).passed

    produce(kafka_broker.bootstrap, views, [b"y"] * 2)
    late = events.tick()
    assert [event.passed for event in late.asset_events if isinstance(event, dg.AssetCheckEvaluation)] == [False]
    assert not events.tick().asset_events, "only a change is told"


def test_a_topic_that_came_or_went_is_said_once_and_kept_for_the_next_load(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    family = f"family-{uuid.uuid4().hex[:6]}"
    first = topic(f"{family}-first")
    path = events.folder / "home" / "discovery" / "events.json"
    source = parse_job(
        {
            "job": "events",
            "source": {"type": "kafka", "connection": "kafka", "include": [f"{family}-*"]},
            "destination": str(events.folder / "lake"),
        }
    ).source
    write_discovery(path, [first], source, FOUND_AT)

    def load() -> None:
        found = find_discovery(path)
        assert found is not None
        patterns = {"include": list(source.include)}
        events.define(source=patterns, discovered=found.selected(source), discovery_path=path)

    load()
    assert "no others" in str(events.tick(DISCOVERY).skip_message)
    second = topic(f"{family}-second")
    said = str(events.tick(DISCOVERY).skip_message)
    assert f"new: {second}" in said
    assert "reload the code location" in said
    assert "still to be reloaded" in str(events.tick(DISCOVERY).skip_message)

    load()
    assert events.key(second) in events.definitions.resolve_all_asset_keys()
    assert "no others" in str(events.tick(DISCOVERY).skip_message)
    delete_topics(kafka_broker.bootstrap, second)
    assert f"gone: {second}" in str(events.tick(DISCOVERY).skip_message)


def test_a_look_ends_before_dagster_ends_the_tick_however_patient_the_connection_is() -> None:
    patient = KafkaConnectionResource(bootstrap_servers="127.0.0.1:1", timeout_s=600.0)
    job = parse_job({
        "job": "events",
        "source": {"type": "kafka", "connection": "kafka"},
        "destination": "/lake",
        "datasets": [{"topic": "a"}],
    })  # fmt: skip
    with pytest.raises(RetryableError, match=r"answered in 1 s"):
        patient.open_watch(job, timeout_s_max=1.0).list_names()


def test_brokers_that_are_away_are_one_line_in_both_sensors(events: Events) -> None:
    events.resources["kafka__kafka"] = KafkaConnectionResource(bootstrap_servers="127.0.0.1:1", timeout_s=1.0)
    events.define({"topic": "a"}, source={"include": ["b*"]}, discovered=["b1"])
    for name in (NEW_DATA, DISCOVERY):
        said = str(events.tick(name).skip_message)
        assert "127.0.0.1:1" in said
        assert "\n" not in said


def test_topics_with_windows_are_asked_for_in_the_window_that_is_open_and_the_others_in_a_run_of_their_own(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    views, clicks = topic("views"), topic("clicks")
    kafka = {"value": {"format": "string"}}
    windows = {"kind": "monthly", "start": "2026-01-01"}
    events.define({"topic": views, "kafka": kafka, "partitions": windows}, {"topic": clicks, "kafka": kafka})
    produce(kafka_broker.bootstrap, views, [b"one", b"two"])
    produce(kafka_broker.bootstrap, clicks, [b"three"])
    month = dt.datetime.now(dt.UTC).strftime("%Y-%m-01")

    requests = events.tick().run_requests or []
    assert {(tuple(each.asset_selection or ()), each.partition_key) for each in requests} == {
        ((events.key(views),), month),
        ((events.key(clicks),), None),
    }
    assert len({each.run_key for each in requests}) == 2
    for each in requests:
        events.run(each)

    (shown,) = events.instance.fetch_materializations(events.key(views), limit=10).records
    assert (shown.partition_key, events.shown(views)[0]["gobblin/rows"]) == (month, 2)
    assert [event["gobblin/rows"] for event in events.shown(clicks)] == [1]
    assert not events.tick().run_requests
