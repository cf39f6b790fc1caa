"""One name in an object store, and everything that publications do to it, as values: the world of an exhaustive search.

A log with fences, uploads that are pending, copies that were put aside, and processes that each stop for any time, or
for ever, between any two calls. Contents are numbers: 0 is nothing, a sequence's number is the version that it staged,
numbers from ``GUEST`` on are a stranger's objects, and negative ones are marks. Versions of the same bytes have the
same ETag.
"""

from enum import StrEnum
from typing import Final, NamedTuple

from gobblin_assets.destinations.fixed_names.object_steps import Stands
from tests.models.fixed_names import GUEST, NOTHING, Way

STAGED: Final = 0
"""In the place of a fence: the upload that a sequence staged."""

Token = tuple[int, int]
"""An upload: the number of its sequence, and the fence of the abandoner that began it, or ``STAGED``."""


class Etags(StrEnum):
    """Which versions have the same bytes."""

    OWN = "own"
    EQUAL = "equal"
    ALTERNATE = "alternate"

    def of(self, content: int) -> int:
        if not 0 < content < GUEST or self is Etags.OWN:
            return content
        return 1 if self is Etags.EQUAL else 1 + content % 2


def mark_of(number: int, fence: int = STAGED) -> int:
    """The mark that says that nothing is to be at the name; no two have the same bytes."""
    return -(number * 100 + fence)


class ObjectPlan(NamedTuple):
    """What a sequence does at the name. ``old``: what it was planned to find."""

    number: int
    way: Way
    old: int

    @property
    def after(self) -> int:
        """What is at the name afterwards."""
        return NOTHING if self.way is Way.REMOVE else self.number

    @property
    def staged(self) -> int:
        """What the staged upload becomes."""
        return mark_of(self.number) if self.way is Way.REMOVE else self.number

    def judge(self, content: int, etags: Etags) -> Stands:
        """As the steps judge an object: by its id and its bytes, then by its ETag."""
        if content == NOTHING:
            return Stands.NOTHING
        if content < 0:
            return Stands.MARKER if -content // 100 == self.number else Stands.OTHER
        if content == self.after:
            return Stands.NEW
        return Stands.OLD if self.old and etags.of(content) == etags.of(self.old) else Stands.OTHER


class OpenPlan(NamedTuple):
    plan: ObjectPlan
    is_abandoning: bool = False


class ObjectLog(NamedTuple):
    """``published``: what should be at the name while no sequence is open. ``over``: attempts that are not cleaned."""

    fence: int = 0
    version: int = 0
    published: int = NOTHING
    next_number: int = 1
    open: OpenPlan | None = None
    over: tuple[int, ...] = ()


class ObjectWorld(NamedTuple):
    """``uploads``: what each pending one becomes. ``aside``: the copy that a sequence made of its old version.

    ``journal``: the abandoners' uploads that are written down in the store. ``guests``: a stranger's objects that
    nobody may lose. ``destroyed``: what the stranger replaced or removed. ``acts_left``: what a stranger may still do.
    """

    name: int = NOTHING
    uploads: frozenset[tuple[Token, int]] = frozenset()
    aside: frozenset[tuple[int, int]] = frozenset()
    journal: frozenset[Token] = frozenset()
    log: ObjectLog = ObjectLog()
    guests: frozenset[int] = frozenset()
    destroyed: frozenset[int] = frozenset()
    acts_left: int = 0

    def find_upload(self, token: Token) -> int | None:
        return dict(self.uploads).get(token)

    def without_upload(self, token: Token) -> "ObjectWorld":
        return self._replace(uploads=frozenset(each for each in self.uploads if each[0] != token))

    def with_upload(self, token: Token, content: int) -> "ObjectWorld":
        return self._replace(uploads=self.without_upload(token).uploads | {(token, content)})

    def with_aside(self, number: int, content: int | None) -> "ObjectWorld":
        others = frozenset(each for each in self.aside if each[0] != number)
        return self._replace(aside=others if content is None else others | {(number, content)})

    def with_log(self, log: ObjectLog) -> "ObjectWorld":
        return self._replace(log=log)


def find_object_fault(world: ObjectWorld, etags: Etags) -> str | None:
    """What must not be at the name, whatever the processes are about to do."""
    lost = world.guests - {world.name}
    if lost:
        return f"the stranger's object {min(lost)} is lost"
    if world.log.open is None:
        expected = world.log.published
        # A stranger's object stays, whatever it took the place of, and may be removed by the stranger again.
        is_strangers = world.name in world.guests or (world.name == NOTHING and bool(world.destroyed))
        if world.name != expected and not is_strangers:
            return f"the name holds {world.name}, and the log says {expected}"
        return None
    return _find_fault_while_open(world, world.log.open, etags)


def _find_fault_while_open(world: ObjectWorld, sequence: OpenPlan, etags: Etags) -> str | None:
    plan, name = sequence.plan, world.name
    is_mark = name < 0 and plan.judge(name, etags) is Stands.MARKER
    if is_mark and not (plan.way is Way.REMOVE or (plan.way is Way.CREATE and sequence.is_abandoning)):
        return "a mark is at the name of a version"
    if not is_mark and name not in (NOTHING, plan.old, plan.after, *world.guests):
        return f"the name holds {name}, while sequence {plan.number} goes from {plan.old} to {plan.after}"
    kept = {etags.of(name), etags.of(dict(world.aside).get(plan.number, NOTHING))}
    if plan.old and etags.of(plan.old) not in kept and plan.old not in world.destroyed:
        return f"version {plan.old} is lost before the end of sequence {plan.number}"
    if name == NOTHING and plan.way is Way.REPLACE and not world.destroyed & {plan.old, plan.after}:
        return "a reader finds nothing at the name during a replacement"
    return None
