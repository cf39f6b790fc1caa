"""SimpleKafkaSpecExecutor: an executor whose tickets and reports are records of topics.

The service needs no connection to the executor's Postgres: what was sent and what came back is in its own database,
which each node fills from the executor's topic of reports. A ticket is entered there before it is sent, and is sent
again until the executor says that its log has it.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from gobblin_assets.errors import ConflictError, GobblinError, RejectedError
from gobblin_assets.kafka.connection import KafkaConnection, read_cluster
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.model.job_ticket import LogId, SentTicket, TicketId
from gobblin_assets.service.postgres.wires import PostgresWireBook
from gobblin_assets.service.spec_executors.wire_kinds import WayTo
from gobblin_assets.state.tickets import FoundProbe, TicketOutput, TicketReport
from gobblin_assets.tickets.wire_messages import (
    ForgetOrder,
    NewerSchemaError,
    WireNotice,
    WireOrder,
    WithdrawOrder,
    read_notice,
    write_order,
)
from gobblin_assets.tickets.wire_topics import (
    WireProducer,
    WireReader,
    WireRecord,
    name_report_topic,
    name_ticket_topic,
)

_POLL_S: Final = 0.5
_PAUSE_S: Final = 2.0
_RESEND_EVERY_S: Final = 5.0
_STOP_WAIT_S: Final = 10.0

_log = logging.getLogger(__name__)


def open_kafka_wire(way: WayTo) -> "SimpleKafkaSpecExecutor":
    """RejectedError: the executor's location names no Kafka connection of this process's environment."""
    executor = way.executor
    if not executor.location:
        raise RejectedError(
            "expected the name of a Kafka connection, found none",
            field=f"executors.{executor.name}.location",
            hint="Write such as location: main, and set GOBBLIN_KAFKA_MAIN_BOOTSTRAP_SERVERS for the service.",
        )
    connection = read_cluster(executor.location, way.environment)
    return SimpleKafkaSpecExecutor(executor.name, connection, PostgresWireBook(way.own, executor.way))


class SimpleKafkaSpecExecutor:
    """``TicketWire`` over Kafka. A thread of its own reads the reports."""

    def __init__(self, executor: str, connection: KafkaConnection, book: PostgresWireBook) -> None:
        self._executor = executor
        self._book = book
        self._producer = WireProducer(connection)
        self._reader = WireReader(
            connection, lambda _topic, topic_id: book.list_places(topic_id), _log.warning, book.ask_again
        )
        self._reader.follow([name_report_topic(executor)])
        self._stopping = threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._read, name=f"reports of {executor}", daemon=True)
        self._thread.start()

    def find_log_id(self) -> LogId:
        return self._book.find_log_id()

    def send(self, sent: SentTicket) -> None:
        if sent.log_id is not None and sent.log_id != (found := self._book.find_log_id()):
            raise ConflictError(
                f"the ticket {sent.ticket_id} is meant for the log {sent.log_id}, and the executor works with {found}",
                hint="Look at the log that the executor has now, and at the one that it had before.",
            )
        key = self._find_key(sent)
        self._book.enter(sent, key)
        try:
            self._produce(key, sent)
        except ConflictError:
            # No record takes it: nothing will ever come back.
            self._book.take_back(sent.ticket_id)
            raise
        self._book.mark_produced(sent.ticket_id)

    def settle_cancel(self, ticket_id: TicketId) -> TicketId | None:  # noqa: ARG002  the executor settles it
        return None

    def end_unclaimed(self, ticket_id: TicketId, message: str, *, is_lost: bool = False) -> bool:
        is_due = self._book.begin_withdrawal(ticket_id)
        if is_due:
            order = WithdrawOrder(ticket_id, message, is_lost)
            self._produce(self._book.find_key(ticket_id) or self._executor, order)
        return is_due is None

    def list_reports(
        self, ticket_ids: Sequence[TicketId], after: Mapping[TicketId, tuple[int, int]], *, limit: int
    ) -> Sequence[TicketReport]:
        return self._book.list_reports(ticket_ids, after, limit=limit)

    def find_ends(self, ticket_ids: Collection[TicketId]) -> Mapping[TicketId, TicketReport]:
        return self._book.find_ends(ticket_ids)

    def forget(self, ticket_ids: Collection[TicketId]) -> frozenset[TicketId]:
        # Told to the executor first: what this database has forgotten is told to nobody any more.
        if ended := list(self._book.find_ends(ticket_ids)):
            self._produce(self._executor, ForgetOrder(tuple(ended)))
        return self._book.forget(ticket_ids)

    def find_probe(self, ticket_id: TicketId) -> FoundProbe | None:
        return self._book.find_probe(ticket_id)

    def give_up(self, ticket_id: TicketId, details: Mapping[str, Any]) -> bool:
        return self._book.give_up(ticket_id, details)

    def list_outputs(self, ticket_id: TicketId, *, limit: int) -> Sequence[TicketOutput]:
        return self._book.list_outputs(ticket_id, limit=limit)

    def list_heartbeats(self) -> Sequence[HeardHeartbeat]:
        return self._book.list_heartbeats()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_STOP_WAIT_S)
        self._producer.close()

    def _find_key(self, sent: SentTicket) -> str:
        """Tickets of a job come one after another, and what ends a ticket comes behind it."""
        if sent.ticket is not None:
            return sent.ticket.job_name
        found = None if sent.cancels is None else self._book.find_key(sent.cancels)
        return found or str(sent.cancels or sent.ticket_id)

    def _produce(self, key: str, order: WireOrder) -> None:
        self._producer.send(name_ticket_topic(self._executor), [(key, write_order(order))])

    def _read(self) -> None:
        resend_at_s, wait_s = 0.0, 0.0
        while not self._stopping.wait(wait_s):
            try:
                self._take(self._reader.poll(_POLL_S))
                if time.monotonic() >= resend_at_s:
                    resend_at_s = time.monotonic() + _RESEND_EVERY_S
                    self._resend()
                wait_s, self._said = 0.0, ""
            except Exception as error:  # noqa: BLE001  a thread that ended would leave reports unread, in silence
                self._reader.start_over()
                wait_s, said = _PAUSE_S, str(error)
                if said != self._said:
                    _log.warning("reports of the executor %s wait: %s", self._executor, said)
                self._said = said
        self._reader.close()

    def _resend(self) -> None:
        for key, sent in self._book.take_late():
            try:
                self._produce(key, sent)
            except ConflictError as error:
                # The topic takes less than it did. That holds up no other ticket.
                _log.warning("the ticket %s does not go to the executor %s: %s", sent.ticket_id, self._executor, error)

    def _take(self, records: Sequence[WireRecord]) -> None:
        by_partition: dict[tuple[str, int], list[tuple[int, WireNotice | None]]] = defaultdict(list)
        for record in records:
            by_partition[record.topic_id, record.partition].append((record.offset, self._interpret(record)))
        for (topic_id, partition), notices in by_partition.items():
            try:
                self._book.take(topic_id, partition, notices)
            except GobblinError:
                raise
            except Exception:  # noqa: BLE001  what the database refuses holds up nothing else
                _log.exception("records of the executor %s are taken one by one", self._executor)
                for each in notices:
                    self._take_one(topic_id, partition, each)

    def _take_one(self, topic_id: str, partition: int, notice: tuple[int, WireNotice | None]) -> None:
        try:
            self._book.take(topic_id, partition, [notice])
        except GobblinError:
            raise
        except Exception:  # noqa: BLE001  the same
            _log.exception("the record %d of the executor %s does not count", notice[0], self._executor)
            self._book.take(topic_id, partition, [(notice[0], None)])

    def _interpret(self, record: WireRecord) -> WireNotice | None:
        """None: nothing that counts. NewerSchemaError holds the topic up until this process is of that release."""
        try:
            notice = read_notice(record.value)
            if notice.executor != self._executor:
                raise RejectedError(
                    f"expected the executor {self._executor}, found {notice.executor[:200]!a}",
                    field="executor",
                    hint="Let each executor write to its own topic of reports only.",
                )
        except NewerSchemaError:
            raise
        except GobblinError as error:
            _log.warning("the record %d of %s does not count: %s", record.offset, record.topic, error)
            return None
        return notice
