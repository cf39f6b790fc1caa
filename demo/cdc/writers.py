"""The shop's tills: they change the tables all the time, each by a connection and orders of its own.

Some transactions are rolled back, some move a key, and some leave a large value as it was, which Postgres then does not
send.
"""

import random
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

import psycopg

from demo.cdc.shop_database import ShopDatabase

WRITERS: Final = 3
ROLLBACK_EVERY: Final = 10

_SEED: Final = 20250602
_NEW_IDS_FROM: Final = 1_000_000_000
_END_S_MAX: Final = 60.0

_Statement = tuple[str, Sequence[object]]


class ShopWriters:
    """The shop is written to during the block ``with``, in at most ``transactions_per_s``.

    ``committed`` and ``rolled_back`` count transactions that changed something, ``changes`` the rows of committed ones.
    """

    def __init__(self, shop: ShopDatabase, transactions_per_s: int) -> None:
        self._shop = shop
        self._pause_s = WRITERS / transactions_per_s
        self._stopping = threading.Event()
        self._has_reviews = threading.Event()
        self._has_channel = threading.Event()
        self._tills = [_Till(number, self) for number in range(WRITERS)]
        self._threads = [threading.Thread(target=self._run, args=(till,), daemon=True) for till in self._tills]
        self._failures: list[Exception] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(_END_S_MAX)

    @property
    def committed(self) -> int:
        return sum(till.committed for till in self._tills)

    @property
    def rolled_back(self) -> int:
        return sum(till.rolled_back for till in self._tills)

    @property
    def changes(self) -> int:
        return sum(till.changes for till in self._tills)

    @property
    def shop(self) -> ShopDatabase:
        return self._shop

    @property
    def has_reviews(self) -> bool:
        return self._has_reviews.is_set()

    @property
    def has_channel(self) -> bool:
        return self._has_channel.is_set()

    def begin_reviews(self) -> None:
        """From now on, the table ``reviews`` is written to as well."""
        self._has_reviews.set()

    def begin_channels(self) -> None:
        """From now on, orders have a value in the new column ``channel``."""
        self._has_channel.set()

    def stop(self) -> None:
        """When this returns, no transaction is open. SystemExit if one failed."""
        self.__exit__()
        self.require_alive()

    def require_alive(self) -> None:
        if self._failures:
            raise SystemExit(f"A till of the shop has failed: {self._failures[0]}")

    def _run(self, till: "_Till") -> None:
        try:
            with self._shop.connect() as connection:
                while not self._stopping.wait(self._pause_s):
                    till.transact(connection)
        except (psycopg.Error, OSError) as error:
            self._failures.append(error)


class _Till:
    """Writes to the orders and the customers whose numbers are its own, so that no till waits for another."""

    def __init__(self, number: int, writers: ShopWriters) -> None:
        self._number = number
        self._writers = writers
        self._draw = random.Random(f"{_SEED}/{number}")  # noqa: S311  made-up data, not a secret
        self._new = 0
        self.committed = 0
        self.rolled_back = 0
        self.changes = 0

    def transact(self, connection: "psycopg.Connection[Any]") -> None:
        changed = 0
        for _part in range(self._draw.randint(1, 3)):
            for statement, arguments in self._choose():
                changed += max(0, connection.execute(statement.encode(), arguments).rowcount)
        if self._draw.randrange(ROLLBACK_EVERY) == 0:
            connection.rollback()
            self.rolled_back += changed > 0
        else:
            connection.commit()
            self.committed += changed > 0
            self.changes += changed

    def _choose(self) -> list[_Statement]:
        kinds = [self._sell, self._sell, self._ship, self._cancel, self._renumber, self._edit_customer]
        return self._draw.choice([*kinds, self._review] if self._writers.has_reviews else kinds)()

    def _sell(self) -> list[_Statement]:
        self._new += 1
        order = _NEW_IDS_FROM + self._new * WRITERS + self._number
        draw = self._draw
        statements: list[_Statement] = [
            (
                "INSERT INTO order_items VALUES (%s, %s, %s, %s, %s)",
                (order, line, f"product {draw.randrange(499)}", draw.randint(1, 5), draw.randrange(99, 100_000) / 100),
            )
            for line in range(1, draw.randint(2, 5))
        ]
        customer, total = draw.randrange(self._writers.shop.customers), draw.randrange(99, 500_000) / 100
        columns, values = "order_id, customer_id, status, total, ordered_at", "%s, %s, 'new', %s, clock_timestamp()"
        if self._writers.has_channel:
            columns, values = f"{columns}, channel", f"{values}, 'web'"
        statements.insert(0, (f"INSERT INTO orders ({columns}) VALUES ({values})", (order, customer, total)))
        return statements

    def _ship(self) -> list[_Statement]:
        told = ", channel = 'branch'" if self._writers.has_channel else ""
        return [(f"UPDATE orders SET status = 'shipped'{told} WHERE order_id = %s", (self._pick_order(),))]

    def _cancel(self) -> list[_Statement]:
        order = self._pick_order()
        return [
            ("DELETE FROM order_items WHERE order_id = %s", (order,)),
            ("DELETE FROM orders WHERE order_id = %s", (order,)),
        ]

    def _renumber(self) -> list[_Statement]:
        return [("UPDATE order_items SET line = line + 100 WHERE order_id = %s AND line = 1", (self._pick_order(),))]

    def _edit_customer(self) -> list[_Statement]:
        draw = self._draw
        customer = self._own(draw.randrange(self._writers.shop.customers))
        if draw.random() < 0.2:
            return [("UPDATE customers SET notes = repeat(%s, 400) WHERE customer_id = %s", (f"{customer} ", customer))]
        return [("UPDATE customers SET city = %s WHERE customer_id = %s", (f"city {draw.randrange(97)}", customer))]

    def _review(self) -> list[_Statement]:
        order, draw = self._pick_order(), self._draw
        return draw.choice([
            [("INSERT INTO reviews VALUES (%s, %s, NULL)", (order, draw.randint(1, 5)))] * 2,
            [("UPDATE reviews SET stars = 5 - stars WHERE order_id = %s", (order,))],
            [("DELETE FROM reviews WHERE order_id = %s", (order,))],
        ])  # fmt: skip

    def _pick_order(self) -> int:
        """One of its own: one that it wrote, or one that was there."""
        if self._new and self._draw.random() < 0.5:
            return _NEW_IDS_FROM + self._draw.randint(1, self._new) * WRITERS + self._number
        return self._own(self._draw.randrange(self._writers.shop.orders))

    def _own(self, number: int) -> int:
        return number - number % WRITERS + self._number
