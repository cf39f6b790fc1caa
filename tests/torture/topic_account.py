"""What must be published of topics whose logs a stranger took away, and of rows that he took from their destination.

Each partition has histories: a new one begins when its log is lost, or its topic is made again. Each watermark key of
the product belongs to one of them, and begins where a person said. So what must be there follows from the stranger's
and the person's acts, and from how far each key came: each record of a history below its key's watermark, once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.sources.kafka.keys import PartitionKey, parse_key
from tests.support.producing import Facts

Marks = Mapping[str, int]
"""Offsets by watermark keys."""

_FIRST: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class LostLog:
    """All records of a partition that could be read, and the end of its log, when it was lost."""

    facts: Facts
    end: int


@dataclass
class TopicAccount:
    """Of one topic. ``destroyed``: rows that went with the place that held them. ``doubted``: rows of which nobody can
    say whether they went with it.
    """

    lost: dict[int, list[LostLog]] = field(default_factory=dict)
    destroyed: Facts = field(default_factory=Facts)
    doubted: Facts = field(default_factory=Facts)
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    _skipped: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def lose(self, partitions: Collection[int], facts: Facts, ends: Marks) -> None:
        """The logs of these partitions are gone. ``facts``, ``ends``: of the topic until now."""
        for number in partitions:
            end = next(end for name, end in ends.items() if _parse(name).partition.partition == number)
            self.lost.setdefault(number, []).append(LostLog(_of_partition(facts, number), end))

    def decide(self, reached: Marks, after: Marks) -> None:
        """A person said where to go on, and nothing was read. ``reached``: up to where the ledger has intervals."""
        for number, key in find_newest(after).items():
            name, at = str(key), after[str(key)]
            if key.generation and name not in self._begun:
                self._begun[name] = (len(self.lost.get(number, ())), at)
            elif (before := reached.get(name, self._begun.get(name, _FIRST)[1])) < at:
                self._skipped.setdefault(name, []).append((before, at))

    def find_unsaid(self, marks: Marks) -> set[str]:
        """Keys that began without a person."""
        return {str(key) for key in map(_parse, marks) if key.generation} - self._begun.keys()

    def list_gaps(self) -> set[tuple[str, int, int]]:
        """The offsets that the ledger does not have, as a person said: key, from, to."""
        begun = {(name, 0, start) for name, (_history, start) in self._begun.items() if start}
        return begun | {(name, *each) for name, skipped in self._skipped.items() for each in skipped}

    def expect(self, marks: Marks, now: Facts, ends: Marks) -> tuple[Facts, Sequence[str]]:
        """The records that have to be published at these watermarks, rows that were destroyed as well; and what is
        wrong with the watermarks. ``now``, ``ends``: of the topic as it is.
        """
        wanted, wrong = Facts(), list[str]()
        for name, at in marks.items():
            key = _parse(name)
            number, lost = key.partition.partition, self.lost.get(key.partition.partition, [])
            if name in self.find_unsaid(marks):
                wrong.append(f"{name} has begun, and nobody said so")
                continue
            history, start = self._begun.get(name, _FIRST)
            is_gone = history < len(lost)
            log = (
                lost[history]
                if is_gone
                else LostLog(_of_partition(now, number), ends[str(PartitionKey(key.partition))])
            )
            if at > log.end:
                wrong.append(f"{name} is published up to {at}, and its log had {log.end} offsets")
            skipped = self._skipped.get(name, [])
            wanted += Facts({
                fact: count
                for fact, count in log.facts.items()
                if start <= _offset(fact) < at and not any(low <= _offset(fact) < high for low, high in skipped)
            })  # fmt: skip
        for number, key in find_newest(marks).items():
            history, _start = self._begun.get(str(key), _FIRST)
            end = ends[str(PartitionKey(key.partition))]
            if history < len(self.lost.get(number, ())) or marks[str(key)] != end:
                wrong.append(
                    f"{key} is at {marks[str(key)]}, and the topic's log, of which it should be, ends at {end}"
                )
        return wanted, wrong

    def give_up(self, gone: Facts, doubted: Facts) -> None:
        """Rows went with the place that held them; the doubted ones may be at the destination once, or not at all."""
        self.destroyed += gone
        self.doubted |= doubted

    def compare(self, wanted: Facts, found: Facts) -> tuple[Facts, Facts]:
        """The records that are missing, and those that are too many: each is at the destination once, or was."""
        return wanted - self.destroyed - found - self.doubted, found + self.destroyed - wanted


def find_newest(marks: Marks) -> dict[int, PartitionKey]:
    """The key that each partition has now."""
    newest: dict[int, PartitionKey] = {}
    for key in map(_parse, marks):
        number = key.partition.partition
        if number not in newest or newest[number].generation < key.generation:
            newest[number] = key
    return newest


def take_between(facts: Facts, before: Marks, after: Marks) -> Facts:
    """The records from one set of watermarks to another one of the same keys."""
    wanted = {_parse(name).partition.partition: (before.get(name, 0), at) for name, at in after.items()}
    nothing = (0, 0)
    return Facts({
        fact: count
        for fact, count in facts.items()
        if wanted.get(_number(fact), nothing)[0] <= _offset(fact) < wanted.get(_number(fact), nothing)[1]
    })  # fmt: skip


def _of_partition(facts: Facts, number: int) -> Facts:
    return Facts({fact: count for fact, count in facts.items() if _number(fact) == number})


def _parse(name: str) -> PartitionKey:
    key = parse_key(name)
    assert key is not None, f"{name} is no key of a partition"
    return key


def _number(fact: tuple[object, ...]) -> int:
    return int(str(fact[0]))


def _offset(fact: tuple[object, ...]) -> int:
    return int(str(fact[1]))
