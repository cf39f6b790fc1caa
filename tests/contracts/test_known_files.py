"""What a job published, as its plans ask for it: the newest answer, and read whole only if something was published."""

from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.commit.published.current import list_current
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.jobs.copy.running import KnownFiles
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.urn import DatasetUrn, Role
from tests.support.commit_log import JOB, LogWorld

ORDERS, OTHERS = DatasetUrn("orders"), DatasetUrn("others")


@dataclass
class Counted:
    """``whole``: how often all of a dataset was asked for."""

    published: PublishedFiles
    whole: list[str] = field(default_factory=list)

    def find(self, job: Any, urn: Any, **asked: Any) -> Any:
        assert asked["partitions"] == ()
        return self.published.find(job, urn, **asked)

    def scan(self, job: Any, urn: Any, **asked: Any) -> Any:
        self.whole.append(urn)
        return self.published.scan(job, urn, **asked)


def _paths(log: LogWorld, urn: DatasetUrn) -> dict[str, FileIdentity]:
    found = log.published.find(JOB, urn, role=Role.DATA)
    assert found is not None
    return {file.path: file.identity for _segment, file in list_current(found.segments)}


def test_a_dataset_is_read_once_for_each_version(log: LogWorld) -> None:
    orders, others = log.take(log.register(ORDERS)), log.take(log.register(OTHERS))
    counted: Any = Counted(log.published)
    known = KnownFiles(counted, JOB)
    assert known.find(DatasetUrn("unknown")).find("/some/path") is None
    assert known.find(ORDERS).find("/some/path") is None
    log.publish(orders)
    first, paths = known.find(ORDERS), _paths(log, ORDERS)
    assert paths
    assert {path: first.find(path) for path in paths} == paths
    assert [known.find(ORDERS) for _set in range(3)] == [first] * 3
    log.publish(orders)
    second, more = known.find(ORDERS), _paths(log, ORDERS)
    assert more.items() > paths.items()
    assert {path: second.find(path) for path in more} == more
    assert [first.find(path) for path in more.keys() - paths.keys()] == [None] * (len(more) - len(paths))
    log.publish(others)
    assert known.find(ORDERS) is second
    assert [known.find(OTHERS).find(path) for path in more] == [None] * len(more)
    assert counted.whole == ["unknown", ORDERS, ORDERS, ORDERS, OTHERS]
