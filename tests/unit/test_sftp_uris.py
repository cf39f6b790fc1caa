"""Places on SFTP servers as people write them, and what the environment says of servers. Nothing is connected to."""

from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.network_files import RangedFiles
from gobblin_assets.fs.registry import open_file_system, open_ranged, open_tree
from gobblin_assets.fs.sftp.login import read_sftp_settings
from gobblin_assets.fs.sftp.session import spell_reason
from gobblin_assets.fs.sftp.tree import open_sftp
from gobblin_assets.jobs.copy.parsing import read_copy

HOME = Path("/nowhere")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "KNOWN_HOSTS", "KEY_FILE", "KEY_PASSPHRASE", "PASSWORD"):
        monkeypatch.delenv(f"GOBBLIN_SFTP_{name}", raising=False)


@pytest.mark.parametrize(
    ("uri", "address", "path"),
    [
        ("sftp://host/in", "host:22", "/in"),
        ("sftp://Host.Example:2222/a//b/./c/", "host.example:2222", "/a/b/c"),
        ("SFTP://me@host/", "me@host:22", "/"),
        ("sftp://a.user-1@[::1]:22/x y%20#?", "a.user-1@[::1]:22", "/x y%20#?"),
        ("sftp://host/a@b:c", "host:22", "/a@b:c"),
        ("sftp://DOMAIN\\me@host/in", "DOMAIN\\me@host:22", "/in"),
    ],
)
def test_a_place_is_a_server_and_a_path(uri: str, address: str, path: str) -> None:
    files, found = open_sftp(uri, "source")
    assert (files.address, found) == (address, path)


@pytest.mark.parametrize(
    "uri",
    [
        "sftp:///in",
        "sftp://host",
        "sftp://host:0/in",
        "sftp://host:65536/in",
        "sftp://host:x/in",
        "sftp://@host/in",
        "sftp://two hosts/in",
        "sftp://host/a/../b",
        "sftp:host/in",
    ],
)
def test_another_text_is_refused(uri: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_sftp(uri, "source")
    assert refused.value.field == "source"


@pytest.mark.parametrize("secret", ["hunter2", "hunter2:x", "hunter2@x", "hun/ter2", ""])
def test_a_password_in_a_uri_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_copy({"job": "m", "kind": "distcp", "source": f"sftp://me:{secret}@host/in", "destination": "/data/out"})
    assert "hunter2" not in str(refused.value)
    assert "ter2" not in str(refused.value)
    assert "/" in secret or "GOBBLIN_SFTP_PASSWORD" in str(refused.value)


def test_a_file_is_found_again_by_its_uri() -> None:
    tree, root = open_tree("sftp://me@host/in", "source", hidden=frozenset(), follow_links=False)
    assert isinstance(tree, RangedFiles)
    path = f"{root}/a\nb//c ?%41@"
    again, found = open_ranged(tree.to_uri(path), "source")
    assert found == path
    assert again.to_uri(found) == tree.to_uri(path)


def test_nothing_is_published_there() -> None:
    with pytest.raises(RejectedError, match="destination: copies read from sftp, and nothing is published there"):
        open_file_system("sftp://host/out")
    with pytest.raises(RejectedError, match="nothing is published there"):
        read_copy({"job": "m", "kind": "distcp", "source": "/data/in", "destination": "sftp://host/out"})


def test_the_user_of_a_uri_goes_before_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_SFTP_USER", "other")
    named, _path = open_sftp("sftp://me@host/in", "source")
    unnamed, _path = open_sftp("sftp://other@host/in", "source")
    by_environment, _path = open_sftp("sftp://host/in", "source")
    assert named.client is not unnamed.client
    assert by_environment.client is unnamed.client


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    for name in ("hosts", "key"):
        (tmp_path / name).write_text("")
    environment = {
        "GOBBLIN_SFTP_USER": "me",
        "GOBBLIN_SFTP_KNOWN_HOSTS": str(tmp_path / "hosts"),
        "GOBBLIN_SFTP_KEY_FILE": str(tmp_path / "key"),
        "GOBBLIN_SFTP_KEY_PASSPHRASE": "a phrase",
        "GOBBLIN_SFTP_PASSWORD": "a word",
        "SSH_AUTH_SOCK": "/agent",
    }
    found = read_sftp_settings(environment, HOME)
    assert (found.user, found.known_hosts, found.key_file) == ("me", str(tmp_path / "hosts"), str(tmp_path / "key"))
    assert (found.key_passphrase, found.password, found.agent) == ("a phrase", "a word", "/agent")
    assert "a phrase" not in repr(found)
    assert "a word" not in repr(found)
    bare = read_sftp_settings(dict.fromkeys(environment, ""), HOME)
    assert bare == read_sftp_settings({}, HOME)
    assert bare.known_hosts == "/nowhere/.ssh/known_hosts"


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ({"GOBBLIN_SFTP_KNOWN_HOSTS": "/nowhere/hosts"}, "GOBBLIN_SFTP_KNOWN_HOSTS"),
        ({"GOBBLIN_SFTP_KEY_FILE": "/nowhere/key"}, "GOBBLIN_SFTP_KEY_FILE"),
        ({"GOBBLIN_SFTP_KEY_FILE": "secret"}, "GOBBLIN_SFTP_KEY_FILE"),
        ({"GOBBLIN_SFTP_KEY_PASSPHRASE": "secret"}, "GOBBLIN_SFTP_KEY_FILE"),
    ],
)
def test_wrong_settings_are_refused_by_their_variable(environment: dict[str, str], field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        read_sftp_settings(environment, HOME)
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


def test_a_servers_words_are_shown_on_one_line() -> None:
    assert spell_reason("no\nsuch \x1b[31m  file\0") == "no such [31m file"
    assert len(spell_reason("x" * 100_000)) == 200
