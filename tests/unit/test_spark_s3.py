"""Spark's configuration for S3 follows the product's own settings, and holds no secret."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.s3.credentials import find_region
from gobblin_assets.fs.s3.s3_settings import DEFAULT_REGION, S3Settings
from gobblin_assets.jobs.ingest.spark_engine import SparkEngine
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spark.errors import explain_s3_failure
from gobblin_assets.spark.s3 import mark_environment, plan_s3_conf
from gobblin_assets.spark.spark_settings import COORDINATES, SparkSettings, merge_jars, plan_conf
from gobblin_assets.spec.job_parsing import parse_job

WORK = Path("/work")
S3A = "spark.hadoop.fs.s3a."
PROVIDERS = f"{S3A}aws.credentials.provider"
KEYS = {"GOBBLIN_S3_ACCESS_KEY_ID": "somebody", "GOBBLIN_S3_SECRET_ACCESS_KEY": "hush"}
STORE = {"GOBBLIN_S3_ENDPOINT_URL": "https://store.example.com:9000", "GOBBLIN_S3_REGION": "eu-central-1"}


@pytest.fixture(autouse=True)
def _nothing_of_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """AWS's own chain must not find the files of whoever runs the tests."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def _set(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_the_connector_is_of_the_hadoop_that_pyspark_has() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (found,) = (re.search(r"api-(.*)\.jar", path.name) for path in jars.glob("hadoop-client-api-*.jar"))
    assert found is not None
    assert f"org.apache.hadoop:hadoop-aws:{found[1]}" in COORDINATES["s3"].split(",")


def test_a_store_and_its_region_are_those_of_the_product_s_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, {**STORE, **KEYS})
    conf = plan_conf(SparkSettings(WORK, capabilities=("s3",)))
    assert conf["spark.hadoop.fs.s3.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    assert conf[f"{S3A}endpoint"] == "https://store.example.com:9000"
    assert conf[f"{S3A}endpoint.region"] == "eu-central-1"
    assert conf[f"{S3A}path.style.access"] == "true"
    assert not {key for key in plan_conf(SparkSettings(WORK)) if "s3" in key}, "without the capability"


def test_at_aws_buckets_are_parts_of_the_host_s_name(tmp_path: Path) -> None:
    conf = plan_s3_conf({}, {})
    assert not {f"{S3A}endpoint", f"{S3A}path.style.access"} & conf.keys()
    assert conf[f"{S3A}endpoint.region"] == DEFAULT_REGION
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n")
    assert plan_s3_conf({}, {})[f"{S3A}endpoint.region"] == "eu-north-1"
    assert find_region(S3Settings(access_key_id="a", secret_access_key="b")) == DEFAULT_REGION


def test_a_profile_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(RejectedError, match="ProfileNotFound"):
        plan_s3_conf({}, {})


def test_given_keys_are_named_and_never_written() -> None:
    lent = {**STORE, **KEYS, "GOBBLIN_S3_SESSION_TOKEN": "hush hush"}
    conf = plan_s3_conf(lent, {})
    assert not {"somebody", "hush", "hush hush"} & set(conf.values())
    assert conf[f"{S3A}secret.key"] == "${env.GOBBLIN_S3_SECRET_ACCESS_KEY:-}"
    assert conf == plan_s3_conf({**STORE, **KEYS}, {}), "executors look for a token by themselves"


def test_a_role_of_the_machine_never_stands_in_for_given_keys() -> None:
    assert "DefaultCredentialsProvider" in plan_s3_conf({}, {})[PROVIDERS]
    assert "DefaultCredentialsProvider" not in plan_s3_conf(KEYS, {})[PROVIDERS]
    assert f"{S3A}access.key" not in plan_s3_conf({}, {})


@pytest.mark.parametrize("environment", [KEYS, {}])
def test_the_user_s_own_settings_count(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    _set(monkeypatch, environment)
    own = {f"{S3A}endpoint": "https://other", f"{S3A}retry.limit": "9", f"{S3A}bucket.b.endpoint": "https://third"}
    conf = plan_conf(SparkSettings(WORK, capabilities=("s3",), conf=own))
    assert own.items() <= conf.items()
    # Keys for one bucket are found by these, and keys for all buckets by Hadoop's own list.
    assert "SimpleAWSCredentialsProvider" in conf[PROVIDERS]
    with_keys = plan_conf(SparkSettings(WORK, capabilities=("s3",), conf={f"{S3A}access.key": "theirs"}))
    assert PROVIDERS not in with_keys
    assert with_keys[f"{S3A}access.key"] == "theirs"
    assert f"{S3A}secret.key" not in with_keys


def test_the_whole_sdk_is_not_fetched_unless_somebody_gives_other_coordinates() -> None:
    user = {"spark.jars.excludes": "a:b"}
    conf = plan_conf(SparkSettings(WORK, capabilities=("s3",), conf=user))
    assert conf["spark.jars.excludes"].startswith("a:b,software.amazon.awssdk:bundle,")
    other = {"s3": "org.apache.hadoop:hadoop-aws:3.4.2,software.amazon.awssdk:bundle:2.29.52"}
    assert "spark.jars.excludes" not in plan_conf(SparkSettings(WORK, capabilities=("s3",), coordinates=other))
    assert merge_jars(user, {"spark.jars.excludes": "c:d"}) == {"spark.jars.excludes": "a:b,c:d"}
    with pytest.raises(RejectedError, match=r"spark\.coordinates\.s3"):
        plan_conf(SparkSettings(WORK, capabilities=("s3",), coordinates={"s3": "a:b:1,c"}))


def test_certificates_that_java_cannot_read_are_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    environment = {**STORE, **KEYS, "GOBBLIN_S3_CA_FILE": str(tmp_path / "ca.pem")}
    with pytest.raises(RejectedError) as refused:
        plan_s3_conf(environment, {})
    assert refused.value.field == "GOBBLIN_S3_CA_FILE"
    assert "trustStore" in refused.value.hint
    assert plan_s3_conf(environment, {"spark.driver.extraJavaOptions": "-Xss4m -Djavax.net.ssl.trustStore=/a"})


@pytest.mark.parametrize(("destination", "asked"), [("s3://bucket/lake", True), ("/data/lake", False)])
def test_a_job_whose_destination_is_a_bucket_asks_for_the_connector(
    monkeypatch: pytest.MonkeyPatch, destination: str, asked: bool
) -> None:
    monkeypatch.setenv("GOBBLIN_JDBC_SALES_URL", "jdbc:postgresql://db/sales")
    job = parse_job({"job": "j", "source": {"connection": "sales"}, "destination": "/data", "datasets": [{"urn": "t"}]})
    job = job.model_copy(update={"destination": destination})
    assert ("s3" in SparkEngine(work_folder="/work").settings(job).capabilities) is asked


def test_a_mark_tells_other_stores_and_keys_apart_and_nothing_else() -> None:
    mark = mark_environment({**KEYS, "HOME": "/a"}, "token")
    assert mark == mark_environment({**KEYS, "HOME": "/b"}, "token")
    assert mark != mark_environment({**KEYS, "GOBBLIN_S3_SECRET_ACCESS_KEY": "other"}, "token")
    assert mark != mark_environment({**KEYS, "AWS_PROFILE": "other"}, "token")
    assert mark != mark_environment(KEYS, "another token")
    assert mark_environment({"GOBBLIN_S3_REGION": b"\xff".decode(errors="surrogateescape")}, "token")


def test_a_server_that_was_started_without_s3_or_with_other_keys_does_not_reach_the_stores_of_a_process() -> None:
    def start(environment: Mapping[str, str] | None) -> ConnectServer:
        url = "sc://localhost:1/;token=t"
        mark = "" if environment is None else mark_environment(environment, url)
        return ConnectServer(url, 1, 1, "boot:1", "digest", WORK / "log", ("s3",), mark)

    assert start(KEYS).reaches_s3_by(KEYS)
    assert not start({}).reaches_s3_by(KEYS)
    assert not start(None).reaches_s3_by(KEYS)
    assert "hush" not in start(KEYS).s3_mark


@pytest.mark.parametrize(
    ("text", "said", "field"),
    [
        (
            "Failed.\n: java.nio.file.AccessDeniedException: s3://b/a b/c.parquet: open s3://b/a b/c.parquet: …",
            "Spark can't read: the store denies access to s3://b/a b/c.parquet",
            "GOBBLIN_S3_ACCESS_KEY_ID",
        ),
        (
            "(java.nio.file.AccessDeniedException) s3a://b/a: getFileStatus on s3a://b/a: …",
            "Spark can't read: the store denies access to s3a://b/a",
            "GOBBLIN_S3_ACCESS_KEY_ID",
        ),
        (
            "java.nio.file.AccessDeniedException: s3://b/a: org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No …",
            "Spark can't read: Spark's processes have no keys for s3://b/a",
            "GOBBLIN_S3_ACCESS_KEY_ID",
        ),
        (
            ": org.apache.hadoop.fs.s3a.UnknownStoreException: `s3://b/a': getFileStatus on s3://b/a: …",
            "Spark can't read: there is no bucket b",
            "destination",
        ),
    ],
)
def test_what_a_store_refuses_is_said_as_a_refusal(text: str, said: str, field: str) -> None:
    found = explain_s3_failure(text, action="read")
    assert found is not None
    assert (found.field, found.message) == (field, f"{field}: {said}")


def test_what_a_disk_refuses_is_not_taken_for_a_store() -> None:
    assert explain_s3_failure("java.nio.file.AccessDeniedException: /data/a: denied", action="read") is None
    assert explain_s3_failure("java.net.ConnectException: Connection refused", action="read") is None
