"""What a stranger did to a topic or to its destination, and what the workers say of it."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.support.producing import Facts
from tests.torture.schedule import Injection
from tests.torture.topic_account import Marks

_REMEDIES: Final = (
    (
        "lost",
        re.compile(r"\b([a-z]+):\d+: the (?:offset \d+ is no place of the log|next offset is \d+, and the broker)"),
    ),
    ("remade", re.compile(r"the topic ([a-z]+) was deleted and made again: .* --start-over")),
    ("gone", re.compile(r"sink adopt JOB_FILE --dataset ([a-z]+)`")),
    ("trigger", re.compile(r"\bshop\.([a-z]+) took \d+ of \d+ rows: a trigger")),
)
REMEDY_OF: Final = {
    Injection.LOG_LOST: "lost",
    Injection.TOPIC_REMADE: "remade",
    Injection.PLACE_RENAMED: "gone",
    Injection.PLACE_REMOVED: "gone",
    Injection.PLACE_REMADE: "gone",
    Injection.MARKS_REMOVED: "gone",
    Injection.ROWS_LEFT_OUT: "trigger",
}


def hear_of_topics(line: str) -> Collection[str]:
    """What a line of a worker says of a dataset: the kind of its trouble, and its topic."""
    return [f"{kind} {topic}" for kind, pattern in _REMEDIES for topic in pattern.findall(line)]


@dataclass(frozen=True)
class Trouble:
    """What a stranger did to a topic or to its destination, until a person has dealt with it.

    ``partitions``: that lost their logs. ``marks``: the positions before. ``gone``: the rows that went with the place.
    """

    act: Injection
    partitions: Sequence[int] = ()
    marks: Marks = field(default_factory=dict)
    gone: Facts = field(default_factory=Facts)
