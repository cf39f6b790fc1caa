"""The last lines of a process: bounded, whole, and without secrets."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.model.job_ticket import TicketId
from gobblin_assets.state.tickets import Claim
from gobblin_assets.tickets.attempt_output import (
    OUTPUT_BYTES_MAX,
    OUTPUT_LINES_MAX,
    AttemptOutput,
    find_secrets,
)

TICKET = TicketId(uuid.UUID(int=7))
ENVIRONMENT = {
    "GOBBLIN_JDBC_SHOP_PASSWORD": "hunter22",
    "GOBBLIN_DATABASE_URL": "postgresql://gobblin:p%40ss-1@host/db?sslpassword=inner-2",
    "GOBBLIN_GCS_SERVICE_ACCOUNT_KEY": "first line of a key\nsecond line of a key",
    "GOBBLIN_S3_ACCESS_KEY_ID": "AKIA123",
    "GOBBLIN_SFTP_KEY_FILE": "/keys/id",
    "EMPTY_TOKEN": "",
    "HOME": "/data/ann",
}


def hear(*data: bytes, ends: bool = True) -> str:
    output = AttemptOutput(find_secrets(ENVIRONMENT))
    output.claim = Claim(TICKET, 1)
    for each in data:
        output.add(each)
    if ends:
        output.finish()
    return output.take_news() or ""


def test_secrets_are_found_by_names_and_in_urls() -> None:
    assert find_secrets(ENVIRONMENT) == {
        "p@ss-1",
        "hunter22",
        "p%40ss-1",
        "inner-2",
        "first line of a key",
        "second line of a key",
    }


@pytest.mark.parametrize(
    "line",
    [
        "postgresql://u:sl/ash@host/db",
        "postgresql://u:p%40ssword@host/db, with p@ssword",
        '{"password": "hunter22", "user": "u"}',
        "{'password': 'hunter22'}",
        'password="hunter22 sl/ash"',
    ],
)
def test_no_way_of_writing_shows_a_secret(line: str) -> None:
    found = find_secrets({"A": "postgresql://u:sl/ash@host/db", "B": "postgresql://u:p%40ssword@host/db"})
    output = AttemptOutput(found)
    output.claim = Claim(TICKET, 1)
    output.add(f"{line}\n".encode())
    said = output.take_news()
    assert said is not None
    assert not any(secret in said for secret in ("sl/ash", "p@ssword", "p%40ssword", "hunter22")), said


def test_no_line_shows_a_secret() -> None:
    said = hear(
        b"with hunter22 and hunter22\nsecond line of a key\n",
        b"postgresql://ann:unknown-3@elsewhere/db password=unknown-4; SECRET: unknown-5\n",
        b"cut hunt",
        b"er22 here\nkey AKIA123 of /data/ann\n",
    )
    assert said.splitlines() == [
        "with *** and ***",
        "***",
        "postgresql://ann:***@elsewhere/db password=***; SECRET: ***",
        "cut *** here",
        "key AKIA123 of /data/ann",
    ]


def test_a_line_that_has_not_ended_waits() -> None:
    assert hear(b"one\nhunt", ends=False) == "one"
    assert hear(b"one\nlast") == "one\nlast"


def test_marks_and_controls_are_left_out() -> None:
    assert hear(f"ticket {TICKET}: reads\n".encode(), b"10 %\r20 %\r\n", b"a\x00b\xff\tc\n").split("\n") == [
        "reads",
        "20 %",
        "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}    c",
    ]


@given(st.lists(st.binary(max_size=40) | st.integers(0, 200_000).map(lambda size: b"x" * size), max_size=30))
def test_what_is_kept_is_bounded(data: list[bytes]) -> None:
    said = hear(*data, *[b"%d\n" % number for number in range(150)])
    assert len(said.encode()) <= OUTPUT_BYTES_MAX
    assert len(said.split("\n")) <= OUTPUT_LINES_MAX
    assert said.endswith("149")


def test_news_are_taken_once() -> None:
    output = AttemptOutput(frozenset())
    output.add(b"before its claim\n")
    assert output.take_news() is None
    output.claim = Claim(TICKET, 2)
    assert output.take_news() == "before its claim"
    assert output.take_news() is None
    output.repeat_news()
    assert output.take_news() == "before its claim"
