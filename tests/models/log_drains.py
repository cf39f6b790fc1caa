"""The drain of a log for an upgrade, as values: executors of two releases that claim, and whoever drains and upgrades.

An executor opens the log only in its own release, lists what it may claim, claims, works, and goes on with the next
ticket. It may be paused or die anywhere. Whoever upgrades drains the log, sees that nobody works, upgrades, and
resumes, at any time later. A process that works although its claim has expired is fenced by its leases, which other
models prove. Fault: a process that works on a log of another release.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

STARTS_MAX = 4
DRAINS_MAX = 2
OLD, NEW = 0, 1


class Do(StrEnum):
    """What an executor does next. INSERT: what it has listed; COMMIT: the fence has let it."""

    NOTHING = "nothing"
    LIST = "list"
    INSERT = "insert"
    COMMIT = "commit"
    WORK = "work"


class Executor(NamedTuple):
    do: Do = Do.NOTHING
    release: int = OLD


class Log(NamedTuple):
    """``inserting``: claims that are not committed; ``live``: those that are, and ``left`` of these by dead processes.

    ``is_quiet``: whoever upgrades has seen that nobody works.
    """

    release: int = OLD
    is_draining: bool = False
    is_quiet: bool = False
    inserting: int = 0
    live: int = 0
    left: int = 0
    starts: int = 0
    drains: int = 0


Move = tuple[Log, Executor]
IDLE = Executor()


@dataclass(frozen=True)
class LogDrains:
    """The protocol. A claim passes a fence in the database, which a drain waits for, and which knows releases."""

    processes: int = 3
    idle: ClassVar[Executor] = IDLE
    start: ClassVar[Log] = Log()

    def list_moves(self, world: Log, mover: Executor) -> Iterator[Move]:
        match mover.do:
            case Do.NOTHING:
                if world.starts < STARTS_MAX:
                    yield world._replace(starts=world.starts + 1), Executor(Do.LIST, world.release)
            case Do.LIST:
                yield world, IDLE
                if not world.is_draining:
                    yield world, mover._replace(do=Do.INSERT)
            case Do.INSERT:
                yield world, IDLE
                if self.may_claim(world, mover):
                    yield world._replace(inserting=world.inserting + 1), mover._replace(do=Do.COMMIT)
                else:
                    yield world, mover._replace(do=Do.LIST)
            case Do.COMMIT:
                after = world._replace(inserting=world.inserting - 1)
                yield after, IDLE
                claimed = after._replace(live=after.live + 1)
                yield claimed, mover._replace(do=Do.WORK)
                yield claimed._replace(left=claimed.left + 1), IDLE
            case Do.WORK:
                yield world._replace(live=world.live - 1), mover._replace(do=Do.LIST)
                yield world._replace(left=world.left + 1), IDLE

    def may_claim(self, world: Log, mover: Executor) -> bool:
        return not world.is_draining and mover.release == world.release

    def may_drain(self, world: Log) -> bool:
        """A lock: those who are past the fence have committed, or never will."""
        return world.inserting == 0

    def may_upgrade(self, world: Log) -> bool:
        return world.is_quiet

    def list_changes(self, world: Log) -> Iterator[Log]:
        if world.left:
            yield world._replace(left=world.left - 1, live=world.live - 1)
        if not world.is_draining:
            if world.drains < DRAINS_MAX and self.may_drain(world):
                yield world._replace(is_draining=True, drains=world.drains + 1)
            return
        if world.live == 0:
            yield world._replace(is_quiet=True)
        if self.may_upgrade(world):
            yield world._replace(release=NEW)
        yield world._replace(is_draining=False, is_quiet=False)

    def find_fault(self, world: Log, mover: Executor) -> str | None:
        return "OLD WORKS" if mover.do is Do.WORK and mover.release != world.release else None


@dataclass(frozen=True)
class DrainsBesideClaims(LogDrains):
    """Who drains does not wait for claims that are past the fence."""

    def may_drain(self, world: Log) -> bool:
        del world
        return True


@dataclass(frozen=True)
class ClaimsWhatItListed(LogDrains):
    """Only the list knows of the drain."""

    def may_claim(self, world: Log, mover: Executor) -> bool:
        return mover.release == world.release


@dataclass(frozen=True)
class ClaimsInAnyRelease(LogDrains):
    """An executor that was there before the upgrade goes on behind it."""

    def may_claim(self, world: Log, mover: Executor) -> bool:
        del mover
        return not world.is_draining


@dataclass(frozen=True)
class UpgradesUnseen(LogDrains):
    """Nobody looks whether attempts still work."""

    def may_upgrade(self, world: Log) -> bool:
        del world
        return True
