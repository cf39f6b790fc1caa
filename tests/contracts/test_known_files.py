"""What a job published, as its plans ask for it: the newest answer, and read whole only if something was published."""

from dataclasses import dataclass, field
from typing import Any

from gobblin_assets.commit.published.port import PublishedFiles
from gobblin_assets.jobs.copy.known_files import KnownFiles
from gobblin_assets.model.urn import DatasetUrn
from tests.support.commit_log import JOB, LogWorld

ORDERS, OTHERS = DatasetUrn("orders"), DatasetUrn("others")


@dataclass
class Counted:
    """``whole``: how often all of a dataset was asked for."""

    published: PublishedFiles
    whole: list[str] = field(default_factory=list)

    def find(self, job: Any, urn: Any, *, role: Any, partitions: Any = None) -> Any:
        if partitions is None:
            self.whole.append(urn)
        return self.published.find(job, urn, role=role, partitions=partitions)


def test_a_dataset_is_read_once_for_each_version(log: LogWorld) -> None:
    orders, others = log.take(log.register(ORDERS)), log.take(log.register(OTHERS))
    counted: Any = Counted(log.published)
    known = KnownFiles(counted, JOB)
    assert known.find(DatasetUrn("unknown")) == known.find(ORDERS) == {}
    log.publish(orders)
    first = known.find(ORDERS)
    assert first
    assert [known.find(ORDERS) for _set in range(3)] == [first] * 3
    log.publish(orders)
    second = known.find(ORDERS)
    assert second.items() > first.items()
    log.publish(others)
    assert known.find(ORDERS) is second
    assert known.find(OTHERS).keys().isdisjoint(second)
    assert counted.whole == ["unknown", ORDERS, ORDERS, ORDERS, OTHERS]
