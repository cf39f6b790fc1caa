"""What is at the sources of the demo's flows: tables, the changes that are made to them, and a topic's records."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import psycopg
from confluent_kafka import KafkaError, Message, Producer
from psycopg import sql

from demo.flights_source import connect_source
from demo.kafka.stream import make_topics
from gobblin_assets.db.embedded import EmbeddedServer

Rows = Counter[tuple[Any, ...]]

CHANGED: Final = {"planes": "tailnum", "airports": "faa"}
"""The tables whose changes are followed, each with its key."""

PUBLICATION: Final = "lake"
TOPIC: Final = "weather"
RECORD: Final = {
    "origin": "string",
    "time_hour": "timestamp",
    "temp": "double",
    "humid": "double",
    "wind_dir": "int",
    "wind_speed": "double",
    "precip": "double",
}
"""The fields of a record of the topic, and their types."""

_PARTITIONS: Final = 3
_BROKEN_EVERY: Final = 500
_ANSWER_S_MAX: Final = 60.0
# A sensor that is broken says so in its own way.
_BROKEN: Final = (math.nan, math.inf, -math.inf)

# They can be made again: each time other rows are deleted, and other ones inserted.
_CHANGES: Final = (
    "UPDATE planes SET seats = seats + 1 WHERE tailnum < 'N2' AND engines = 2",
    "DELETE FROM planes WHERE year < 1970 OR tailnum = (SELECT min(tailnum) FROM planes)",
    "INSERT INTO planes (tailnum, year, model) SELECT 'N0NE' || count(*), 2013, 'KITE' FROM planes",
    "INSERT INTO planes (tailnum) SELECT 'N1NE' || count(*) FROM planes",
    "UPDATE airports SET faa = faa || '.' WHERE alt > 6000",
    "DELETE FROM airports WHERE tz IS NULL OR alt < 0",
)


def publish_changes(source: EmbeddedServer) -> None:
    tables = sql.SQL(", ").join(sql.Identifier("public", table) for table in CHANGED)
    statement = sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(sql.Identifier(PUBLICATION), tables)
    with connect_source(source) as connection:
        connection.execute(statement)


def change_tables(source: EmbeddedServer) -> dict[str, int]:
    """Each statement is a transaction; returns the rows that they changed, by their verbs."""
    changed: Counter[str] = Counter()
    for statement in _CHANGES:
        with connect_source(source) as connection:
            changed[statement.partition(" ")[0]] += connection.execute(statement.encode()).rowcount
    return dict(changed)


def read_table(source: EmbeddedServer, table: str) -> tuple[list[str], Rows]:
    """The table's columns, and its rows."""
    with connect_source(source) as connection:
        cursor = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier("public", table)))
        return [column.name for column in cursor.description or ()], Counter(cursor)


class WeatherStations:
    """The producer of the topic. ``sent``: its own account, the other side of the proof."""

    def __init__(self, source: EmbeddedServer, bootstrap: str) -> None:
        self.sent: Rows = Counter()
        self._source = source
        self._bootstrap = bootstrap
        make_topics(bootstrap, {TOPIC: _PARTITIONS})

    def send(self, first_month: int, last_month: int) -> int:
        """The weather of these months, as JSON; returns the number of records. SystemExit if one was not taken."""
        # A broker that is just started has no ids for producers yet, and librdkafka warns of each try.
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 3})
        rows = self._read(first_month, last_month)
        for row in rows:
            record = dict(zip(RECORD, row, strict=True))
            value = json.dumps({name: _write(value) for name, value in record.items()})
            producer.produce(TOPIC, value.encode(), key=str(record["origin"]).encode(), on_delivery=_require_delivery)
            producer.poll(0)
        if left := producer.flush(_ANSWER_S_MAX):
            raise SystemExit(f"The broker at the edge did not take {left} records.")
        self.sent.update(map(plain_row, rows))
        return len(rows)

    def _read(self, first_month: int, last_month: int) -> list[tuple[Any, ...]]:
        columns = sql.SQL(", ").join(map(sql.Identifier, RECORD))
        query = sql.SQL("SELECT {} FROM weather WHERE month BETWEEN %s AND %s ORDER BY time_hour").format(columns)
        with connect_source(self._source) as connection:
            rows = connection.execute(query, (first_month, last_month)).fetchall()
        temp = list(RECORD).index("temp")
        for number in range(0, len(rows), _BROKEN_EVERY):
            broken = _BROKEN[number // _BROKEN_EVERY % len(_BROKEN)]
            rows[number] = (*rows[number][:temp], broken, *rows[number][temp + 1 :])
        return rows


def _require_delivery(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise SystemExit(f"The broker at the edge did not take a record: {error}")


def plain_row(row: Sequence[Any]) -> tuple[Any, ...]:
    """A row that equals another one of the same values: NaN equals nothing, not even itself."""
    return tuple("NaN" if isinstance(each, float) and math.isnan(each) else each for each in row)


def _write(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if isinstance(value, str | int | float | None) else value.isoformat()


def count_source(source: EmbeddedServer) -> dict[str, int]:
    with connect_source(source) as connection:
        return {table: _count(connection, table) for table in ("flights", *CHANGED)}


def _count(connection: "psycopg.Connection[Any]", table: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier("public", table))).fetchone()
    return 0 if row is None else int(row[0])
