"""Connections to real SFTP servers: shared, cut, refused; host keys, passwords, keys and agents."""

import os
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.model.files import FileIdentity
from tests.support import sftp_servers
from tests.support.cutting_proxy import cutting_proxy
from tests.support.ranged_files import LARGE_BYTES, RANGE_BYTES, make_large, read_all
from tests.support.sftp_servers import BOTH_SERVERS, PASSPHRASE, PASSWORD, SshServer, run_python_sftp
from tests.support.spark import wait_until


def test_a_cut_connection_is_opened_again_and_reads_on(sftp_server: SshServer) -> None:
    path, identity, content = make_large(sftp_server.make_root())
    with cutting_proxy(sftp_server.port) as proxy:
        tree = sftp_server.tree(sftp_server.client(port=proxy.port))
        with closing(tree.open_ranged(path, identity)) as opened:
            first = opened.read_at(0, RANGE_BYTES)
            proxy.cut_after, proxy.cuts = RANGE_BYTES + (1 << 20), 2
            rest = b"".join(opened.read_at(place, 1 << 20) for place in range(RANGE_BYTES, LARGE_BYTES, 1 << 20))
        assert first + rest == content
        assert proxy.connections == 3
        assert list(tree.list_tree(str(Path(path).parent)))


def test_a_listing_goes_on_after_cuts(sftp_server: SshServer) -> None:
    root = sftp_server.make_root()
    names = [f"{number:03d}" for number in range(200)]
    for name in names:
        (root / name).mkdir()
    with cutting_proxy(sftp_server.port, cut_after=20_000) as proxy:
        proxy.cuts = 2
        tree = sftp_server.tree(sftp_server.client(port=proxy.port))
        assert [entry.path for entry in tree.list_tree(str(root))] == names
        assert proxy.connections == 3


def test_a_connection_that_is_cut_each_time_is_given_up(sftp_server: SshServer) -> None:
    path, identity, _content = make_large(sftp_server.make_root())
    with cutting_proxy(sftp_server.port, cut_after=100_000) as proxy:
        tree = sftp_server.tree(sftp_server.client(port=proxy.port))
        with pytest.raises(RetryableError, match="was lost 3 times"):
            read_all(tree, path, identity)
        assert proxy.connections == 3


def test_a_server_that_says_nothing_is_waited_for_a_while() -> None:
    with run_python_sftp(reads="never") as server:
        path, identity, _content = make_large(server.make_root())
        client = server.client(answer_wait_s=0.2)
        with pytest.raises(RetryableError, match="no answer"):
            read_all(server.tree(client), path, identity)


def test_a_server_that_is_away_is_asked_three_times(sftp_server: SshServer) -> None:
    with cutting_proxy(sftp_server.port) as proxy:
        client = sftp_server.client(port=proxy.port)
    with pytest.raises(RetryableError, match=r"the connection to .* was lost 3 times: ConnectionRefusedError"):
        sftp_server.tree(client).find_file("/")


def test_a_connection_that_nobody_uses_is_closed(sftp_server: SshServer) -> None:
    path, identity, content = make_large(sftp_server.make_root())
    with cutting_proxy(sftp_server.port) as proxy:
        tree = sftp_server.tree(sftp_server.client(port=proxy.port, idle_s=0.01))
        with closing(tree.open_ranged(path, identity)) as opened:
            for count in (1, 2):
                assert opened.read_at(0, 5) == content[:5]
                wait_until(lambda ended=count: proxy.ended == ended, "the end of the connection")
                assert proxy.connections == count


def test_threads_share_a_connection(sftp_server: SshServer) -> None:
    root = sftp_server.make_root()
    files = [make_large(root, str(number)) for number in range(3)]
    found: dict[str, bytes] = {}
    with cutting_proxy(sftp_server.port) as proxy:
        tree = sftp_server.tree(sftp_server.client(port=proxy.port))

        def read(path: str, identity: FileIdentity) -> None:
            found[path] = read_all(tree, path, identity)

        threads = [threading.Thread(target=read, args=each[:2]) for each in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {path: content for path, _identity, content in files}
        assert proxy.connections == 1


def test_a_forked_process_has_a_connection_of_its_own(sftp_server: SshServer) -> None:
    path, identity, content = make_large(sftp_server.make_root())
    tree = sftp_server.tree()
    assert read_all(tree, path, identity) == content
    child = os.fork()
    if not child:
        os._exit(0 if read_all(tree, path, identity) == content else 1)
    ended: list[int] = []
    waiting = threading.Thread(target=lambda: ended.append(os.waitpid(child, 0)[1]), daemon=True)
    waiting.start()
    wait_until(lambda: bool(ended), "the forked process")
    assert ended == [0]
    assert read_all(tree, path, identity) == content


# --- logins


def refused(server: SshServer, **settings: str | None) -> GobblinError:
    with pytest.raises(RejectedError) as error:
        server.tree(server.client(replace(server.settings, **settings))).find_file("/")
    return error.value


@BOTH_SERVERS
def test_an_unknown_host_key_is_refused_with_the_fix(sftp_server: SshServer, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    for content in (None, "", "elsewhere ssh-ed25519 AAAA\n"):
        if content is not None:
            hosts.write_text(content)
        error = refused(sftp_server, known_hosts=str(hosts))
        assert "SHA256:" in str(error)
        assert f"ssh-keyscan -p {sftp_server.port} 127.0.0.1 >> {hosts}" in str(error)
        assert error.fields["field"] == "GOBBLIN_SFTP_KNOWN_HOSTS"
        assert (hosts.read_text() if content is not None else None) == content


@pytest.mark.parametrize("kind", ["another key", "another kind", "revoked"])
def test_another_host_key_is_refused(sftp_server: SshServer, tmp_path: Path, kind: str) -> None:
    hosts = tmp_path / "hosts"
    match kind:
        case "another key":
            hosts.write_text(f"127.0.0.1 {(sftp_server.folder / 'authorized_keys').read_text()}")
        case "another kind":
            hosts.write_text(f"127.0.0.1 {sftp_servers.make_public_key('ecdsa-sha2-nistp256')}")
        case _:
            hosts.write_text(f"@revoked {(sftp_server.folder / 'known_hosts').read_text()}")
    error = refused(sftp_server, known_hosts=str(hosts))
    assert error.fields["field"] == "GOBBLIN_SFTP_KNOWN_HOSTS"
    expected = "can be trusted" if kind == "revoked" else "has another one"
    assert expected in str(error)


def test_a_password_lets_in_and_a_wrong_one_does_not(python_sftp: SshServer) -> None:
    root = python_sftp.make_root()
    (root / "a").touch()
    settings = replace(python_sftp.settings, key_file=None, password=PASSWORD)
    assert list(python_sftp.tree(python_sftp.client(settings)).list_tree(str(root)))
    assert PASSWORD not in repr(settings)
    error = refused(python_sftp, key_file=None, password="a wrong secret")
    assert "does not let the user" in str(error)
    assert "secret" not in str(error)
    assert "tried: nothing" in str(refused(python_sftp, key_file=None))


def test_a_locked_key_needs_its_passphrase(sftp_server: SshServer) -> None:
    locked = str(sftp_server.folder / "locked_key")
    settings = replace(sftp_server.settings, key_file=locked, key_passphrase=PASSPHRASE)
    assert sftp_server.tree(sftp_server.client(settings)).find_file("/") is None
    assert "is missing" in str(refused(sftp_server, key_file=locked))
    wrong = refused(sftp_server, key_file=locked, key_passphrase="a wrong secret")
    assert "is wrong" in str(wrong)
    assert "secret" not in str(wrong)
    no_key = refused(sftp_server, key_file=str(sftp_server.folder / "known_hosts"))
    assert "no private key" in str(no_key)


def test_an_agent_signs(sftp_server: SshServer, tmp_path: Path) -> None:
    with sftp_servers.run_agent(sftp_server.folder / "key") as socket:
        settings = replace(sftp_server.settings, key_file=None, agent=socket)
        assert sftp_server.tree(sftp_server.client(settings)).find_file("/") is None
    # It is gone now, and its variable is left.
    assert "tried: the agent" in str(refused(sftp_server, key_file=None, agent=socket))


def test_an_agent_with_more_keys_than_the_server_tries_is_refused(openssh: SshServer, tmp_path: Path) -> None:
    keys = [sftp_servers.make_private_key(tmp_path / str(number)) for number in range(8)]
    with sftp_servers.run_agent(*keys, openssh.folder / "key") as socket:
        assert "tried: the agent" in str(refused(openssh, key_file=None, agent=socket))
