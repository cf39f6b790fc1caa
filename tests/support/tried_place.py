"""Places of rows as tests reach them beside the product: what is in them, how they are lost, and how they go away."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gobblin_assets.destinations.rows_place import RowsPlace
from gobblin_assets.model.urn import DatasetUrn


@dataclass(frozen=True)
class TriedPlace(ABC):
    """A place of rows that one test has for itself. Worker processes get a copy.

    ``loss``: what a worker says of a place that lost its rows. ``absences``: ways in which the place is out of reach,
    each with what is said of it. Names are those of tables or topics.
    """

    loss: ClassVar[str]
    absences: ClassVar[Mapping[str, str]] = {}

    @property
    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """How a process reaches the place."""

    @abstractmethod
    def open(self, names: Mapping[DatasetUrn, str], key: str) -> RowsPlace:
        """The product's place. ``key``: the column by which rows have a key, where they have one."""

    @abstractmethod
    def connect(self, kind: Any = None) -> Any:
        """The ``MarkedRows`` of the place, opened, with ``close``. ``kind``: another class than the product's."""

    @abstractmethod
    def uri_of(self, name: str) -> str:
        """As the log has it."""

    @abstractmethod
    def read(self, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """The rows, without the product's readers; none if nothing is there. The first column is the key."""

    @abstractmethod
    def marks(self, name: str) -> Any:
        """The marks of all lanes, to be compared; empty if there are none."""

    @abstractmethod
    def lose(self) -> None:
        """Remove the rows with their marks, or the marks where they stand apart."""

    def go_away(self, absence: str) -> Mapping[str, str]:
        """Be out of reach in one of ``absences``; returns the variables that lead there."""
        raise NotImplementedError(absence)

    def come_back(self) -> None:  # noqa: B027  where variables lead away, nothing else is to be done
        """Be where ``variables`` say again."""

    def list_strays(self, name: str) -> set[str]:
        """Files beside the rows that no row is in."""
        del name
        return set()
