"""How a store is reached: settings, places, hosts, and signatures compared with those of AWS's own library."""

import datetime as dt
import pickle
import traceback
from typing import Any
from unittest.mock import patch

import pytest
from botocore import auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.objects import LOST
from gobblin_assets.fs.registry import open_object_store, open_ranged
from gobblin_assets.fs.s3.answers import read_failure, read_objects
from gobblin_assets.fs.s3.credentials import Credentials, Signer, open_store_account
from gobblin_assets.fs.s3.requests import Repeat, S3Request, encode_query, find_target, split_key, split_uri
from gobblin_assets.fs.s3.s3_settings import S3Settings, read_s3_settings

SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # the one of AWS's documentation
KEYS = {"GOBBLIN_S3_ACCESS_KEY_ID": "AKIDEXAMPLE", "GOBBLIN_S3_SECRET_ACCESS_KEY": SECRET}
NOW = dt.datetime(2026, 3, 4, 5, 6, 7, tzinfo=dt.UTC)


def ask(key: str = "a/b", **more: Any) -> S3Request:
    return S3Request("read", more.pop("method", "GET"), "bucket", key, Repeat.ANY, **more)


def test_settings_come_from_the_environment_and_show_no_secret() -> None:
    found = read_s3_settings({**KEYS, "GOBBLIN_S3_ENDPOINT_URL": "http://127.0.0.1:9000", "GOBBLIN_S3_REGION": ""})
    assert found == S3Settings("http://127.0.0.1:9000", None, "AKIDEXAMPLE", SECRET)
    assert SECRET not in repr(found)
    assert SECRET not in repr(open_store_account(found).credentials())


@pytest.mark.parametrize("name", ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"])
def test_keys_are_read_without_the_ends_of_lines_around_them(name: str) -> None:
    found = read_s3_settings({**KEYS, f"GOBBLIN_S3_{name}": f" {SECRET}\r\n"})
    assert getattr(found, name.lower()) == SECRET
    with pytest.raises(RejectedError):
        read_s3_settings({"GOBBLIN_S3_ACCESS_KEY_ID": "AKIDEXAMPLE", "GOBBLIN_S3_SECRET_ACCESS_KEY": "\n"})


@pytest.mark.parametrize("name", ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"])
@pytest.mark.parametrize("odd", ["\n", "\0", "\x7f", "ü", "\u20ac"], ids=ascii)
def test_a_key_that_no_request_can_carry_is_refused_by_its_name(name: str, odd: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_s3_settings({**KEYS, f"GOBBLIN_S3_{name}": f"{SECRET}{odd}{SECRET}"})
    assert refused.value.field == f"GOBBLIN_S3_{name}"
    assert SECRET[:10] not in "".join(traceback.format_exception(refused.value))


def test_keys_of_aws_s_chain_that_no_request_can_carry_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDAWS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{SECRET}\n")
    assert open_store_account(S3Settings()).credentials().session_token == SECRET
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{SECRET}\n{SECRET}")
    with pytest.raises(RejectedError, match="AWS") as refused:
        open_store_account(S3Settings()).credentials()
    assert SECRET[:10] not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("variables", "field"),
    [
        ({"GOBBLIN_S3_ACCESS_KEY_ID": "AKIDEXAMPLE"}, "SECRET_ACCESS_KEY"),
        ({"GOBBLIN_S3_SECRET_ACCESS_KEY": SECRET}, "ACCESS_KEY_ID"),
        ({"GOBBLIN_S3_REGION": "eu central"}, "REGION"),
        ({"GOBBLIN_S3_CA_FILE": "/nowhere.pem"}, "CA_FILE"),
        ({"GOBBLIN_S3_ENDPOINT_URL": "store.example.com"}, "ENDPOINT_URL"),
        ({"GOBBLIN_S3_ENDPOINT_URL": "ftp://store.example.com"}, "ENDPOINT_URL"),
        ({"GOBBLIN_S3_ENDPOINT_URL": f"https://AKID:{SECRET.replace('/', '')}@store.example.com"}, "ENDPOINT_URL"),
        ({"GOBBLIN_S3_ENDPOINT_URL": "https://store.example.com/path"}, "ENDPOINT_URL"),
        ({"GOBBLIN_S3_ENDPOINT_URL": "https://store.example.com:port"}, "ENDPOINT_URL"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(variables: dict[str, str], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_s3_settings(variables)
    assert refused.value.field == f"GOBBLIN_S3_{field}"
    assert SECRET[:10] not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("s3://bucket", "/bucket"),
        ("s3://bucket/", "/bucket"),
        ("s3://bucket/a/b/", "/bucket/a/b"),
        ("S3://bucket/a%20b", "/bucket/a%20b"),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(uri: str, path: str) -> None:
    assert split_uri(uri, "source") == path
    assert split_key(path)[0] == "bucket"


@pytest.mark.parametrize(
    "uri", ["s3:", "s3:/bucket", "s3:///a", "s3://key:secret@bucket/a", "s3://bucket/a//b", "s3://bucket/../b"]
)
def test_another_text_is_refused_without_repeating_it(uri: str) -> None:
    with pytest.raises(RejectedError) as refused:
        split_uri(uri, "source")
    assert refused.value.field == "source"
    assert "secret" not in str(refused.value)


def test_control_characters_are_refused_in_a_job_and_kept_in_keys() -> None:
    with pytest.raises(RejectedError, match="control characters"):
        open_object_store("s3://bucket/a\nb", "source")
    _files, path = open_ranged("s3://bucket/a\nb//c ?", "source")
    assert path == "/bucket/a\nb//c ?"


@pytest.mark.parametrize(
    ("bucket", "endpoint_url", "region", "expected"),
    [
        ("bucket", None, "eu-west-1", "https bucket.s3.eu-west-1.amazonaws.com /a%20b"),
        ("dotted.bucket", None, "us-east-1", "https s3.us-east-1.amazonaws.com /dotted.bucket/a%20b"),
        ("bucket", None, "cn-north-1", "https bucket.s3.cn-north-1.amazonaws.com.cn /a%20b"),
        ("bucket", "http://store:9000", "any", "http store:9000 /bucket/a%20b"),
        ("bucket", "https://store:443/", "any", "https store /bucket/a%20b"),
        ("bucket", "http://[::1]:9000", "any", "http [::1]:9000 /bucket/a%20b"),
    ],
)
def test_the_host_of_a_bucket(bucket: str, endpoint_url: str | None, region: str, expected: str) -> None:
    found = find_target(S3Request("read", "GET", bucket, "a b", Repeat.ANY), endpoint_url, region)
    assert f"{found.scheme} {found.host_header} {found.path}" == expected


@pytest.mark.parametrize("endpoint_url", [None, "http://127.0.0.1:9000"])
@pytest.mark.parametrize("token", [None, "lent/for+a=time"])
@pytest.mark.parametrize(
    "request_",
    [
        ask(),
        ask("ä b+c/~d&e=f'g(h)*/i", headers={"range": "bytes=0-9", "if-match": '"etag"'}),
        ask("", query={"list-type": "2", "prefix": "a b/ä+", "start-after": "a=b&c"}),
        ask(method="PUT", body=b"bytes", headers={"x-amz-meta-id": "  spaced   out ", "x-amz-checksum-crc32c": "q=="}),
        ask(method="POST", query={"uploads": ""}),
        ask(method="POST", query={"uploadId": "1"}, body=b"<parts/>"),
    ],
    ids=["get", "odd", "list", "put", "begin", "complete"],
)
def test_a_signature_is_the_one_of_botocore(request_: S3Request, token: str | None, endpoint_url: str | None) -> None:
    keys = Credentials("AKIDEXAMPLE", SECRET, token)
    target = find_target(request_, endpoint_url, "eu-west-1")
    ours = Signer("eu-west-1").sign(request_, target, keys, NOW)
    query = encode_query(request_.query)
    theirs = AWSRequest(
        request_.method,
        f"{target.scheme}://{target.host_header}{target.path}{'?' if query else ''}{query}",
        headers=dict(request_.headers),
        data=request_.body,
    )
    theirs.context["has_streaming_input"] = True
    theirs.context["checksum"] = {"request_algorithm": {"in": "header", "name": "x-amz-checksum-crc32c"}}
    with patch.object(auth, "get_current_datetime", lambda: NOW.replace(tzinfo=None)):
        auth.S3SigV4Auth(BotoCredentials("AKIDEXAMPLE", SECRET, token), "s3", "eu-west-1").add_auth(theirs)
    assert ours["authorization"] == theirs.headers["Authorization"]


def test_a_signature_of_the_next_day_has_another_key() -> None:
    signer, keys = Signer("eu-west-1"), Credentials("AKIDEXAMPLE", SECRET)
    target = find_target(ask(), None, "eu-west-1")
    found = [signer.sign(ask(), target, keys, NOW + dt.timedelta(days=day))["authorization"][-64:] for day in (0, 1, 0)]
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize(
    ("encoding", "key", "expected"),
    [
        ("<EncodingType>url</EncodingType>", "a%EF%BF%BD+b", "a\ufffd b"),
        ("<EncodingType>url</EncodingType>", "a%FFb", "a\udcffb"),
        ("", "a+\ufffd%41", f"a+{LOST}%41"),
    ],
    ids=["told", "no text", "not told"],
)
def test_a_character_that_a_listing_can_t_tell_is_no_character(encoding: str, key: str, expected: str) -> None:
    """The sign for it may also be a part of a key."""
    fields = "<Size>1</Size><ETag>0</ETag><LastModified>2026-01-02T03:04:05Z</LastModified>"
    body = f"<ListBucketResult>{encoding}<Contents><Key>{key}</Key>{fields}</Contents></ListBucketResult>"
    assert [each.path for each in read_objects("bucket", body.encode()).entries] == [f"/bucket/{expected}"]


def test_an_account_of_aws_is_asked_where_no_keys_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDAWS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    account = open_store_account(S3Settings())
    assert (account.region, account.credentials()) == ("eu-north-1", Credentials("AKIDAWS", SECRET))


def test_no_keys_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(RejectedError, match="expected keys for S3, found none") as refused:
        open_store_account(S3Settings())
    assert refused.value.field == "GOBBLIN_S3_ACCESS_KEY_ID"


def test_an_error_has_the_code_and_the_message_alone() -> None:
    body = b"""<?xml version="1.0"?><Error><Code>SignatureDoesNotMatch</Code><Message>Check
      your key</Message><StringToSign>AWS4 what was signed</StringToSign></Error>"""
    assert str(read_failure("GET", 403, body)) == "403 SignatureDoesNotMatch: Check your key"
    assert str(read_failure("POST", 200, body)) == "200 SignatureDoesNotMatch: Check your key"
    assert str(read_failure("PUT", 502, b"<html>a proxy's own</html>")) == "502"
    assert str(read_failure("POST", 200, b"  \n " + body)) == "200 SignatureDoesNotMatch: Check your key"
    assert str(read_failure("POST", 200, body[:-1])) == "200", "cut off: nobody knows what it said"
    assert read_failure("PUT", 200, b"<Other/>") is None
    assert read_failure("GET", 200, body) is None, "a file may have such bytes"


def test_a_store_is_not_pickled_with_its_secrets() -> None:
    files, _path = open_object_store("s3://bucket/a", "source")
    with pytest.raises(TypeError):
        pickle.dumps(files)
