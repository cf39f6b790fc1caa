"""A Kafka connection: one set of fields for two clients, mistakes named with their fix, secrets never shown."""

import re
from typing import Any

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.dagster.resources import KafkaConnectionResource
from gobblin_assets.dagster.resources.connections import connection_from_environment
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.kafka.client_reports import ClientFailure, explain_partition, judge_client, judge_topic
from gobblin_assets.kafka.connection import READER_OPTIONS, SHARED_OPTIONS, KafkaConnection
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec

_SASL: dict[str, Any] = {
    "bootstrap_servers": "a:1, b:2",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "username": "ann",
    "password": "hunter2",
}
_CONNECTION = KafkaConnection(**_SASL)


def test_both_clients_get_the_same_servers_login_and_certificates() -> None:
    connection = KafkaConnection(
        **_SASL, ssl_ca_file="ca.pem", ssl_client_file="me.pem", ssl_client_password="opensesame", timeout_s=20
    )
    assert connection.admin_settings() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "hunter2",
        "ssl.ca.location": "ca.pem",
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "ssl.key.password": "opensesame",
        "socket.connection.setup.timeout.ms": 4_000,
    }
    assert connection.spark_options() == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="hunter2";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "me.pem",
        "kafka.ssl.key.password": "opensesame",
    }


def test_a_name_that_is_not_checked_is_not_checked_by_either_client() -> None:
    connection = KafkaConnection("[::1]:9092", "SSL", ssl_check_hostname=False)
    assert connection.admin_settings()["ssl.endpoint.identification.algorithm"] == "none"
    assert connection.spark_options()["kafka.ssl.endpoint.identification.algorithm"] == ""


def test_options_of_the_reader_alone_stay_with_the_reader() -> None:
    connection = KafkaConnection("a:1", options={"client.id": "x", "fetch.min.bytes": "7"})
    assert connection.spark_options()["kafka.fetch.min.bytes"] == "7"
    assert connection.spark_options()["kafka.client.id"] == connection.admin_settings()["client.id"] == "x"
    assert "fetch.min.bytes" not in connection.admin_settings()
    assert not SHARED_OPTIONS & READER_OPTIONS


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"bootstrap_servers": ""}, "bootstrap_servers", "expected host:port, found ''"),
        ({"bootstrap_servers": "a:1,b"}, "bootstrap_servers", "found 'b'"),
        ({"bootstrap_servers": "a:70000"}, "bootstrap_servers", "found 'a:70000'"),
        ({"bootstrap_servers": "kafka://a:1"}, "bootstrap_servers", "without a scheme"),
        ({"bootstrap_servers": "ann:hunter2@a:1"}, "bootstrap_servers", "found 'a:1'"),
        ({"bootstrap_servers": "ann:hunter2,x@a:1"}, "bootstrap_servers", "found something else"),
        ({"bootstrap_servers": "a:1?password=hunter2"}, "bootstrap_servers", "found something else"),
        ({"security_protocol": "TLS"}, "security_protocol", "found 'TLS'"),
        ({"security_protocol": "SSL"}, "security_protocol", "SSL has no login"),
        ({"sasl_mechanism": None}, "sasl_mechanism", "Give PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"sasl_mechanism": "MD5"}, "sasl_mechanism", "found 'MD5'"),
        ({"password": None}, "password", "it is missing"),
        ({"username": ""}, "username", "it is missing"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": "ca.pem"}, "security_protocol", "is not encrypted"),
        ({"ssl_client_password": "hunter2"}, "ssl_client_file", "missing beside ssl_client_password"),
        ({"options": {"sasl.password": "hunter2"}}, "options", "sasl.password can't be set here"),
        ({"timeout_s": 0}, "timeout_s", "more than 0 seconds"),
    ],
)
def test_a_mistake_is_named_with_its_field_and_no_secret(given: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(RejectedError, match=re.escape(said)) as caught:
        KafkaConnection(**{**_SASL, **given}, name="events")
    assert caught.value.field == f"connections[events].{field}"
    assert "hunter2" not in str(caught.value)


@given(st.text(min_size=3, max_size=20))
def test_no_secret_is_in_the_text_of_a_connection_or_of_what_a_client_says(secret: str) -> None:
    marked = f"s3cr3t{secret}"
    connection = KafkaConnection(**{**_SASL, "password": marked}, options={"client.id": marked})
    assert marked not in repr(connection)
    assert marked not in connection.scrub(f"login failed: {marked}")
    assert connection.spark_options()["kafka.sasl.jaas.config"] not in connection.scrub(
        str(connection.spark_options()["kafka.sasl.jaas.config"])
    )


@given(st.text(max_size=20))
def test_a_password_is_read_back_by_the_rules_of_java_s_tokenizer(password: str) -> None:
    jaas = KafkaConnection(**{**_SASL, "password": f"x{password}"}).spark_options()["kafka.sasl.jaas.config"]
    quoted = re.search(r' password="((?:[^"\\\n\r]|\\.)*)";\Z', jaas, re.DOTALL)
    assert quoted is not None
    unescaped = {"\\n": "\n", "\\r": "\r", '\\"': '"', "\\\\": "\\"}
    assert re.sub(r"\\.", lambda found: unescaped[found[0]], quoted[1]) == f"x{password}"


@pytest.mark.parametrize(
    ("name", "family", "said"),
    [
        ("_AUTHENTICATION", RejectedError, "password"),
        ("_INVALID_ARG", RejectedError, "options"),
        ("TOPIC_AUTHORIZATION_FAILED", RejectedError, "Grant this user Describe"),
        ("_TIMED_OUT", RetryableError, "no broker of a:1, b:2 answered in 30 s"),
        ("_TRANSPORT", RetryableError, "no broker"),
        ("NOT_CONTROLLER", RetryableError, "NOT_CONTROLLER"),
    ],
)
def test_what_a_client_reports_has_a_family_and_no_secret(name: str, family: type[GobblinError], said: str) -> None:
    found = judge_client(ClientFailure(name, "it said hunter2"), _CONNECTION, action="look")
    assert type(found) is family
    assert said in str(found)
    assert "hunter2" not in str(found)


def test_of_a_call_that_timed_out_what_the_connections_reported_is_the_cause() -> None:
    seen = [
        ClientFailure("_TRANSPORT", "a:1 refused (after 5ms in state CONNECT)"),
        ClientFailure("_TRANSPORT", "a:1 refused (after 1ms in state CONNECT)"),
        ClientFailure("_ALL_BROKERS_DOWN", "2/2 brokers are down"),
    ]
    silent = judge_client(ClientFailure("_TIMED_OUT", "timed out"), _CONNECTION, action="look", seen=seen)
    assert "answered in 30 s: a:1 refused. Check" in str(silent)
    refused = [*seen, ClientFailure("_AUTHENTICATION", "bad login")]
    found = judge_client(ClientFailure("_TIMED_OUT", "timed out"), _CONNECTION, action="look", seen=refused)
    assert isinstance(found, RejectedError)
    assert "bad login" in str(found)


def test_a_certificate_that_is_not_trusted_is_a_person_s_business_and_a_broken_handshake_is_not() -> None:
    untrusted = ClientFailure("_SSL", "handshake failed: certificate verify failed")
    broken = ClientFailure("_SSL", "handshake failed: disconnected")
    assert untrusted.is_final
    assert not broken.is_final
    found = judge_client(ClientFailure("_TIMED_OUT", ""), _CONNECTION, action="look", seen=[broken, untrusted])
    assert isinstance(found, RejectedError)
    assert found.field == "connections[kafka].ssl_ca_file"
    assert isinstance(judge_client(broken, _CONNECTION, action="look"), RetryableError)


def test_a_topic_that_is_not_there_is_named() -> None:
    found = judge_topic(ClientFailure("UNKNOWN_TOPIC_OR_PART", "unknown"), _CONNECTION, "page_view")
    assert isinstance(found, RejectedError)
    assert "no topic 'page_view' on a:1, b:2" in str(found)


def test_a_partition_without_a_leader_is_explained() -> None:
    assert "no broker leads" in explain_partition(ClientFailure("LEADER_NOT_AVAILABLE", ""), _CONNECTION)


def test_of_the_environment_seconds_are_read_and_of_texts_the_names_alone() -> None:
    variables = {"BOOTSTRAP_SERVERS": "a:1", "PASSWORD": "hunter2", "TIMEOUT_S": "2.5", "USERNAME": ""}
    source = KafkaSourceSpec(type="kafka", connection="shop")
    found = connection_from_environment(source, {f"GOBBLIN_KAFKA_SHOP_{key}": text for key, text in variables.items()})

    assert isinstance(found, KafkaConnectionResource)
    assert found.timeout_s == 2.5
    assert found.password == dg.EnvVar("GOBBLIN_KAFKA_SHOP_PASSWORD")
    assert found.username is None
    with pytest.raises(RejectedError, match=r"SHOP_TIMEOUT_S: expected a number of seconds, found 'soon'"):
        connection_from_environment(source, {"GOBBLIN_KAFKA_SHOP_TIMEOUT_S": "soon"})
