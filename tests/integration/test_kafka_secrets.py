"""A login reaches both clients, and shows in no message, no table and no log."""

import os
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, MetaData

from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.environment import read_connection
from gobblin_assets.sources.kafka.cluster_connection import ClusterConnection
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec
from gobblin_assets.sources.kafka.source import KafkaSource
from gobblin_assets.sources.source_port import Source
from gobblin_assets.spark.spark_settings import SparkSettings
from gobblin_assets.spec.job_spec import JobSpec
from tests.support.kafka import make_topic, produce
from tests.support.topics import Open

pytestmark = pytest.mark.turns(of=8)

USER = "ann"
PASSWORD = "correct horse;=staple"
WRONG = "wrong battery;=cable"
TOPIC = "orders"
TEXT = {"value": {"format": "string"}}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with start_broker(tmp_path_factory.mktemp("broker"), users={USER: PASSWORD}) as broker:
        make_topic(broker.bootstrap, TOPIC)
        produce(broker.bootstrap, TOPIC, [b"a", b"b"])
        yield broker


def set_login(monkeypatch: pytest.MonkeyPatch, broker: KafkaBroker, password: str, mechanism: str = "PLAIN") -> None:
    for field, value in {
        "BOOTSTRAP_SERVERS": broker.sasl_bootstrap,
        "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SASL_MECHANISM": mechanism,
        "USERNAME": USER,
        "PASSWORD": password,
    }.items():
        monkeypatch.setenv(f"GOBBLIN_KAFKA_KAFKA_{field}", value)


def open_source(job: JobSpec) -> Source:
    return read_connection(job.source, os.environ).open_source(job)


def open_with_spark_refused(job: JobSpec) -> Source:
    """A source whose password changes after planning: Spark reads with a wrong one."""
    given = read_connection(job.source, os.environ)
    assert isinstance(job.source, KafkaSourceSpec)
    assert isinstance(given, ClusterConnection)
    right = given.connection("kafka")
    refused = given.model_copy(update={"password": WRONG}).connection("kafka")
    return KafkaSource(ConfluentCluster(right), refused, job.source)


def dump(engine: Engine) -> str:
    """All tables of the log as text."""
    tables = MetaData()
    tables.reflect(engine, schema="gobblin")
    assert "gobblin.commit_sequence" in tables.tables
    with engine.connect() as connection:
        return "\n".join(
            str(tuple(row)) for table in tables.tables.values() for row in connection.execute(table.select())
        )


def read_logs(spark_settings: SparkSettings) -> str:
    written = [path for path in spark_settings.work_folder.rglob("*") if path.is_file() and path.suffix != ".jar"]
    assert any(path.name.startswith("driver-") for path in written)
    return "\n".join(path.read_bytes().decode(errors="replace") for path in written)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_login_from_the_environment_reads_a_topic(
    ingest: Open, secured: KafkaBroker, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    set_login(monkeypatch, secured, PASSWORD, mechanism)
    ingestion = ingest({"topic": TOPIC, "kafka": TEXT}, open_source=open_source)

    report = ingestion.run()

    assert not report.failed, report.failed
    assert ingestion.rows(TOPIC, "value") == {("a",): 1, ("b",): 1}


def test_a_wrong_password_is_refused_at_once_without_being_said(
    ingest: Open, secured: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_login(monkeypatch, secured, WRONG)
    ingestion = ingest({"topic": TOPIC, "kafka": TEXT}, open_source=open_source)

    with pytest.raises(RejectedError, match=r"refuses the login of 'ann'") as raised:
        ingestion.run()

    assert "connections[kafka].password" in str(raised.value)
    assert WRONG not in f"{raised.value!r} {raised.value} {dump(ingestion.engine)}"


@pytest.mark.core
def test_a_password_shows_in_no_report_no_table_and_no_log(
    ingest: Open,
    secured: KafkaBroker,
    monkeypatch: pytest.MonkeyPatch,
    spark_settings: SparkSettings,
    capfd: pytest.CaptureFixture[str],
) -> None:
    set_login(monkeypatch, secured, PASSWORD)
    unknown_column = {"converters": [{"sql": {"more": "no_such_column + 1"}}]}
    fails_at_work = {"converters": [{"sql": {"more": "assert_true(value = 'none')"}}]}
    shown: list[object] = []
    for source, links in (
        (open_source, {}),
        (open_source, unknown_column),
        (open_source, fails_at_work),
        (open_with_spark_refused, {}),
    ):
        dataset = {"topic": TOPIC, "urn": f"orders-{len(shown)}", "kafka": TEXT, **links}
        ingestion = ingest(dataset, open_source=source)
        report = ingestion.run()
        shown += [report, ingestion.lines, ingestion.events]
        if source is open_with_spark_refused:
            (refused,) = report.failed
            assert refused.error_family == "RejectedError", refused
            assert "connections[kafka].password: the brokers refuse the login" in str(refused.error)
        else:
            assert bool(report.failed) == bool(links)

    everything = "\n".join([
        *(repr(each) for each in shown),
        dump(ingestion.engine),
        read_logs(spark_settings),
        *capfd.readouterr(),
    ])  # fmt: skip
    for secret in (PASSWORD, WRONG):
        assert secret not in everything, everything[everything.index(secret) - 500 :][:1_000]
