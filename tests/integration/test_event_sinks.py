"""Sinks of events against real receivers: a web server, a function, and jobs whose sinks can't be meant."""

import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import GobblinError, RejectedError, RetryableError
from gobblin_assets.events import sinks, webhook
from gobblin_assets.events.outbox import REST_S, Outbox
from gobblin_assets.events.sinks import EVENT_SINKS, FunctionSink, open_sink, register_event_sink
from gobblin_assets.events.webhook import READ_S_MAX
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.urn import JobName
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.spec.job_options import EventSinkSpec
from tests.support.command_lake import invoke
from tests.support.copy_lake import CopyLake

pytestmark = pytest.mark.turns(of=4)

SECRET = "not-for-anybody"


class Receiver(ThreadingHTTPServer):
    """Answers with ``statuses`` one after another, then with 204. ``held``: an answer whose body comes after it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.statuses: list[int] = []
        self.held: Event | None = None
        self.requests: list[tuple[dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?key={SECRET}"


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((dict(self.headers), json.loads(body)))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "9" if self.server.held else "0")
        self.end_headers()
        if self.server.held:
            self.wfile.flush()
            self.server.held.wait(READ_S_MAX)
            self.close_connection = True

    def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002  the parent's name
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = Receiver()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    with receiving() as server:
        monkeypatch.setenv("GOBBLIN_EVENTS_URL", server.url)
        monkeypatch.setenv("GOBBLIN_EVENTS_TOKEN", SECRET)
        yield server


LakeJob = Callable[[dict[str, Any]], str]
"""The file of a job with this sink."""


@pytest.fixture
def lake_job(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeJob:
    monkeypatch.setenv("GOBBLIN_DATABASE_URL", database_url)
    lake = CopyLake(database_url, str(tmp_path))
    lake.make_source()
    job = tmp_path / "mirror.yaml"

    def write(sink: dict[str, Any]) -> str:
        places = {"source": str(lake.source), "destination": lake.root}
        job.write_text(json.dumps({"job": "mirror", "kind": "distcp", **places, "events": [sink]}), encoding="utf-8")
        return str(job)

    return write


HOOK = {"kind": "webhook", "url_env": "GOBBLIN_EVENTS_URL", "token_env": "GOBBLIN_EVENTS_TOKEN"}


def test_a_webhook_gets_batches_with_its_token(receiver: Receiver) -> None:
    sink = open_sink(EventSinkSpec(**HOOK))

    sink.send([{"event": "DatasetPublished", "dataset": "ü"}])

    ((headers, body),) = receiver.requests
    assert body == {"events": [{"event": "DatasetPublished", "dataset": "ü"}]}
    assert (headers["Authorization"], headers["Content-Type"]) == (f"Bearer {SECRET}", "application/json")
    assert SECRET not in repr(sink)


@pytest.mark.parametrize(
    ("statuses", "requests", "is_taken"),
    [([503], 2, True), ([500, 500], 2, False), ([302], 1, False), ([401], 1, False)],
)
def test_only_an_answer_of_success_counts(
    receiver: Receiver, statuses: list[int], requests: int, is_taken: bool
) -> None:
    receiver.statuses = list(statuses)
    sink = open_sink(EventSinkSpec(**HOOK))
    error: GobblinError | None = None

    try:
        sink.send([{"event": "DatasetPublished"}])
    except RetryableError as found:
        error = found

    assert (error is None) == is_taken
    assert len(receiver.requests) == requests, "redirects are not followed, refusals not repeated"
    assert SECRET not in str(error)


def test_a_receiver_that_is_gone_is_named_without_its_secrets(receiver: Receiver) -> None:
    sink = open_sink(EventSinkSpec(**HOOK))
    receiver.shutdown()
    receiver.server_close()

    with pytest.raises(RetryableError, match="the webhook of GOBBLIN_EVENTS_URL does not take events") as found:
        sink.send([{"event": "DatasetPublished"}])

    assert SECRET not in str(found.value)


def test_a_function_gets_events_and_may_fail() -> None:
    heard: list[sinks.Event] = []

    def hear(events: Sequence[sinks.Event]) -> None:
        if heard:
            raise ValueError("no more")
        heard.extend(events)

    register_event_sink("heard", lambda spec: FunctionSink(hear))
    try:
        sink = open_sink(EventSinkSpec(kind="heard", options={"to": "me"}))
        sink.send([{"event": "DatasetPublished"}])
        with pytest.raises(RetryableError, match="the function raised ValueError: no more"):
            sink.send([{"event": "DatasetPublished"}])
    finally:
        EVENT_SINKS._known.pop("heard")
    assert heard == [{"event": "DatasetPublished"}]
    with pytest.raises(RejectedError, match="kind of event sink"):
        open_sink(EventSinkSpec(kind="heard"))


def test_a_receiver_may_take_its_time_for_what_nobody_reads(receiver: Receiver) -> None:
    receiver.held = Event()
    try:
        open_sink(EventSinkSpec(**HOOK)).send([{"event": "DatasetPublished"}])
        assert not receiver.held.is_set()
    finally:
        receiver.held.set()
    assert len(receiver.requests) == 1


@contextmanager
def dripping(first: bytes, more: bytes) -> Iterator[int]:
    """A server that answers with ``first`` and then, again and again, with ``more``. Gives its port."""
    is_over = Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while not is_over.is_set():
                    client = listener.accept()[0]
                    Thread(target=drip, args=(client,), daemon=True).start()

        def drip(client: socket.socket) -> None:
            with suppress(OSError), client:
                client.sendall(first)
                while not is_over.wait(0.05):
                    client.sendall(more)

        Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        is_over.set()


@pytest.mark.parametrize(
    ("scheme", "first", "more", "is_taken"),
    [
        pytest.param("http", b"", b"H", False, id="before the status"),
        pytest.param("http", b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n", True, id="in the headers"),
        pytest.param("https", b"\x16\x03\x03\x40\x00", b"\x00", False, id="in the handshake of TLS"),
    ],
)
def test_an_answer_that_comes_byte_by_byte_has_an_end(
    monkeypatch: pytest.MonkeyPatch, scheme: str, first: bytes, more: bytes, *, is_taken: bool
) -> None:
    monkeypatch.setattr(webhook, "TRY_S_MAX", 0.3)
    began = time.monotonic()
    with dripping(first, more) as port:
        sink = open_sink(EventSinkSpec(kind="webhook", url=f"{scheme}://127.0.0.1:{port}/hook"))
        with nullcontext() if is_taken else pytest.raises(RetryableError, match="does not take events"):
            sink.send([{"event": "DatasetPublished"}])
    assert time.monotonic() - began < 30, "each piece of the answer came in time, and nothing ended it"


def test_the_name_of_a_file_of_events_lasts_like_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced, sync = tmp_path / "told.jsonl", list[str](), os.fsync

    def watch(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    open_sink(EventSinkSpec(kind="jsonl", path=str(path))).send([{"event": "DatasetPublished"}])

    assert synced == [str(path), str(tmp_path)]


class Still(SystemClock):
    """Goes on only when it is told to."""

    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


def test_a_stream_leaves_a_sink_that_failed_alone_for_a_while(
    lake_job: LakeJob, database_url: str, receiver: Receiver
) -> None:
    receiver.statuses = [401] * 3
    assert invoke("run", lake_job({**HOOK})).exit_code == 0
    engine, clock, lines = open_external(database_url), Still(), list[str]()
    stores = open_stores(engine)
    outbox = Outbox(JobName("mirror"), [EventSinkSpec(**HOOK)], stores.events, stores.commits, clock, lines.append)
    before = len(receiver.requests)
    for _round in range(3):
        outbox.deliver()
    assert (len(receiver.requests) - before, len(lines)) == (1, 1)
    clock.now_s += REST_S
    receiver.statuses = []
    outbox.deliver()
    engine.dispose()
    assert receiver.requests[-1][1]["events"][-1]["event"] == "DatasetPublished"
    assert len(lines) == 1


class Broken:
    """A package's sink. ``part``: whether it can't be opened, or can't send."""

    def __init__(self, part: str) -> None:
        self.part = part

    def open(self, _spec: EventSinkSpec) -> "Broken":
        if self.part == "open":
            raise UnicodeError(SECRET)
        return self

    def send(self, events: Sequence[sinks.Event]) -> None:
        raise OSError(f"{SECRET}: {len(events)}")


@pytest.mark.parametrize(("part", "said"), [("open", "UnicodeError"), ("send", "OSError")])
def test_a_sink_that_raises_anything_fails_no_run(lake_job: LakeJob, part: str, said: str) -> None:
    register_event_sink("broken", Broken(part).open)
    try:
        run = invoke("run", lake_job({"kind": "broken"}))
    finally:
        EVENT_SINKS._known.pop("broken")

    assert run.exit_code == 0, run.output
    assert f"wait for the next run: a sink of the kind 'broken' raised {said}" in run.output
    assert SECRET not in run.output


@pytest.mark.parametrize("variable", ["GOBBLIN_EVENTS_URL", "GOBBLIN_EVENTS_TOKEN"])
@pytest.mark.parametrize("odd", ["\n", "\0", "ü", "\u20ac", " "], ids=ascii)
def test_a_secret_that_no_request_can_carry_is_named_and_not_shown(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, variable: str, odd: str
) -> None:
    monkeypatch.setattr(os, "environ", {**os.environ, variable: f"{os.environ[variable]}{odd}{SECRET}"})

    with pytest.raises(RejectedError, match=variable) as found:
        open_sink(EventSinkSpec(**HOOK)).send([{"event": "DatasetPublished"}])

    assert SECRET not in "".join(traceback.format_exception(found.value))
    assert not receiver.requests


@pytest.mark.parametrize("url", [f"{SECRET}", f"http://[{SECRET}", f"http://host:{SECRET}/", f"ftp://a/{SECRET}"])
def test_an_url_that_is_none_is_refused_without_a_trace(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("GOBBLIN_EVENTS_URL", url)

    with pytest.raises(RejectedError, match="GOBBLIN_EVENTS_URL is no URL") as found:
        open_sink(EventSinkSpec(kind="webhook", url_env="GOBBLIN_EVENTS_URL")).send([{"event": "DatasetPublished"}])

    assert SECRET not in "".join(traceback.format_exception(found.value))


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"kind": "jsonl"}], "absolute path"),
        ([{"kind": "jsonl", "path": "told.jsonl"}], "absolute path"),
        ([{"kind": "jsonl", "path": "/a", "url": "http://a"}], "has no url"),
        ([{"kind": "webhook"}], "either `url` or `url_env`, found neither"),
        ([{"kind": "webhok", "url": "https://a"}], "Did you mean 'webhook'?"),
        ([{"kind": "pager", "path": "/a"}], "belongs under `options`"),
        ([{"kind": "webhook", "url": "ftp://a"}], "http:// or https://"),
        ([{"kind": "webhook", "url": "https://me:secret@a"}], "without a login"),
        ([{"kind": "webhook", "url_env": "GOBBLIN_DATABASE_URL"}], "begins with GOBBLIN_EVENTS_"),
        ([{"kind": "webhook", "url": "https://a", "token_env": "HOME"}], "begins with GOBBLIN_EVENTS_"),
        ([{"kind": "webhook", "url": "https://a", "token_env": "verysecret"}], "begins with GOBBLIN_EVENTS_"),
        ("https://a?token=verysecret", "may hold a secret"),
        ([{"kind": "jsonl", "path": "/a"}, {"kind": "jsonl", "path": "/b"}], "two sinks are called 'jsonl'"),
        ([{"kind": "jsonl", "path": "/a", "options": {"a": 1}}], "has no options"),
    ],
)
def test_a_sink_that_cannot_be_meant_is_refused_when_the_job_is_read(events: Any, said: str) -> None:
    options = {"job": "m", "kind": "distcp", "source": "/in", "destination": "/out", "events": events}

    with pytest.raises(RejectedError) as found:
        read_copy(options)

    assert found.value.field is not None
    assert found.value.field.startswith("events")
    assert said in str(found.value)
    assert "a group of options" not in str(found.value)
    assert "secret@" not in str(found.value)
    assert "verysecret" not in str(found.value)


def test_the_command_tells_what_waits(lake_job: LakeJob, receiver: Receiver) -> None:
    job = lake_job({**HOOK, "name": "hook"})
    receiver.statuses = [401, 401]
    run = invoke("run", str(job))
    assert run.exit_code == 0, run.output
    assert "events for hook wait for the next run: the webhook of GOBBLIN_EVENTS_URL does not take events" in run.output

    refused = invoke("events", "deliver", str(job))
    assert refused.exit_code == 1
    told = invoke("events", "deliver", str(job), "--json")

    assert told.exit_code == 0, told.output
    assert '"hook": 6' in told.output
    events = receiver.requests[-1][1]["events"]
    assert [each["event"] for each in events] == ["FilePublished"] * 5 + ["DatasetPublished"]
    assert len({each["sequence_id"] for each in events}) == 1
    assert events[-1]["files"] == 5
    assert SECRET not in run.output + refused.output + told.output
    again = invoke("events", "deliver", str(job), "--json")
    assert '"hook": 0' in again.output
