"""Places in Google's and Azure's stores as people write them, and what the environment says; without a connection."""

import pickle
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.fs.clouds.client import CloudFailure, explain_cloud_failure, read_cloud_failure
from gobblin_assets.fs.clouds.cloud_settings import AZURE, GOOGLE, read_azure_settings, read_gcs_settings
from gobblin_assets.fs.clouds.opening import open_azure
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.registry import open_file_system, open_ranged, open_tree
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.spec.job_parsing import parse_job

CONTAINER = "container@account.dfs.core.windows.net"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT_URL", "SERVICE_ACCOUNT_FILE", "SERVICE_ACCOUNT_KEY", "CA_FILE"):
        monkeypatch.delenv(f"GOBBLIN_GCS_{name}", raising=False)
    monkeypatch.setenv("GOBBLIN_GCS_TOKEN", "a token")
    for name in ("ENDPOINT_URL", "SAS_TOKEN", "CA_FILE"):
        monkeypatch.delenv(f"GOBBLIN_AZURE_{name}", raising=False)
    monkeypatch.setenv("GOBBLIN_AZURE_ACCOUNT_KEY", "QUFB")


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("gs://bucket", "/bucket"),
        ("gs://bucket/", "/bucket"),
        ("GS://my_bucket.example.com/a b/%41/", "/my_bucket.example.com/a b/%41"),
        (f"abfs://{CONTAINER}", f"/{CONTAINER}"),
        (f"abfss://{CONTAINER}/a/b", f"/{CONTAINER}/a/b"),
        ("abfs://$web@a12.dfs.core.chinacloudapi.cn/a", "/$web@a12.dfs.core.chinacloudapi.cn/a"),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(uri: str, root: str) -> None:
    tree, found = open_tree(uri, "source", hidden=frozenset(), follow_links=False)
    assert isinstance(tree, RangedFiles)
    assert found == root
    path = f"{root}/a//b c ?%41@"
    again, place = open_ranged(tree.to_uri(path), "source")
    assert (place, again.to_uri(place)) == (path, tree.to_uri(path))


@pytest.mark.parametrize(
    "uri",
    [
        "gs:bucket/in",
        "gs:///in",
        "gs://Bucket/in",
        "gs://key:secret@bucket/in",
        "gs://bucket/a//b",
        "gs://bucket/a/../b",
        "abfs://container/in",
        "abfs://account.dfs.core.windows.net/in",
        "abfs://container:secret@account.dfs.core.windows.net/in",
        "abfs://container@account.blob.core.windows.net/in",
        "abfs://container@account.dfs.core.windows.net.example.com/in",
        "abfs://container@account.dfs.example.com/in",
        f"abfss://{CONTAINER}/a/./b",
        f"abfss://{CONTAINER}/in?sig=secret",
        "gs://bucket/in?X-Goog-Signature=secret",
        "s3://bucket/in?X-Amz-Signature=secret",
    ],
)
def test_another_text_is_refused_and_not_shown(uri: str) -> None:
    """Keys must not go to a host of somebody's choice."""
    with pytest.raises(RejectedError) as refused:
        read_copy({"job": "m", "kind": "distcp", "source": uri, "destination": "/data/out"})
    assert refused.value.field == "source"
    assert refused.value.hint
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("uri", ["gs://bucket/lake", f"abfs://{CONTAINER}/lake", f"abfss://{CONTAINER}/lake"])
def test_nothing_is_published_there(uri: str) -> None:
    said = f"destination: copies read from {uri.partition(':')[0]}, and nothing is published there"
    rows = {
        "job": "shop",
        "source": {"connection": "sales"},
        "destination": uri,
        "datasets": [{"urn": "public.orders"}],
    }
    with pytest.raises(RejectedError, match=said):
        read_copy({"job": "m", "kind": "distcp", "source": "/data/in", "destination": uri})
    with pytest.raises(RejectedError, match=said):
        parse_job(rows)
    with pytest.raises(RejectedError, match=said) as refused:
        open_file_system(uri)
    assert "Publish to a disk" in refused.value.hint


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"defaults": {"converters": ["gunzip"]}}, "source"),
        ({"defaults": {"skip_unchanged_directories": True}}, "skip_unchanged_directories"),
        ({"transfer": "spark"}, "transfer"),
    ],
)
@pytest.mark.parametrize("source", ["gs://bucket/in", f"abfs://{CONTAINER}/in"])
def test_options_for_mounted_file_systems_are_refused(source: str, options: dict[str, object], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_copy({"job": "m", "kind": "distcp", "source": source, "destination": "/data/out", **options})
    assert refused.value.field == field
    assert refused.value.hint


# --- settings


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    google = {"ENDPOINT_URL": "https://store:1", "TOKEN": " secret ", "CA_FILE": str(tmp_path / "ca.pem")}
    found = read_gcs_settings({f"GOBBLIN_GCS_{name}": value for name, value in google.items()})
    assert (found.endpoint_url, found.token, found.ca_file) == tuple(google[name].strip() for name in google)
    azure = {"ENDPOINT_URL": "http://127.0.0.1:1/{account}", "SAS_TOKEN": "?sig=secret"}
    other = read_azure_settings({f"GOBBLIN_AZURE_{name}": value for name, value in azure.items()})
    assert (other.endpoint_url, other.sas_token) == tuple(azure.values())
    assert "secret" not in f"{found} {other}"
    assert read_gcs_settings({"GOBBLIN_GCS_TOKEN": ""}) == read_gcs_settings({})


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"GOBBLIN_GCS_SERVICE_ACCOUNT_FILE": "/missing"}, "GOBBLIN_GCS_SERVICE_ACCOUNT_FILE"),
        ({"GOBBLIN_GCS_SERVICE_ACCOUNT_FILE": "{secret}"}, "GOBBLIN_GCS_SERVICE_ACCOUNT_FILE"),
        ({"GOBBLIN_GCS_CA_FILE": "/missing"}, "GOBBLIN_GCS_CA_FILE"),
        ({"GOBBLIN_GCS_TOKEN": "secret", "GOBBLIN_GCS_SERVICE_ACCOUNT_KEY": "{secret}"}, "GOBBLIN_GCS_TOKEN"),
        ({"GOBBLIN_AZURE_SAS_TOKEN": "secret", "GOBBLIN_AZURE_ACCOUNT_KEY": "secret"}, "GOBBLIN_AZURE_SAS_TOKEN"),
        *(
            ({f"GOBBLIN_{name}_ENDPOINT_URL": url}, f"GOBBLIN_{name}_ENDPOINT_URL")
            for name in ("GCS", "AZURE")
            for url in (
                "secret",
                "ftp://secret",
                "http://",
                "http://u:secret@host",
                "http://h:0",
                "https://h?sig=secret",
            )
        ),
    ],
)
def test_wrong_settings_are_refused_by_their_variable(environment: dict[str, str], field: str) -> None:
    read = read_gcs_settings if "_GCS_" in field else read_azure_settings
    with pytest.raises(RejectedError) as refused:
        read(environment)
    assert refused.value.field == field
    assert refused.value.hint
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("uri", ["gs://bucket/in", f"abfs://{CONTAINER}/in"])
def test_a_store_is_not_pickled_with_its_secrets(uri: str) -> None:
    tree, _root = open_tree(uri, "source", hidden=frozenset(), follow_links=False)
    with pytest.raises(TypeError, match="not passed on"):
        pickle.dumps(tree)


def test_a_bucket_is_opened_again_for_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"abfs://{CONTAINER}/in"
    before, again = open_azure(uri, "source"), open_azure(uri, "source")
    assert before[0].objects is again[0].objects
    monkeypatch.setenv("GOBBLIN_AZURE_ACCOUNT_KEY", "QkJC")
    assert open_azure(uri, "source")[0].objects is not before[0].objects


# --- failures


@pytest.mark.parametrize(
    ("failure", "family", "field"),
    [
        (CloudFailure(500, "InternalError"), RetryableError, None),
        (CloudFailure(429, "SlowDown"), RetryableError, None),
        (CloudFailure(None, "Timeout"), RetryableError, None),
        (CloudFailure(503, "", is_about_keys=True), RetryableError, None),
        (CloudFailure(400, "", is_about_keys=True), RejectedError, "GOBBLIN_AZURE_ACCOUNT_KEY"),
        (
            CloudFailure(None, "Connect", is_about_keys=True, of_machine=True),
            RejectedError,
            "GOBBLIN_AZURE_ACCOUNT_KEY",
        ),
        (CloudFailure(403, "", is_about_keys=True, of_machine=True), RejectedError, "GOBBLIN_AZURE_ACCOUNT_KEY"),
        (CloudFailure(500, "", is_about_keys=True, of_machine=True), RetryableError, None),
        (CloudFailure(403, "AccessDenied"), RejectedError, "source"),
        (CloudFailure(400, "InvalidArgument"), RejectedError, "source"),
        (CloudFailure(None, "Connect", is_untrusted=True), RejectedError, "GOBBLIN_AZURE_ENDPOINT_URL"),
    ],
)
def test_a_failure_has_its_family(failure: CloudFailure, family: type[Exception], field: str | None) -> None:
    error = explain_cloud_failure(failure, AZURE, action="read", uri="abfs://c/x", option="source")
    assert type(error) is family
    assert error.fields.get("field") == field


TOKEN_REFUSED = """Generic GCS error: Error performing token request: Error performing GET
http://169.254.169.254/token?audience=x in 2ms - Server returned non-2xx status code: 403 Forbidden: secret

Debug source:
Generic {
    store: "GCS",
    source: TokenRequest {
        source: RetryError(
            RetryErrorImpl {
                method: GET,
                uri: Some(
                    http://169.254.169.254/token?audience=x,
                ),
                inner: Status {
                    status: 403,
                    body: Some(
                        "secret <Code>AccessDenied</Code>",
                    ),
                },
            },
        ),
    },
}"""


def test_a_failure_is_read_from_the_clients_text() -> None:
    """As obstore 0.12 writes it where a machine has no identity."""
    found = read_cloud_failure(ValueError(TOKEN_REFUSED))
    assert found == CloudFailure(403, "AccessDenied", is_about_keys=True, of_machine=True)
    error = explain_cloud_failure(found, GOOGLE, action="list", uri="gs://b/in", option="source")
    assert "expected keys for Google, found none" in str(error)
    named = read_cloud_failure(
        ValueError('x\n\nDebug source:\nNotFound {\n    path: "inner: Status { status: 403,",\n}')
    )
    assert named == CloudFailure(None, "")
