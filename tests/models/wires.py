"""A ticket's reports on their way through a topic, as values: processes that tell them, and a service that takes them.

Any process may die or be paused anywhere, so that what was told is told again. The topic may be deleted and made anew,
with all that nobody has read. Faults: a report that is taken behind one that is missing, which a reader behind a cursor
would never see; reports that are lost for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

REPORTS = 3
LOSSES_MAX = 2
TELLINGS_MAX = 4
RECORDS_MAX = 3


class Teller(NamedTuple):
    """A process that has told ``number`` when it knew that those up to ``behind`` are told. 0: it does nothing."""

    number: int = 0
    behind: int = 0
    telling: int = 0


class Topic(NamedTuple):
    """The log, the topic, and what the service has.

    ``written``: reports of the log. ``told``: up to where they are told, and in which ``telling``: each time that the
    ticket is sent again, all is told anew. ``records``: unread ones, each with the one before it. ``taken``: by the
    service. ``is_new``: the topic was made anew, and the service has not seen that. ``is_asked``: the ticket is sent
    again.
    """

    written: int = 0
    told: int = 0
    telling: int = 0
    records: tuple[tuple[int, int], ...] = ()
    taken: frozenset[int] = frozenset()
    is_new: bool = False
    is_asked: bool = False
    losses: int = 0


@dataclass(frozen=True)
class Wires:
    """The protocol. A report is taken if the one before it is there; else, and when the topic is a new one, the ticket
    is sent again. What was told is noted if nothing was told anew meanwhile.
    """

    processes: int = 2
    idle: ClassVar[Teller] = Teller()
    start: ClassVar[Topic] = Topic()

    def list_moves(self, world: Topic, mover: Teller) -> Iterator[tuple[Topic, Teller]]:
        if not mover.number:
            if world.told < world.written and len(world.records) < RECORDS_MAX:
                number = world.told + 1
                records = (*world.records, (number, world.told))
                yield world._replace(records=records), Teller(number, world.told, world.telling)
            return
        yield world, self.idle
        is_known = world.told == mover.behind and self.is_same_telling(world, mover)
        yield (world._replace(told=mover.number) if is_known else world), self.idle

    def list_changes(self, world: Topic) -> Iterator[Topic]:
        if world.written < REPORTS:
            yield world._replace(written=world.written + 1)
        if world.records:
            yield self._take(world)
        if world.losses < LOSSES_MAX:
            yield world._replace(records=(), is_new=True, losses=world.losses + 1)
        if world.is_new:
            yield world._replace(is_new=False, is_asked=world.is_asked or self.asks_for_new_topics())
        if world.is_asked and world.telling < TELLINGS_MAX:
            yield world._replace(is_asked=False, told=0, telling=world.telling + 1)

    def find_fault(self, world: Topic, _mover: Teller) -> str | None:
        if world.taken and max(world.taken) != len(world.taken):
            return "HIDDEN"
        is_still = world.told == REPORTS and not (world.records or world.is_new or world.is_asked)
        return "LOST" if is_still and len(world.taken) < REPORTS else None

    def is_same_telling(self, world: Topic, mover: Teller) -> bool:
        return world.telling == mover.telling

    def takes(self, world: Topic, behind: int) -> bool:
        return behind <= max(world.taken, default=0)

    def asks_for_new_topics(self) -> bool:
        return True

    def _take(self, world: Topic) -> Topic:
        (number, behind), *rest = world.records
        read = world._replace(records=tuple(rest))
        if self.takes(world, behind):
            return read._replace(taken=world.taken | {number})
        return read._replace(is_asked=True)


class TakesBehindGaps(Wires):
    """Each report is taken as it comes."""

    def takes(self, world: Topic, behind: int) -> bool:
        return True


class TrustsNewTopics(Wires):
    """A topic that was made anew is read from its beginning, and that is all."""

    def asks_for_new_topics(self) -> bool:
        return False


class NotesLate(Wires):
    """What was told before the ticket came again is noted as told behind it."""

    def is_same_telling(self, world: Topic, mover: Teller) -> bool:
        return True
