"""The registry client against a real server on this machine: how often it asks, and its errors for each failure."""

import socket
from collections.abc import Iterator

import pytest

from demo.kafka.registry_server import RegistryServer, serve_registry
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.sources.kafka.registry import DOWN_FOR_S, RegistryConnection, SchemaRegistry
from tests.support.kafka_records import client_of


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with serve_registry() as server:
        yield server


def test_versions_and_schemas_are_asked_for_once(registry: RegistryServer) -> None:
    first, second = registry.register("a b/c", '"int"'), registry.register("a b/c", '"long"')
    client = client_of(registry.url + "/")
    assert client.list_versions("a b/c") == (1, 2)
    found = client.get_version("a b/c", 2)
    assert (found.id, found.version, found.schema.type, found.schema.text) == (second, 2, "AVRO", '"long"')
    assert client.get_version("a b/c", 2) is found
    assert client.find_schema(second) is found.schema
    other = client.find_schema(first)
    assert other is not None
    assert client.find_schema(first) is other
    assert registry.requests == [
        "/subjects/a%20b%2Fc/versions",
        "/subjects/a%20b%2Fc/versions/2",
        f"/schemas/ids/{first}",
    ]


def test_references_are_followed_through_other_references_and_in_circles(registry: RegistryServer) -> None:
    registry.register("c", '"int"', references=[("A", "a", 1)])
    registry.register("b", '"long"', references=[("C", "c", 1)])
    registry.register("a", '"string"', references=[("B", "b", 1)])
    client = client_of(registry.url)
    found = client.get_references(client.get_version("a", 1).schema)
    assert {name: each.text for name, each in found.items()} == {"B": '"long"', "C": '"int"', "A": '"string"'}


def test_what_the_registry_does_not_have_is_none_or_named(registry: RegistryServer) -> None:
    registry.register("known", '"int"')
    client = client_of(registry.url)
    assert client.find_schema(99) is None
    with pytest.raises(RejectedError, match=r"has no subject 'none'") as refused:
        client.list_versions("none")
    assert registry.url in refused.value.message
    with pytest.raises(RejectedError, match=r"has no version 2 of subject 'known'"):
        client.get_version("known", 2)


@pytest.mark.parametrize("options", [{"user": "me", "password": "hush:%é"}, {"token": "hush"}])
def test_credentials_are_sent_and_never_shown(registry: RegistryServer, options: dict[str, str]) -> None:
    registry.register("s", '"int"')
    if "token" in options:
        registry.require_bearer("hush")
    else:
        registry.require_basic("me", "hush:%é")
    assert client_of(registry.url, **options).list_versions("s") == (1,)
    with pytest.raises(RejectedError, match="refused subject 's': 401") as refused:
        client_of(registry.url, **dict.fromkeys(options, "hush2")).list_versions("s")
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(RegistryConnection(registry.url, **options))  # type: ignore[arg-type]  # strings all


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"url": "http://me:hush@host:1"}, "url"),
        ({"url": "http://host:1?token=hush"}, "url"),
        ({"url": "http://host:1#hush"}, "url"),
        ({"url": "hush"}, "url"),
        ({"url": "http://host", "user": "me", "token": "hush"}, "token"),
    ],
)
def test_a_connection_that_can_not_be_meant_is_refused_without_its_secret(options: dict[str, str], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        RegistryConnection(**options)  # type: ignore[arg-type]  # strings all
    assert refused.value.field == f"connections[registry].{field}"
    assert "hush" not in str(refused.value)


def test_a_failure_that_passes_is_not_seen(registry: RegistryServer) -> None:
    registry.register("s", '"int"')
    registry.failure, registry.failures_left = 503, 2
    assert client_of(registry.url).list_versions("s") == (1,)
    assert len(registry.requests) == 3


def test_a_registry_that_is_down_is_named_and_then_left_alone_for_a_while(registry: RegistryServer) -> None:
    registry.register("s", '"int"')
    registry.failure = 500
    now = [0.0]
    client = SchemaRegistry(RegistryConnection(registry.url), clock=lambda: now[0])
    with pytest.raises(RetryableError, match="does not answer for subject 's'") as failed:
        client.list_versions("s")
    assert registry.url in failed.value.message
    assert "it answered 500 3 times" in failed.value.message
    with pytest.raises(RetryableError, match="does not answer for subject 't'"):
        client.list_versions("t")
    assert len(registry.requests) == 3
    registry.failure, now[0] = None, DOWN_FOR_S
    assert client.list_versions("s") == (1,)


def test_a_registry_that_hangs_is_given_up_after_a_bounded_number_of_waits(registry: RegistryServer) -> None:
    registry.hanging = True
    with pytest.raises(RetryableError, match="does not answer for subject 's'"):
        client_of(registry.url, answer_wait_s=0.2).list_versions("s")
    assert registry.requests == ["/subjects/s/versions"] * 3


def test_nothing_listens_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(RetryableError, match="Connection refused"):
        client_of(f"http://127.0.0.1:{port}").list_versions("s")


@pytest.mark.parametrize("garbage", [b"<html>", b"[" * 100_000, b'{"no": "versions"}', b'["x"]'])
def test_what_is_no_registry_is_refused(registry: RegistryServer, garbage: bytes) -> None:
    registry.register("s", '"int"')
    registry.garbage = garbage
    with pytest.raises(RejectedError, match="expected a schema registry at") as refused:
        client_of(registry.url).list_versions("s")
    assert refused.value.field == "connections[registry].url"
