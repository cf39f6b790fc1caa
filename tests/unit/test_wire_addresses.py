"""Addresses of executors in the topology, their certificates, and options of wires: what is refused, and the fix."""

import string
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.job_ticket import require_executor_name
from gobblin_assets.service.spec_executors.wire_kinds import WIRE_KINDS, WayTo
from gobblin_assets.service.topology import ExecutorSpec
from gobblin_assets.tickets.rest.inbox_server import InboxAddress, parse_rest_address, serve_inbox
from gobblin_assets.tickets.wire_topics import name_report_topic, name_ticket_topic
from tests.support.command_lake import invoke
from tests.support.wires import Authority

CERTIFICATE = "GOBBLIN_EXECUTOR_PARIS_1_CERTIFICATE"


def open_way(communication: str, location: str, environment: dict[str, str] | None = None) -> None:
    executor = ExecutorSpec("paris-1", "process", location, communication, frozenset({"distcp"}), frozenset({"lake"}))
    own = create_engine("postgresql+psycopg://nowhere/none")
    WIRE_KINDS.get(communication)(WayTo(executor, own, environment or {}))


@pytest.mark.parametrize(
    ("communication", "location", "field"),
    [
        ("kafka", "", "executors.paris-1.location"),
        ("kafka", "main", "GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS"),
        ("rest", "", "executors.paris-1.location"),
        ("rest", "http://paris:8443", "executors.paris-1.location"),
        ("rest", "https://paris", "executors.paris-1.location"),
        ("rest", "https://ann:secret@paris:8443", "executors.paris-1.location"),
        ("rest", "https://paris:8443/inbox", "executors.paris-1.location"),
        ("rest", "https://paris:99999", "executors.paris-1.location"),
        ("rest", "https://paris:8443", CERTIFICATE),
    ],
)
def test_a_way_without_a_right_address_is_refused(communication: str, location: str, field: str) -> None:
    with pytest.raises(RejectedError) as refused:
        open_way(communication, location)
    assert refused.value.field == field
    assert refused.value.hint
    assert "secret" not in str(refused.value)


def test_files_that_are_no_certificates_are_refused(tmp_path: Path) -> None:
    authority, junk = Authority(tmp_path), tmp_path / "junk.pem"
    junk.write_text("junk", encoding="utf-8")
    certificate, key = authority.sign("service")
    begin = CERTIFICATE.removesuffix("CERTIFICATE")
    files = {f"{begin}CERTIFICATE": certificate, f"{begin}KEY": key, f"{begin}CA": authority.ca}
    for name in files:
        with pytest.raises(RejectedError, match=r"PEM|can't be used") as refused:
            open_way("rest", "https://paris:8443", {each: str(path) for each, path in {**files, name: junk}.items()})
        assert refused.value.hint
    with (
        pytest.raises(RejectedError, match="can't be used"),
        serve_inbox(None, InboxAddress("127.0.0.1", 0, certificate, junk, authority.ca)),  # type: ignore[arg-type]  # it is not served
    ):
        pass


@pytest.mark.parametrize("text", ["", "8443", "paris:", "paris:x", "https://paris:1", "paris:70000"])
def test_an_address_to_listen_on_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(RejectedError, match="HOST:PORT"):
        parse_rest_address(text)


def test_addresses_of_both_families_are_read() -> None:
    assert parse_rest_address("0.0.0.0:8443") == ("0.0.0.0", 8443)
    assert parse_rest_address("[::1]:8443") == ("::1", 8443)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--kafka: expected --kafka or --rest"),
        (("--rest", "127.0.0.1:0"), "--rest-certificate: expected a PEM file"),
        (("--rest", "127.0.0.1:0", "--rest-certificate", "a.pem"), "--rest-key: expected a PEM file"),
    ],
)
def test_a_command_without_what_a_wire_needs_is_refused(options: tuple[str, ...], said: str) -> None:
    done: Any = invoke("executor", "wire", "--name", "local", *options)
    assert done.exit_code == 2
    assert said in done.output


def test_no_two_executors_share_a_topic() -> None:
    """A name has only what a topic's name may have, and stands in it as it is."""
    for character in {*string.printable, "é", "\0"} - {*string.ascii_letters, *string.digits, *"._-"}:
        with pytest.raises(RejectedError, match="letters, digits and"):
            require_executor_name(f"a{character}b", field="name")
    names = [require_executor_name(each, field="name") for each in ("a.b", "a_b", "a-b", "A-b", "ab")]
    assert len({name_ticket_topic(each) for each in names}) == len({name_report_topic(each) for each in names}) == 5


def test_topics_have_the_executor_s_name() -> None:
    assert (name_ticket_topic("paris"), name_report_topic("paris")) == (
        "gobblin-tickets-paris",
        "gobblin-reports-paris",
    )
