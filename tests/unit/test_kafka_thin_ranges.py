"""Which ranges of a topic are read by one consumer here, and not by a consumer of Spark's for each of them."""

import pytest

from gobblin_assets.sources.kafka.cluster import TopicPartition
from gobblin_assets.sources.kafka.kafka_kind import SizeEstimator
from gobblin_assets.sources.kafka.sizes import RECORD_BYTES, Sizes
from gobblin_assets.sources.kafka.topic_reader import THIN_BYTES_MAX, THIN_PARTITIONS_MIN, THIN_RECORDS_MAX, are_thin


@pytest.mark.parametrize(
    ("partitions", "records", "record_bytes", "thin"),
    [
        (THIN_PARTITIONS_MIN - 1, 1, 100, False),
        (THIN_PARTITIONS_MIN, 1, 100, True),
        (THIN_PARTITIONS_MIN, 1, 2 * THIN_BYTES_MAX, False),
        (2_000, THIN_RECORDS_MAX // 2_000, 200, True),
        (2_000, THIN_RECORDS_MAX // 2_000, 900, False),
        (2_000, THIN_RECORDS_MAX // 2_000 + 1, 200, False),
        # Nobody has read the topic: how large its records are is a guess, and no reason.
        (2_000, THIN_RECORDS_MAX // 2_000, None, True),
    ],
)
def test_few_records_of_many_partitions_are_thin(
    partitions: int, records: int, record_bytes: float | None, thin: bool
) -> None:
    sizes = Sizes(SizeEstimator.AVERAGE_RECORD_SIZE, RECORD_BYTES if record_bytes is None else record_bytes)
    ranges = {TopicPartition("t", number): (0, records) for number in range(partitions)}
    assert are_thin(ranges, partitions * sizes.estimate_bytes(records)) is thin
