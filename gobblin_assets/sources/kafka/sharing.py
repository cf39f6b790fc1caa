"""Groups of topics that are read together: those whose records become rows and files in the same way. Pure.

Many small topics then need only a few Spark jobs. A hidden column names each row's topic. The records are read in this
process (``consumer``), so they must be few.
"""

import re
from collections.abc import Sequence
from typing import Final

from gobblin_assets.model.work_unit import WorkUnit, sum_bytes, sum_rows
from gobblin_assets.sources.kafka.decoding_plan import DecodingPlan
from gobblin_assets.sources.kafka.kafka_spec import Decoder, topic_options
from gobblin_assets.sources.kafka.reading import Ranges
from gobblin_assets.sources.kafka.sizes import RECORD_BYTES
from gobblin_assets.spec.job_spec import DatasetSpec

RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 8 * 1024 * 1024
"""Spark reads a topic that has more records to read in this run."""

THIN_PARTITIONS_MIN: Final = 32
THIN_RECORDS_MAX: Final = 200_000
THIN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one read of thin ranges, which lies in this process's memory."""

# Schemas of these formats are learned topic by topic, while their records are read.
_ALONE: Final = frozenset({Decoder.AVRO, Decoder.PROTOBUF})
# The options that decide how records become rows, and how rows become files.
_OF_ROWS: Final = {"kafka", "converters", "quality", "writer"}
# A window function looks at other rows, which may be another topic's. It can't be written without this word.
_WINDOW: Final = re.compile(r"\bover\b", re.IGNORECASE)


def decide_sharing_key(spec: DatasetSpec, decoding: DecodingPlan, to_read: Sequence[WorkUnit]) -> str | None:
    """Equal for topics that can be read together; None for one that is read by itself."""
    if sum_rows(to_read) > RECORDS_MAX or sum_bytes(to_read) > BYTES_MAX:
        return None
    read = topic_options(spec).kafka
    if {read.key.format, read.value.format} & _ALONE or mixes_rows(spec):
        return None
    written = spec.model_dump_json(include=_OF_ROWS)
    return f"{written} {decoding.value!r} {decoding.key!r}"


def are_thin(ranges: Ranges, size_bytes: int) -> bool:
    """Whether opening a consumer for each of the ranges, as Spark does, takes longer than reading them all here.

    ``size_bytes``: what all of them are expected to have. Of a topic that nobody has read that is a guess, and the read
    itself finds out: it ends at its bound, which costs less than the consumers.
    """
    records = sum(high - low for low, high in ranges.values())
    is_small = size_bytes <= THIN_BYTES_MAX or size_bytes == records * RECORD_BYTES
    return len(ranges) >= THIN_PARTITIONS_MIN and records <= THIN_RECORDS_MAX and is_small


def mixes_rows(spec: DatasetSpec) -> bool:
    """Whether what is done to a row may depend on other rows of the same read."""
    expressions = [policy.check for policy in spec.quality.rows]
    for link in spec.converters:
        if link.function is not None:
            return True
        expressions += [*(link.sql or {}).values(), *([link.where] if link.where else [])]
    return any(_WINDOW.search(each) for each in expressions)
