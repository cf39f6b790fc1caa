"""The account of the slots of a soak: what was due by each schedule, and what became of it."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from gobblin_assets.service.schedules import CONTINUOUS


def account_slots(
    schedules: Mapping[str, str],
    slots: Mapping[tuple[str, str], Mapping[str, Any]],
    after: dt.datetime,
    before: dt.datetime,
) -> tuple[int, list[str]]:
    """How many slots were due between two moments, and a line for each that was not run, or not told why, once.

    ``schedules``: by flows; ``slots``: by flows and moments, as the service had them.
    """
    expected, wrong = 0, []
    for flow, schedule in schedules.items():
        if schedule == CONTINUOUS:
            continue
        seen = [
            (dt.datetime.fromisoformat(at), dt.datetime.fromisoformat(slot["until"]), slot)
            for (of, at), slot in slots.items()
            if of == flow
        ]
        for due in list_expected_slots(schedule, after, before):
            expected += 1
            holds = [slot for at, until, slot in seen if at <= due <= until]
            if len(holds) != 1:
                wrong.append(f"{flow} at {due:%H:%M}: {len(holds)} slots")
            elif holds[0]["state"] != "RUN" and not holds[0]["reason"]:
                wrong.append(f"{flow} at {due:%H:%M}: {holds[0]['state']} without a reason")
    return expected, wrong


def list_expected_slots(schedule: str, after: dt.datetime, before: dt.datetime) -> list[dt.datetime]:
    """The minutes between two moments at which a schedule of the soak is due."""
    first, _, period = schedule.split(maxsplit=1)[0].partition("-59/")
    minute = after.replace(second=0, microsecond=0) + dt.timedelta(minutes=1)
    found = []
    while minute < before:
        if minute.minute >= int(first) and (minute.minute - int(first)) % int(period) == 0:
            found.append(minute)
        minute += dt.timedelta(minutes=1)
    return found
