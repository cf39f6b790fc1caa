"""Dagster runs that follow topics, over a real broker: their ends and their reports."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from demo.kafka.broker import KafkaBroker
from gobblin_assets.failpoints import Failpoint, install
from tests.support.dagster_topics import Events
from tests.support.kafka import produce
from tests.support.spark import wait_until

pytestmark = pytest.mark.turns(of=8)


def in_thread(*steps: Callable[[], object]) -> threading.Thread:
    """Begin the steps, one after the other, in a thread of their own."""
    thread = threading.Thread(target=lambda: [step() for step in steps])
    thread.start()
    return thread


@pytest.mark.core
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
    """Terminated by Dagster's launcher for a person, after a note in the storage; and by a machine that goes down."""
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
    """The machine goes down, and Spark's server with it."""
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
    run = events.follow(views, stream_s=10.0)

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
