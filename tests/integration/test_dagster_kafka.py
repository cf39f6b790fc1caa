"""A Kafka job in a real Dagster instance, over a real broker: runs, lag, checks, and what its sensors ask for and say.

A tick is evaluated as the daemon does it, and what it asks for is run with the tags that the daemon gives to it.
"""

import datetime as dt
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._serdes import deserialize_value, serialize_value
from pyspark.sql import SparkSession

from demo.kafka.broker import KafkaBroker
from gobblin_assets.assets.factory import build_gobblin_definitions
from gobblin_assets.errors import RetryableError
from gobblin_assets.failpoints import Failpoint, install
from gobblin_assets.ingest.job_parsing import parse_job
from gobblin_assets.ingest.sources.discovery import find_discovery, write_discovery
from gobblin_assets.ingest.spark.settings import SparkSettings
from resources import CommitStoreResource, GobblinSparkResource, KafkaConnectionResource, gobblin_resources
from tests.support.kafka import delete_topics, produce
from tests.support.spark import wait_until

NEW_DATA, DISCOVERY = "events_new_data_sensor", "events_discovery_sensor"
FOUND_AT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Events:
    """One job, its Dagster instance, and ticks of its sensors, which keep their cursors as the daemon does."""

    def __init__(
        self, settings: SparkSettings, database_url: str, bootstrap: str, folder: Path, instance: dg.DagsterInstance
    ) -> None:
        self.instance = instance
        self.folder = folder
        self.resources = gobblin_resources(
            {"kafka": KafkaConnectionResource(bootstrap_servers=bootstrap, timeout_s=15.0)},
            spark=GobblinSparkResource(
                master=settings.master,
                spark_config=dict(settings.conf),
                capabilities=list(settings.capabilities),
                work_folder=str(settings.work_folder),
            ),
            stores=CommitStoreResource(database_url=database_url),
        )
        self._cursors: dict[str, str | None] = {}

    def define(
        self,
        *datasets: Mapping[str, Any],
        source: Mapping[str, Any] | None = None,
        discovered: Sequence[str] | None = None,
        discovery_path: Path | None = None,
        **options: Any,
    ) -> None:
        """Load the definitions, as a code location does."""
        job = parse_job({
            "job": "events",
            "source": {"type": "kafka", "connection": "kafka", **(source or {})},
            "destination": str(self.folder / "lake"),
            "datasets": list(datasets),
            "retire_grace_s": 0.0,
            **options,
        })  # fmt: skip
        built = build_gobblin_definitions(job, discovered=discovered, discovery_path=discovery_path)
        self.definitions = dg.Definitions.merge(built, dg.Definitions(resources=self.resources))

    def tick(self, name: str = NEW_DATA) -> SensorExecutionData:
        sensor = self.definitions.resolve_sensor_def(name)
        with dg.build_sensor_context(
            instance=self.instance,
            resources=self.resources,
            cursor=self._cursors.get(name),
            repository_def=self.definitions.get_repository_def(),
        ) as context:
            # What a tick gives goes to the daemon as text.
            given = deserialize_value(serialize_value(sensor.evaluate_tick(context)), SensorExecutionData)
        self._cursors[name] = given.cursor
        for event in given.asset_events:
            self.instance.report_runless_asset_event(event)
        return given

    def run(self, request: dg.RunRequest) -> None:
        tags = {**request.tags, "dagster/sensor_name": NEW_DATA, "dagster/run_key": str(request.run_key)}
        result = self.definitions.resolve_job_def(request.job_name or "events_whole").execute_in_process(
            instance=self.instance,
            asset_selection=list(request.asset_selection or ()),
            partition_key=request.partition_key,
            tags=tags,
        )
        assert result.success

    def follow(self, topic: str, stream_s: float) -> dg.DagsterRun:
        """A run that a person starts, and that follows the topic."""
        result = self.definitions.resolve_job_def("events_whole").execute_in_process(
            instance=self.instance,
            asset_selection=[self.key(topic)],
            run_config={"ops": {"events": {"config": {"stream_s": stream_s}}}},
            raise_on_error=False,
        )
        run = self.instance.get_run_by_id(result.run_id)
        assert run is not None
        return run

    def key(self, topic: str) -> dg.AssetKey:
        return dg.AssetKey(["events", topic])

    def shown(self, topic: str) -> list[Mapping[str, Any]]:
        """The metadata of each materialization, oldest first."""
        records = self.instance.fetch_materializations(self.key(topic), limit=100, ascending=True).records
        events = [record.asset_materialization for record in records]
        return [{name: value.value for name, value in event.metadata.items()} for event in events if event]

    def lag_check(self, topic: str) -> dg.AssetCheckEvaluation:
        """The latest one."""
        check = dg.AssetCheckKey(self.key(topic), "lag")
        record = self.instance.get_latest_asset_check_evaluation_record(check)
        assert record is not None
        assert record.evaluation is not None
        return record.evaluation


@pytest.fixture
def events(
    spark: SparkSession,
    spark_settings: SparkSettings,
    database_url: str,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
) -> Iterator[Events]:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        yield Events(spark_settings, database_url, kafka_broker.bootstrap, tmp_path, instance)


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
        patient.open_watch(job, timeout_s_max=1.0).list_topics()


def test_brokers_that_are_away_are_one_line_in_both_sensors(events: Events) -> None:
    events.resources["kafka"] = KafkaConnectionResource(bootstrap_servers="127.0.0.1:1", timeout_s=1.0)
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


def in_thread(*steps: Callable[[], object]) -> threading.Thread:
    """Begin them, one after the other, beside what comes next."""
    thread = threading.Thread(target=lambda: [step() for step in steps])
    thread.start()
    return thread


def test_a_stream_ends_when_its_time_is_over_and_a_run_has_the_rest(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    views = topic("views", 2)
    events.define({"topic": views, "kafka": {"value": {"format": "string"}}}, stream={"publish_every_s": 0.2})
    produce(kafka_broker.bootstrap, views, [b"one", b"two"])

    more = in_thread(
        lambda: wait_until(lambda: len(events.shown(views)) == 1, "the first publication"),
        lambda: produce(kafka_broker.bootstrap, views, [b"three"]),
    )
    run = events.follow(views, stream_s=2.0)
    more.join()

    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert events.shown(views)[0]["gobblin/rows"] == 2
    for request in events.tick().run_requests or []:
        events.run(request)
    assert sum(event["gobblin/rows"] for event in events.shown(views)) == 3


@pytest.mark.parametrize("by", ["a person", "the machine"])
def test_a_stream_whose_run_is_terminated_ends_at_a_published_boundary(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str], by: str
) -> None:
    """As Dagster's launcher does it for a person, after a word in the storage; and as a machine that goes down does."""
    views = topic("views", 2)
    events.define({"topic": views, "kafka": {"value": {"format": "string"}}}, stream={"publish_every_s": 0.2})
    produce(kafka_broker.bootstrap, views, [b"one", b"two"])

    def await_publications(count: int) -> None:
        wait_until(lambda: len(events.shown(views)) == count, f"{count} publications")

    def terminate() -> None:
        if by == "a person":
            (run,) = events.instance.get_runs()
            events.instance.report_run_canceling(run)
        os.kill(os.getpid(), signal.SIGINT if by == "a person" else signal.SIGTERM)

    terminating = in_thread(
        lambda: await_publications(1),
        lambda: produce(kafka_broker.bootstrap, views, [b"three"]),
        lambda: await_publications(2),
        terminate,
    )
    run = events.follow(views, stream_s=200.0)
    terminating.join()

    assert run.status is (dg.DagsterRunStatus.CANCELED if by == "a person" else dg.DagsterRunStatus.FAILURE)
    said = [record.user_message for record in events.instance.all_logs(run.run_id)]
    assert any("stopped at a published boundary; 3 rows in 2 publications" in line for line in said), said
    produce(kafka_broker.bootstrap, views, [b"four"])
    (request,) = events.tick().run_requests or []
    events.run(request)
    assert [event["gobblin/rows"] for event in events.shown(views)] == [2, 1, 1]


def test_a_stream_that_fails_while_it_is_terminated_is_not_tried_again(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    """As when a machine goes down, and Spark's server with it."""
    views = topic("views")
    events.define({"topic": views, "kafka": {"value": {"format": "string"}}}, stream={"publish_every_s": 0.2})
    produce(kafka_broker.bootstrap, views, [b"one"])

    def go_down(point: Failpoint) -> None:
        if point is Failpoint.SEALED_BEFORE_EXECUTE:
            os.kill(os.getpid(), signal.SIGTERM)
            raise ConnectionRefusedError("nobody listens")

    with install(go_down):
        run = events.follow(views, stream_s=200.0)

    assert run.status is dg.DagsterRunStatus.FAILURE
    kinds = {record.dagster_event_type for record in events.instance.all_logs(run.run_id)}
    assert dg.DagsterEventType.STEP_UP_FOR_RETRY not in kinds
    assert not events.shown(views)


def test_an_event_that_dagster_does_not_take_is_told_later_by_the_stream(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    views = topic("views")
    events.define(
        {"topic": views, "kafka": {"value": {"format": "string"}}},
        stream={"publish_every_s": 0.2},
        retry={"back_off_s": 0.1},
    )
    produce(kafka_broker.bootstrap, views, [b"one", b"two"])
    log_event, refused = dg.AssetExecutionContext.log_event, []

    def refuse_once(context: dg.AssetExecutionContext, event: Any) -> None:
        if isinstance(event, dg.AssetMaterialization) and not refused:
            refused.append(event)
            raise OSError("Dagster's storage does not answer")
        log_event(context, event)

    monkeypatch.setattr(dg.AssetExecutionContext, "log_event", refuse_once)
    run = events.follow(views, stream_s=3.0)

    assert refused
    assert run.status is dg.DagsterRunStatus.SUCCESS
    assert [event["gobblin/rows"] for event in events.shown(views)] == [2]


def test_what_a_stream_can_not_do_fails_the_run_with_the_reason(
    events: Events, kafka_broker: KafkaBroker, topic: Callable[..., str]
) -> None:
    views = topic("views")
    events.define({"topic": views, "kafka": {"value": {"format": "string"}}})
    produce(kafka_broker.bootstrap, views, [b"one"])

    run = events.follow(views, stream_s=-1.0)

    assert run.status is dg.DagsterRunStatus.FAILURE
    told = [record.dagster_event for record in events.instance.all_logs(run.run_id)]
    (failure,) = [event.step_failure_data.user_failure_data for event in told if event and event.is_step_failure]
    assert failure is not None
    assert "stream_s: expected a number of seconds above 0, found -1.0" in str(failure.description)
    assert not events.shown(views)
