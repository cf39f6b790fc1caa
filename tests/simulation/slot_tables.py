"""The catalogue of a simulated Postgres: what its tables are called, and whether a publication has them."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_FIRST_OID: Final = 1000
_AWAY: Final = "_away"
_RENAMES: Final = 0.02


@dataclass
class SimTables:
    """Tables are told apart by their first names. ``called``: what those are called that there are. ``oids``: of all
    that ever were. ``members``: the oid of each table's entry in the publication; 0: it has left.
    """

    called: dict[str, str] = field(default_factory=dict)
    oids: dict[str, int] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)
    _renaming: random.Random = field(default_factory=random.Random)

    def seed(self, seed: str) -> None:
        """Whoever renames has a chance of its own, and leaves the others' deeds as they are."""
        self._renaming.seed(seed)

    def create(self, table: str, called: str) -> None:
        self.called[table] = called
        self.oids[table] = self.members[table] = _FIRST_OID + len(self.oids)

    def replace(self, table: str) -> str:
        """Another one has its name; it is gone."""
        anew = f"{table} made anew"
        self.create(anew, self.called.pop(table))
        return anew

    def come_back(self, table: str) -> None:
        """Into the publication, by another entry."""
        self.members[table] = self.oids[table] + _FIRST_OID

    def rename_something(self, is_free: Callable[[str], bool]) -> None:
        """For as long as others take the name back. ``is_free``: nobody writes to the table."""
        if self._renaming.random() > _RENAMES:
            return
        table = self._renaming.choice(list(self.called))
        if is_free(table):
            called = self.called[table]
            self.called[table] = called.removesuffix(_AWAY) if called.endswith(_AWAY) else called + _AWAY

    def settle(self) -> None:
        self.called = {table: called.removesuffix(_AWAY) for table, called in self.called.items()}

    def list_published(self) -> list[tuple[Any, ...]]:
        """As the product asks for the tables of a publication."""
        kept = {"schemaname": "public", "relreplident": "d", "key": ["n"], "attnames": ["n"], "rowfilter": None}
        return [
            ({**kept, "tablename": called, "oid": self.oids[table]},)
            for table, called in self.called.items()
            if self.members[table]
        ]

    def list_terms(self, oids: Sequence[int]) -> Iterable[dict[str, Any]]:
        kept = {"schema": "public", "publication": "1 700", "file": 1, "width": 1, "names": ["n"], "labels": None}
        none = {"parts": None, "strangers": None, "is_secured": False, "is_partitioned": False}
        for table, called in self.called.items():
            if self.oids[table] in oids:
                members = [f"table {self.members[table]}"]
                yield {**kept, **none, "oid": self.oids[table], "table": called, "members": members}
