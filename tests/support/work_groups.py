"""Which tests run in the same xdist worker: those that share a server, otherwise those of a file.

A worker that starts Spark or a broker keeps it until its end, and the first queries of a JVM take longest. So all tests
with a broker are one group, and all with Spark. In a thorough run, tests with Spark are two groups of about the same
length, since one group would outlast all others together. A pytest plugin.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.support.processor_time import BUDGETS

SERVERS: Final = {
    # Slots have one name in the whole server, and all databases share its log.
    "postgres-log": frozenset({"source_database", "logical_server"}),
    "kafka": frozenset({"kafka_broker"}),
    "spark": frozenset({"spark", "connect", "mariadb", "mysql", "commands", "store_reader"}),
    "hdfs": frozenset({"hdfs_server", "place"}),
    "service": frozenset({"shared_service"}),
}
"""By group, the fixtures that start its server, or may start it.

A file belongs to the first group of which a test of this run uses a fixture.
"""

_BY_PARAMETER: Final = {"hdfs": "hdfs_server", "kafka": "kafka_broker"}
"""What a fixture asks for while it is made, by the value of a test's parameter."""

_GROUP_IN_ID: Final = re.compile(rf"@((?:{'|'.join(SERVERS)})(?:-\d)?|tests/[^@]*\.py)$")


class WorkGroups:
    def __init__(self, config: pytest.Config) -> None:
        self._is_worker = hasattr(config, "workerinput")
        self._has_workers = config.pluginmanager.hasplugin("xdist")
        self._is_thorough = config.getoption("markexpr") == "thorough"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark each item with its group, and put the groups and files that take longest first.

        If a long group began last, all other workers would wait for it.
        """
        recorded = json.loads(BUDGETS.read_text(encoding="utf-8"))["clock_s"] if BUDGETS.exists() else {}
        fixtures: dict[str, set[str]] = {}
        for item in items:
            asked = fixtures.setdefault(_file_of(item), set())
            if self._is_thorough or item.get_closest_marker("thorough") is None:
                asked.update(_list_fixtures(item))
        groups = {file: _find_group(file, asked) for file, asked in fixtures.items()}
        if self._is_thorough:
            _halve(groups, "spark", recorded)
        group_s: Counter[str] = Counter()
        for file, group in groups.items():
            group_s[group] += recorded.get(file, 0)
        for item in items if self._has_workers else ():
            item.add_marker(pytest.mark.xdist_group(groups[_file_of(item)]))
        items.sort(key=lambda item: _rank(_file_of(item), groups, group_s, recorded))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remove the group that xdist's workers add to a test's name, since no test can be selected by that name."""
        if not self._is_worker:
            report.nodeid = _GROUP_IN_ID.sub("", report.nodeid)


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _list_fixtures(item: pytest.Item) -> set[str]:
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    words = {
        word for value in values for word in (value if isinstance(value, tuple) else (value,)) if isinstance(word, str)
    }
    return {*getattr(item, "fixturenames", ()), *(_BY_PARAMETER[word] for word in words & _BY_PARAMETER.keys())}


def _find_group(file: str, asked: set[str]) -> str:
    return next((group for group, fixtures in SERVERS.items() if asked & fixtures), file)


def _halve(groups: dict[str, str], group: str, recorded: Mapping[str, float]) -> None:
    """Split a group into two by recorded times, in the same way on every worker."""
    files = sorted(file for file, each in groups.items() if each == group)
    totals = {f"{group}-1": 0.0, f"{group}-2": 0.0}
    for file in sorted(files, key=lambda each: -recorded.get(each, 0)):
        groups[file] = min(totals, key=lambda each: totals[each])
        totals[groups[file]] += recorded.get(file, 1)


def _rank(file: str, groups: dict[str, str], group_s: Counter[str], recorded: dict[str, Any]) -> tuple[Any, ...]:
    return (-group_s[groups[file]], groups[file], -recorded.get(file, 0), file)
