"""Wires between a service and an executor whose log it does not reach: both ends, over a real broker and real https."""

import datetime as dt
import ipaddress
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from sqlalchemy import Engine, text

from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.model.clock import SystemClock
from gobblin_assets.model.executor_heartbeat import HeardHeartbeat
from gobblin_assets.run.postgres import open_stores
from gobblin_assets.run.stores import Stores
from gobblin_assets.service.postgres.wires import PostgresWireBook
from gobblin_assets.service.spec_executors.simple_kafka import SimpleKafkaSpecExecutor
from gobblin_assets.service.spec_executors.simple_rest import ServiceCertificate, SimpleRESTSpecExecutor
from gobblin_assets.sources.kafka.cluster import TopicOffsets
from gobblin_assets.sources.kafka.confluent import ConfluentCluster
from gobblin_assets.tickets.kafka_wire import KafkaWire, KafkaWireOptions
from gobblin_assets.tickets.rest.inbox_api import ServedInbox, make_inbox_api
from gobblin_assets.tickets.rest.inbox_server import InboxAddress, serve_inbox
from tests.support import postgres
from tests.support.database_pool import DatabasePool
from tests.support.kafka import delete_topics, make_topic

WAIT_S_MAX = 150.0
_DAY = dt.timedelta(days=1)


@pytest.fixture(scope="session")
def service_database(server: EmbeddedServer, service_pool: DatabasePool) -> Iterator[Engine]:
    """A service's own database, which is none of an executor."""
    with postgres.migrated_database(server, service_pool) as name:
        engine = open_external(server.url(name))
        yield engine
        engine.dispose()


@pytest.fixture
def service_engine(service_database: Engine) -> Engine:
    """The same, without what ways to executors have left."""
    with service_database.begin() as connection:
        for table in ("way_ticket", "way_heartbeat", "way_place"):
            connection.execute(text(f"DELETE FROM gobblin_service.{table}"))
    return service_database


def await_true(is_so: Callable[[], object], what: str) -> None:
    until = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@dataclass(frozen=True)
class Authority:
    """Signs certificates, which it writes into its folder as NAME.pem and NAME.key."""

    folder: Path
    name: str = "authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self._write(self.name, self.key, self._build(self.name, self.key, is_ca=True))

    @property
    def ca(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def sign(self, name: str) -> tuple[Path, Path]:
        """The certificate and the key."""
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(name, key, self._build(name, key, is_ca=False))
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def _build(self, name: str, key: ec.EllipticCurvePrivateKey, *, is_ca: bool) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        addresses: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return (
            x509.CertificateBuilder()
            .subject_name(_name_of(name))
            .issuer_name(_name_of(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, made: x509.Certificate) -> None:
        pem = serialization.Encoding.PEM
        (self.folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (self.folder / f"{name}.key").write_bytes(secret)


def _name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def name_executor() -> str:
    return f"executor-{uuid.uuid4().hex[:8]}"


@dataclass
class KafkaEnds:
    """Both ends of a wire over Kafka. The executor's end does a round only when it is asked to."""

    bootstrap: str
    name: str
    wire: SimpleKafkaSpecExecutor
    executor: KafkaWire
    stores: Stores
    book: PostgresWireBook

    def pass_on(self) -> None:
        """Until all orders are in the log, and all that the log has to tell is in the service's database."""
        self.executor.beat_soon()
        for _ in range(2):
            await_true(self._is_taken, "all orders are in the log")
            await_true(self._is_heard, "all reports are in the service's database")

    def _is_taken(self) -> bool:
        self.executor.look()
        taken = self._find_end("tickets", lambda topic_id: self.stores.wires.list_places(self.name, *topic_id))
        return taken and not self.stores.wires.list_untold(self.name, limit=1)

    def _is_heard(self) -> bool:
        return self._find_end("reports", lambda topic_id: self.book.list_places(topic_id[1]))

    def _find_end(self, of: str, list_places: Callable[[tuple[str, str]], Mapping[int, int]]) -> bool:
        """Whether the place of the topic's reader is its end."""
        topic = f"gobblin-{of}-{self.name}"
        connection = KafkaConnection(self.bootstrap, name="main")
        found = ConfluentCluster(connection).find_offsets([topic], isolation="read_committed")[topic]
        assert isinstance(found, TopicOffsets)
        places = list_places((topic, found.topic_id))
        return all(places.get(number, 0) == each.end for number, each in found.partitions.items())


@contextmanager
def open_kafka_ends(bootstrap: str, service: Engine, log: Engine, name: str) -> Iterator[KafkaEnds]:
    connection, stores = KafkaConnection(bootstrap, name="main"), open_stores(log)
    topics = [f"gobblin-{of}-{name}" for of in ("tickets", "reports")]
    for topic in topics:
        # A reader that finds none looks again some seconds later.
        make_topic(bootstrap, topic)
    book = PostgresWireBook(service, f"kafka:{name}")
    executor = make_kafka_wire(connection, name, stores)
    with open_kafka(connection, name, service) as wire:
        yield KafkaEnds(bootstrap, name, wire, executor, stores, book)
    executor.close()
    delete_topics(bootstrap, *topics)


def make_kafka_wire(connection: KafkaConnection, name: str, stores: Stores, owner: str = "a") -> KafkaWire:
    def list_beats() -> list[HeardHeartbeat]:
        return [each for each in stores.heartbeats.list_heartbeats() if each.beat.executor == name]

    options = KafkaWireOptions(name, owner, stores.tickets.find_log_id())
    return KafkaWire(options, connection, stores.wires, stores.tickets, SystemClock(), print, list_beats)


@contextmanager
def serve_kafka(connection: KafkaConnection, name: str, stores: Stores, owner: str = "a") -> Iterator[None]:
    is_over = threading.Event()
    made = make_kafka_wire(connection, name, stores, owner)
    thread = threading.Thread(target=made.carry, args=(is_over.wait,))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(WAIT_S_MAX)


@contextmanager
def open_kafka(connection: KafkaConnection, name: str, service: Engine) -> Iterator[SimpleKafkaSpecExecutor]:
    wire = SimpleKafkaSpecExecutor(name, connection, PostgresWireBook(service, f"kafka:{name}"))
    try:
        yield wire
    finally:
        wire.close()


@contextmanager
def serve_rest(name: str, stores: Stores, authority: Authority, port: int = 0) -> Iterator[int]:
    certificate, key = authority.sign("executor")
    address = InboxAddress("127.0.0.1", port, certificate, key, authority.ca)
    with serve_inbox(make_inbox_api(ServedInbox(name, stores.tickets, stores.heartbeats)), address) as bound:
        yield bound


def make_rest(name: str, port: int, authority: Authority, ca: Path | None = None) -> SimpleRESTSpecExecutor:
    certificate, key = authority.sign("service")
    return SimpleRESTSpecExecutor(
        name, "127.0.0.1", port, ServiceCertificate(str(certificate), str(key), str(ca or authority.ca))
    )
