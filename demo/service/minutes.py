"""The proof of a schedule of each minute: every minute since its first start is there once, whoever was killed."""

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from demo.service.client import ServiceClient
from demo.service.flows import path_of
from demo.stage import console, join_counts

_MINUTE: Final = dt.timedelta(minutes=1)
_LISTED: Final = 200


def say_minutes(client: ServiceClient, config: Mapping[str, Any]) -> bool:
    """Print what became of the minutes of a flow; returns whether each is there once."""
    slots = client.ask("GET", f"{path_of(config)}/slots?limit={_LISTED}")
    found = Counter(minute for slot in slots for minute in _list_minutes(slot))
    missing = set(_list_between(min(found), max(found))) - found.keys() if found else set()
    doubled = found.total() - len(found)
    states: Counter[str] = Counter()
    for slot in slots:
        states[slot["state"]] += slot["count"]
    is_each_once = bool(found) and not missing and not doubled
    verdict = "[green]each once[/green]" if is_each_once else "[red]WRONG[/red]"
    console.print(
        f"{len(found)} minutes of {config['flow_group']}/{config['flow_name']}: {join_counts(states)};"
        f" {len(missing)} missing, {doubled} doubled  {verdict}"
    )
    return is_each_once


def _list_minutes(slot: Mapping[str, Any]) -> Iterable[dt.datetime]:
    return _list_between(*(dt.datetime.fromisoformat(slot[end]) for end in ("at", "until")))


def _list_between(first: dt.datetime, last: dt.datetime) -> Iterable[dt.datetime]:
    return (first + number * _MINUTE for number in range((last - first) // _MINUTE + 1))
