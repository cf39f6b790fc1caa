"""The producers of the demo's topics, and their own account of the records sent: the other side of the proof.

The web site writes Avro in transactions. It aborts some of them after their records are in the log, and sends the same
views again in the next transaction. The app writes JSON without transactions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.kafka.page_views import APP_FAULTS, SCHEMAS, WEB_FAULTS, Fault, View, make_views, to_avro, to_json
from demo.kafka.places import APP, WEB
from demo.kafka.registry_server import RegistryServer

PARTITIONS: Final = {WEB: 4, APP: 3}
ABORT_EVERY: Final = 5
TRANSACTIONS_PER_ROUND: Final = 20
ANSWER_S_MAX: Final = 60.0

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Outgoing:
    view: View
    value: bytes


@dataclass(slots=True)
class Account:
    """A producer's account of its topic. ``broken``: the committed records that are no views, by their positions."""

    sent: Counter[str] = field(default_factory=Counter)
    broken: dict[tuple[int, int], Fault] = field(default_factory=dict)
    late_view_ids: set[str] = field(default_factory=set)


class Stream:
    """``send_round`` sends the next two days of both topics; ``accounts`` hold the records committed so far."""

    def __init__(self, bootstrap: str, registry: RegistryServer, views_per_round: int) -> None:
        self.accounts: Mapping[str, Account] = {WEB: Account(), APP: Account()}
        self.versions: dict[int, int] = {}
        self._bootstrap = bootstrap
        self._registry = registry
        self._views_per_round = views_per_round
        self._rounds_sent = 0
        make_topics(bootstrap, PARTITIONS)

    def send_round(self) -> Mapping[str, Counter[str]]:
        """The numbers of records sent in this round, by topic."""
        before = {topic: account.sent.copy() for topic, account in self.accounts.items()}
        self._send_web()
        self._send_app()
        self._rounds_sent += 1
        return {topic: account.sent - before[topic] for topic, account in self.accounts.items()}

    def _send_web(self) -> None:
        count = self._views_per_round
        views = make_views(WEB, self._rounds_sent, count, WEB_FAULTS)
        ids = self._register()
        with_transactions = self._open({"transactional.id": "web-site"})
        with_transactions.init_transactions(ANSWER_S_MAX)
        for number, batch in enumerate(_batches(views, max(1, count // TRANSACTIONS_PER_ROUND))):
            # The site's servers get the newest version one after the other.
            version = len(ids) - 1 if number % 2 else max(0, min(self._rounds_sent - 1, len(ids) - 1))
            outgoing = [Outgoing(view, to_avro(view, version, ids[version])) for view in batch]
            if number % ABORT_EVERY == ABORT_EVERY - 1:
                with_transactions.begin_transaction()
                self._deliver(with_transactions, WEB, outgoing)
                with_transactions.abort_transaction(ANSWER_S_MAX)
                self.accounts[WEB].sent["aborted"] += len(outgoing)
            with_transactions.begin_transaction()
            places = self._deliver(with_transactions, WEB, outgoing)
            with_transactions.commit_transaction(ANSWER_S_MAX)
            self._enter(WEB, outgoing, places)
        # Markers are written after a commit is acknowledged; a producer that asks for the same id waits for them.
        self._open({"transactional.id": "web-site"}).init_transactions(ANSWER_S_MAX)

    def _send_app(self) -> None:
        views = make_views(APP, self._rounds_sent, self._views_per_round, APP_FAULTS)
        outgoing = [Outgoing(view, to_json(view)) for view in views]
        places = self._deliver(self._open({"enable.idempotence": True}), APP, outgoing)
        self._enter(APP, outgoing, places)

    def _register(self) -> Sequence[int]:
        """The ids of the schema's versions so far: the second version comes with the second round."""
        released = SCHEMAS[: min(self._rounds_sent, 1) + 1]
        ids = [self._registry.register(f"{WEB}-value", schema) for schema in released]
        self.versions |= {schema_id: version for version, schema_id in enumerate(ids)}
        return ids

    def _open(self, settings: Mapping[str, object]) -> Producer:
        return Producer({"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 5, **settings})

    def _deliver(self, producer: Producer, topic: str, outgoing: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """The position of each record; all are in the log when this returns."""
        places: dict[int, tuple[int, int]] = {}

        def send(number: int, each: Outgoing) -> None:
            def take(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    places[number] = (message.partition() or 0, message.offset() or 0)

            producer.produce(topic, each.value, each.view.visitor.encode(), on_delivery=take)

        for number, each in enumerate(outgoing):
            try:
                send(number, each)
            except BufferError:
                producer.flush(ANSWER_S_MAX)
                send(number, each)
        producer.flush(ANSWER_S_MAX)
        if len(places) < len(outgoing):
            raise KafkaException(f"{len(outgoing) - len(places)} records of {topic} were not delivered")
        return [places[number] for number in range(len(outgoing))]

    def _enter(self, topic: str, outgoing: Sequence[Outgoing], places: Iterable[tuple[int, int]]) -> None:
        account = self.accounts[topic]
        for each, place in zip(outgoing, places, strict=True):
            view = each.view
            account.sent["records"] += 1
            account.sent["late"] += view.is_late
            account.sent["sent twice"] += view.is_again
            account.sent["broken"] += view.fault is not None
            if view.fault is not None:
                account.broken[place] = view.fault
            if view.is_late:
                account.late_view_ids.add(view.view_id)


def make_topics(bootstrap: str, partitions: Mapping[str, int]) -> None:
    """``partitions``: of each topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in partitions.items()]
    for made in admin.create_topics(topics, operation_timeout=ANSWER_S_MAX).values():
        made.result(ANSWER_S_MAX)


def _batches(items: Iterator[_Item], size: int) -> Iterator[list[_Item]]:
    while batch := list(islice(items, size)):
        yield batch
