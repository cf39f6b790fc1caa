"""What only Google's and Azure's stores have: markers, packed objects, keys and tokens, and failures by obstore."""

import base64
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.fs.clouds import client as cloud_client
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.registry import open_tree
from gobblin_assets.fs.servers import BUSY_TRIES_MAX, TRIES_MAX
from gobblin_assets.fs.tree import EntryKind, sort_key
from tests.support.cloud_servers import ACCOUNT_KEY, AzureServer, CloudServer, GcsServer, run_fake_gcs, sign_sas
from tests.support.faulty_store import FaultyStore, Message, StoreFault, faulty_store
from tests.support.s3_servers import make_certificate

KEY_FIELDS = ("client_email", "private_key_id", "private_key")
BOTH = pytest.mark.parametrize("cloud", ["fake_gcs", "azurite"], indirect=True)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Of the clients that are opened from now on, which don't wait."""
    found: list[float] = []
    defaults = cast("dict[str, object]", cloud_client.CloudClient.__init__.__kwdefaults__)
    monkeypatch.setitem(defaults, "sleep", found.append)
    return found


def open_source(server: CloudServer, root: str, monkeypatch: pytest.MonkeyPatch) -> tuple[RangedFiles, str]:
    monkeypatch.delenv("GOBBLIN_AZURE_ACCOUNT_KEY", raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    tree, path = open_tree(root, "source", hidden=frozenset(), follow_links=False)
    assert isinstance(tree, RangedFiles)
    return tree, path


def list_keys(tree: RangedFiles, root: str) -> list[str]:
    return [sort_key(each) for each in tree.list_tree(root)]


def read_whole(tree: RangedFiles, root: str, key: str) -> bytes:
    found = {each.path: each for each in tree.list_tree(root)}[key]
    with closing(tree.open_ranged(f"{root}/{key}", found.identity)) as opened:
        return opened.read_at(0, found.identity.size_bytes)


# --- what their keys mean

NAMES = st.sampled_from(["a", "a!", "a-b", "a.b", "a0", "b"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize("cloud", ["fake_gcs", "azurite", "paged"], indirect=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=15, deadline=None)
@given(
    contents=st.dictionaries(PATHS, st.sampled_from([b"", b"bytes"]), max_size=8), markers=st.sets(PATHS, max_size=3)
)
def test_any_keys_become_their_tree(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, contents: dict[str, bytes], markers: set[str]
) -> None:
    """Or are refused, if one is a file and a directory."""
    bucket = cloud.make_bucket()
    for key, content in {**contents, **{f"{each}/": b"" for each in markers}, "z": b"z"}.items():
        cloud.put(bucket, f"in/{key}", content)
    tree, root = open_source(cloud, f"{bucket}/in", monkeypatch)
    places = [*contents, *(f"{each}/" for each in markers)]
    directories = {place[: n + 1] for place in places for n, letter in enumerate(place) if letter == "/"}
    if any(f"{each}/" in directories for each in contents):
        with pytest.raises(RejectedError, match="others lie below it"):
            list_keys(tree, root)
        return
    assert list_keys(tree, root) == sorted({*contents, *directories, "z"})
    found = {each.path: each.identity.size_bytes for each in tree.list_tree(root) if each.kind is EntryKind.FILE}
    assert found == {**{key: len(content) for key, content in contents.items()}, "z": 1}


def test_directories_of_hadoops_drivers_are_directories(azurite: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = azurite.make_bucket()
    for key, content in (("d", b""), ("none", b""), ("bytes", b"bytes")):
        azurite.put(bucket, f"in/{key}", content, {"hdi_isfolder": "true"})
    azurite.put(bucket, "in/d/a", b"bytes")
    azurite.put(bucket, "in/d-e", b"")
    tree, root = open_source(azurite, f"{bucket}/in", monkeypatch)
    found = {sort_key(each): each for each in tree.list_tree(root)}
    assert list(found) == ["bytes", "d-e", "d/", "d/a", "none/"]
    assert tree.find_file(f"{root}/d") is None
    for key in ("bytes", "d-e"):
        assert tree.find_file(f"{root}/{key}") == found[key].identity


@BOTH
def test_a_name_that_is_also_a_directory_is_refused(cloud: CloudServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = cloud.make_bucket()
    for key in ("in/a", "in/a-b", "in/a/b"):
        cloud.put(bucket, key, b"bytes")
    tree, root = open_source(cloud, f"{bucket}/in", monkeypatch)
    with pytest.raises(RejectedError, match="others lie below it"):
        list_keys(tree, root)


@pytest.mark.parametrize("key", ["a", "a/", "a-b"])
def test_an_empty_file_beside_a_marker_of_its_name_is_refused(
    fake_gcs: GcsServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    bucket = fake_gcs.make_bucket()
    for each in {"a", "a/", key}:
        fake_gcs.put(bucket, f"in/{each}", b"")
    tree, root = open_source(fake_gcs, f"{bucket}/in", monkeypatch)
    with pytest.raises(RejectedError, match="others lie below it"):
        list_keys(tree, root)


@BOTH
@pytest.mark.parametrize(
    ("key", "shown"),
    [("a//b", '"in/a//'), ("/a", '"in//'), ("d/a\nb", r'"in/d/a\nb"'), ("d/a\x7fb", r'"in/d/a\u{7f}b"')],
)
def test_a_key_that_the_client_cant_read_is_refused(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, key: str, shown: str
) -> None:
    bucket = cloud.make_bucket()
    cloud.put(bucket, f"in/{key}", b"bytes")
    cloud.put(bucket, "in/other", b"bytes")
    tree, root = open_source(cloud, f"{bucket}/in", monkeypatch)
    with pytest.raises(RejectedError, match="can't be read") as refused:
        list_keys(tree, root)
    assert (refused.value.field, bool(refused.value.hint)) == ("source", True)
    assert f"the key {shown}" in refused.value.message


def test_a_key_that_begins_with_a_slash_is_refused(azurite: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = azurite.make_bucket()
    azurite.put(bucket, "/a", b"bytes")
    tree, root = open_source(azurite, bucket, monkeypatch)
    with pytest.raises(RejectedError, match="the key '/' can't be read"):
        list_keys(tree, root)


def test_bytes_at_a_key_with_a_slash_at_its_end_are_never_taken_for_a_files(
    fake_gcs: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = fake_gcs.make_bucket()
    fake_gcs.put(bucket, "in/a/", b"bytes")
    tree, root = open_source(fake_gcs, f"{bucket}/in", monkeypatch)
    with pytest.raises(RetryableError, match="is gone"):
        read_whole(tree, root, "a")
    fake_gcs.put(bucket, "in/a-b", b"bytes")
    with pytest.raises(RejectedError, match="does not list objects in the order"):
        list_keys(tree, root)


def test_packed_objects_are_copied_as_they_are(fake_gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, packed = fake_gcs.make_bucket(), gzip.compress(b"bytes" * 1_000)
    fake_gcs.put(bucket, "in/a.gz", packed, {"contentEncoding": "gzip"})
    tree, root = open_source(fake_gcs, f"{bucket}/in", monkeypatch)
    assert read_whole(tree, root, "a.gz") == packed


@BOTH
def test_a_bucket_that_is_missing_is_refused(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    """fake-gcs-server calls it a failure of its own."""
    bucket = cloud.make_bucket().replace("bucket-", "none-").replace("container-", "none-")
    tree, root = open_source(cloud, f"{bucket}/in", monkeypatch)
    with pytest.raises(GobblinError, match=r"there is no bucket|can't list .*: 500"):
        list_keys(tree, root)


# --- keys, and what errors tell


@pytest.mark.parametrize("name", ["ACCOUNT_KEY", "SAS_TOKEN"])
def test_both_ways_to_log_in_are_used_and_never_told(
    azurite: AzureServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    server = AzureServer(azurite.url, sas=name == "SAS_TOKEN")
    bucket = server.make_bucket()
    server.put(bucket, "in/a", b"bytes")
    tree, root = open_source(server, f"{bucket}/in", monkeypatch)
    assert read_whole(tree, root, "a") == b"bytes"

    wrong = base64.b64encode(b"another key").decode()
    given = wrong if name == "ACCOUNT_KEY" else sign_sas(wrong)
    monkeypatch.setenv(f"GOBBLIN_AZURE_{name}", given)
    refused_tree, _root = open_tree(f"{bucket}/in", "source", hidden=frozenset(), follow_links=False)
    with pytest.raises(RejectedError, match=r"can't list .*: 403 Auth") as refused:
        list(refused_tree.list_tree(root))
    assert refused.value.field == "source"
    assert f"GOBBLIN_AZURE_{name}" in refused.value.hint or "GOBBLIN_AZURE_ACCOUNT_KEY" in refused.value.hint
    assert_nothing_told(refused.value, given, given.rpartition("sig=")[2])


@BOTH
def test_no_error_has_a_secret_or_the_clients_own_text(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> None:
    servers = [cloud, AzureServer(cloud.url, sas=True)] if isinstance(cloud, AzureServer) else [cloud]
    for server in servers:
        bucket = server.make_bucket()
        with faulty_store(server.address) as proxy:
            tree, root = open_source(server.at(int(proxy.endpoint_url.rpartition(":")[2])), f"{bucket}/in", monkeypatch)
            proxy.choose = lambda _request: StoreFault.CUT
        with pytest.raises(RetryableError, match=r"can't list .*: Connect") as failed:
            list_keys(tree, root)
        assert_nothing_told(failed.value, server.secret)


def test_keys_of_the_providers_own_chain_are_found(azurite: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = azurite.make_bucket()
    azurite.put(bucket, "in/a", b"bytes")
    monkeypatch.setenv("GOBBLIN_AZURE_ENDPOINT_URL", azurite.environment["GOBBLIN_AZURE_ENDPOINT_URL"])
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", azurite.secret)
    tree, root = open_tree(f"{bucket}/in", "source", hidden=frozenset(), follow_links=False)
    assert isinstance(tree, RangedFiles)
    assert read_whole(tree, root, "a") == b"bytes"


def assert_nothing_told(error: GobblinError, *secrets: str) -> None:
    told = f"{error} {error.fields} {error!r}"
    assert not [each for each in (*secrets, ACCOUNT_KEY, "Debug source", "http://", "sig=") if each in told]
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize(
    ("environment", "root", "field"),
    [
        ({"GOBBLIN_GCS_SERVICE_ACCOUNT_KEY": "{no JSON: secret"}, "gs://bucket/in", "GOBBLIN_GCS_SERVICE_ACCOUNT_KEY"),
        (
            {"GOBBLIN_GCS_SERVICE_ACCOUNT_KEY": json.dumps(dict.fromkeys(KEY_FIELDS, "secret"))},
            "gs://bucket/in",
            "GOBBLIN_GCS_SERVICE_ACCOUNT_KEY",
        ),
        (
            {"GOBBLIN_AZURE_ACCOUNT_KEY": "no base64, but secret!"},
            "abfs://container@account.dfs.core.windows.net/in",
            "GOBBLIN_AZURE_ACCOUNT_KEY",
        ),
    ],
)
def test_keys_that_are_none_are_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], root: str, field: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RejectedError) as refused:
        open_tree(root, "source", hidden=frozenset(), follow_links=False)
    assert refused.value.field == field
    assert "secret" not in f"{refused.value} {refused.value.fields}"


def test_a_store_is_reached_by_tls_if_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_fake_gcs(make_certificate(tmp_path, is_authority=False)) as server:
        bucket = server.make_bucket()
        server.put(bucket, "in/a", b"bytes")
        tree, root = open_source(server, f"{bucket}/in", monkeypatch)
        assert read_whole(tree, root, "a") == b"bytes"
        monkeypatch.delenv("GOBBLIN_GCS_CA_FILE")
        distrusting, _root = open_tree(f"{bucket}/in", "source", hidden=frozenset(), follow_links=False)
        with pytest.raises(RejectedError, match="its certificate is not trusted") as refused:
            list(distrusting.list_tree(root))
    assert refused.value.field == "GOBBLIN_GCS_ENDPOINT_URL"
    assert "GOBBLIN_GCS_CA_FILE" in refused.value.hint


# --- failures


@pytest.fixture
def proxied(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch, waits: list[float]
) -> Iterator[tuple[FaultyStore, RangedFiles, str]]:
    """A source of some files, behind a proxy. The client hands objects on by three."""
    del waits
    monkeypatch.setattr(cloud_client, "PAGE_MAX", 3)
    bucket = cloud.make_bucket()
    for key in KEYS:
        cloud.put(bucket, f"in/{key}", b"" if key.endswith("/") else b"bytes")
    with faulty_store(cloud.address) as proxy:
        port = int(proxy.endpoint_url.rpartition(":")[2])
        tree, root = open_source(cloud.at(port), f"{bucket}/in", monkeypatch)
        yield proxy, tree, root


KEYS = ["0", "1", "2", "3", "4", "5", "6", "a-b", "a.c/", "a/", "a/b", "a/c"]


@BOTH
@pytest.mark.parametrize("fault", [StoreFault.BUSY, StoreFault.BROKEN, StoreFault.LOST, StoreFault.CUT])
def test_a_request_that_failed_is_sent_again(
    proxied: tuple[FaultyStore, RangedFiles, str], fault: StoreFault, waits: list[float]
) -> None:
    proxy, tree, root = proxied
    proxy.fault_once(fault, "GET")
    assert list_keys(tree, root) == KEYS
    assert len(waits) == 1
    proxy.fault_once(fault, "GET")
    assert read_whole(tree, root, "a/b") == b"bytes"
    assert len(waits) == 2


@pytest.mark.parametrize("cloud", ["paged"], indirect=True)
@pytest.mark.parametrize("number", range(1, 8))
def test_a_listing_goes_on_where_it_failed(
    proxied: tuple[FaultyStore, RangedFiles, str], waits: list[float], number: int
) -> None:
    """Nothing is told twice, and nothing is left out: also of markers, which come without their slash."""
    proxy, tree, root = proxied
    assert list_keys(tree, root) == KEYS
    asked = len(proxy.seen)
    proxy.seen.clear()
    proxy.choose = lambda _request: StoreFault.BUSY if len(proxy.seen) == number else None
    assert list_keys(tree, root) == KEYS
    assert (len(waits), sum(each[2] is not None for each in proxy.seen)) == (1, 1)
    assert len(proxy.seen) <= asked + 4


@BOTH
def test_an_empty_file_that_vanishes_is_left_out_and_no_directory(
    cloud: CloudServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket, left = cloud.make_bucket(), ["in/b"]
    for key in ("in/a", "in/b", "in/c"):
        cloud.put(bucket, key, b"")

    def remove(request: Message) -> None:
        if request.method == "HEAD" and left and request.target.split("?")[0].endswith("b"):
            cloud.remove(bucket, left.pop())

    with faulty_store(cloud.address) as proxy:
        proxy.choose = remove
        tree, root = open_source(cloud.at(int(proxy.endpoint_url.rpartition(":")[2])), f"{bucket}/in", monkeypatch)
        assert list_keys(tree, root) == ["a", "c"]
    assert not left


@BOTH
@pytest.mark.parametrize(
    ("fault", "tries"), [(StoreFault.BUSY, BUSY_TRIES_MAX), (StoreFault.BROKEN, TRIES_MAX), (StoreFault.CUT, TRIES_MAX)]
)
def test_a_store_that_always_fails_is_given_up(
    proxied: tuple[FaultyStore, RangedFiles, str], fault: StoreFault, tries: int, waits: list[float]
) -> None:
    proxy, tree, root = proxied
    identity = tree.find_file(f"{root}/1")
    assert identity is not None
    proxy.fault_always(fault, "GET")
    asks: list[Callable[[], object]] = [
        lambda: list_keys(tree, root),
        lambda: tree.open_ranged(f"{root}/1", identity).read_at(0, 1),
    ]
    for ask in asks:
        waits.clear()
        with pytest.raises(RetryableError, match="can't"):
            ask()
        assert len(waits) == tries - 1
