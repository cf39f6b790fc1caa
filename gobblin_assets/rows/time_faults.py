"""Faults of a row's event time, what becomes of such a row, and what people read about it: one for all readers."""

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.event_time_spec import EventTimeSpec, TimeUnit

UNIT_MICROS: Final = MappingProxyType(
    {TimeUnit.SECONDS: 1_000_000, TimeUnit.MILLISECONDS: 1_000, TimeUnit.MICROSECONDS: 1}
)
DAY_MICROS: Final = 86_400_000_000
YEAR_1_MICROS: Final = -62_135_596_800_000_000
YEAR_10000_MICROS: Final = 253_402_300_800_000_000

# No zone is a day away from UTC: within these bounds, a moment can be moved into any zone, to check its year there.
LOW_MICROS: Final = YEAR_1_MICROS - DAY_MICROS
HIGH_MICROS: Final = YEAR_10000_MICROS + DAY_MICROS

BEYOND_MICROS: Final = 2**62
"""Stands for each time that no calendar of ours holds, from ``HIGH_MICROS`` on."""


class TimeFault(StrEnum):
    MISSING = "event_time_missing"
    UNREADABLE = "event_time_unreadable"
    FUTURE = "event_time_future"

    def rule(self, spec: EventTimeSpec) -> str:
        """``fail``, ``directory``, ``dead_letter`` or, for the future, ``accept``."""
        return spec.on_future if self is TimeFault.FUTURE else spec.on_missing

    def directory(self, spec: EventTimeSpec) -> str:
        """The directory's value, where the rule is ``directory``."""
        return spec.future_name if self is TimeFault.FUTURE else spec.missing_name

    def reason(self, spec: EventTimeSpec) -> str:
        """A sentence for a dead letter."""
        place = repr(spec.column) if spec.json_path is None else f"{spec.column!r} at {spec.json_path}"
        return f"the row {_SAID[self]} in {place}"

    def refusal(self, name: str, *, dataset: str) -> RejectedError:
        """The error, where the rule is ``fail``. ``name``: the column of the time."""
        rule = "on_future" if self is TimeFault.FUTURE else "on_missing"
        return RejectedError(
            f"dataset {dataset!r}: at least one row {_SAID[self]} in {name!r}, and {rule} is fail",
            field=f"writer.event_time.{rule}",
            hint=f"Nothing that its task read was published. {_HINTS[self]}",
        )


_SAID: Final = {
    TimeFault.MISSING: "has no event time",
    TimeFault.UNREADABLE: "has an event time that can't be read",
    TimeFault.FUTURE: "has an event time further in the future than future_s_max",
}
_HINTS: Final = {
    TimeFault.MISSING: "Set on_missing: directory or dead_letter, name another column, or fill it by a converter.",
    TimeFault.UNREADABLE: "Set on_missing: directory or dead_letter; or write it by a converter as an ISO 8601 text, "
    "or as a number that counts unit since 1970.",
    TimeFault.FUTURE: "Compare unit with what the column counts; else set on_future: directory, dead_letter or accept, "
    "or a larger future_s_max.",
}
