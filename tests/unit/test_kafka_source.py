"""A run's planning session: its questions to the brokers, and how topics that share it affect each other."""

import uuid
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from gobblin_assets.commit.segment import Segment
from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.partition import AssetPartition
from gobblin_assets.model.policy import UnitResult
from gobblin_assets.model.state import AttemptId, DatasetId, SequenceId
from gobblin_assets.model.urn import Role
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.run.job_kind import Staged, TaskFigures, UnitPlan
from gobblin_assets.run.seal_decision import learn_facts
from gobblin_assets.run.slices import Slice, StagedTask
from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec
from gobblin_assets.sources.kafka.source import KafkaSource
from gobblin_assets.sources.source_port import SourceRequest
from gobblin_assets.state.leases import Lease
from tests.support.topic_plans import CONNECTION, FixedCluster, Follower, offsets_of

FROM_THE_END = {"bootstrap_with": "latest"}


def plan(cluster: FixedCluster, requests: Sequence[SourceRequest], **options: object) -> list[UnitPlan | str]:
    """Each request's plan, or the error that it ends with."""
    spec = KafkaSourceSpec.model_validate({"type": "kafka", "connection": "events", **options})
    outcomes: list[UnitPlan | str] = []
    with KafkaSource(cluster, CONNECTION, spec).open_plan(no_spark, print, requests) as session:
        for request in requests:
            try:
                outcomes.append(session.plan(request))
            except RejectedError as error:
                outcomes.append(error.message)
    return outcomes


def no_spark() -> SparkSession:
    raise AssertionError("what has no records needs no Spark")


@pytest.mark.parametrize("options", [{}, {"records_per_run_max": 5}])
def test_the_brokers_are_asked_once_and_a_topic_that_is_refused_stops_no_other(options: dict[str, object]) -> None:
    cluster = FixedCluster({"a": offsets_of({0: (0, 9)}), "b": offsets_of({0: (0, 7)})})
    followers = [Follower(FROM_THE_END, topic=name) for name in ("b", "unknown", "a")]

    first, refused, last = plan(cluster, [follower.request() for follower in followers], **options)

    assert cluster.asked == [["a", "b", "unknown"]]
    assert refused == "topic: there is no such topic"
    assert isinstance(first, UnitPlan)
    assert isinstance(last, UnitPlan)
    assert [unit.key for unit in (*first.work_units, *last.work_units)] == ["b:0", "a:0"]


def test_a_partition_that_failed_at_first_is_looked_up_by_time_later() -> None:
    kafka = {"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"}
    follower = Follower(kafka)
    follower.publish(follower.decide(offsets_of({0: (0, 9)}, 1), at_time={0: 9}))
    cluster = FixedCluster({"MyTopic": offsets_of({0: (0, 9), 1: (0, 5)})}, {TopicPartition("MyTopic", 1): 5})

    (found,) = plan(cluster, [follower.request()])

    assert isinstance(found, UnitPlan)
    assert [str(unit.interval.high) for unit in found.work_units if unit.interval is not None] == ["9", "5"]


def test_produce_rates_are_remembered_where_they_are_asked_for() -> None:
    cluster = FixedCluster({"MyTopic": offsets_of({0: (0, 9)})})
    (plain,) = plan(cluster, [Follower(FROM_THE_END).request()])
    (by_rate,) = plan(cluster, [Follower(FROM_THE_END).request()], size_estimator="produce_rate")
    assert isinstance(plain, UnitPlan)
    assert isinstance(by_rate, UnitPlan)
    assert "produced" not in plain.facts
    assert "produced" in by_rate.facts


def test_what_the_published_tasks_showed_is_remembered_with_the_facts() -> None:
    given: list[TaskFigures] = []

    def learn(tasks: Sequence[TaskFigures]) -> dict[str, object]:
        given.extend(tasks)
        return {"learned": len(tasks)}

    follower = Follower()
    request = follower.request()
    numbers = iter(range(10))
    units = [
        WorkUnit(
            id=WorkUnitId(uuid.UUID(int=next(numbers))),
            dataset=request.urn,
            partition=AssetPartition(None),
            key=f"MyTopic:{number}",
            number=0,
            interval=None,
            estimated_row_count=count,
        )
        for number, count in enumerate((10, 20, 40))
    ]
    good, discarded = (AttemptId(uuid.UUID(int=next(numbers))) for _attempt in range(2))
    planned = UnitPlan(request.urn, AssetPartition(None), Mode.APPEND, False, False, tuple(units), learn=learn)
    part = Slice(
        request.urn,
        AssetPartition(None),
        request.state,
        Lease(DatasetId(1), 1),
        planned,
        SequenceId(uuid.UUID(int=99)),
    )
    part.results = [
        UnitResult(unit, succeeded=True, attempt=attempt)
        for unit, attempt in zip(units, (good, good, discarded), strict=True)
    ]
    segments = tuple(Segment(role, "", b"", b"", 1, 1, 5, 100) for role in (Role.DATA, Role.DEAD_LETTER))
    winner = StagedTask(good, Staged((), rows_read=30), segments, 2.5)

    assert learn_facts(part, [winner]) == {"learned": 1}
    assert given == [TaskFigures(estimated_row_count=30, file_bytes=200, duration_s=2.5)]
