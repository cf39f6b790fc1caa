"""The proof: every committed record of the topic against every published row, as multisets.

The readers share nothing with the product but the list of published files: a plain consumer, Python's own JSON, and
pyarrow for the files.
"""

import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from demo.kafka.proof import read_log
from demo.sink.places import JOB, TOPIC
from gobblin_assets.commit.published.published_port import PublishedFiles
from gobblin_assets.model.urn import DatasetUrn, JobName, Role

_FIELDS: Final = ("order_id", "customer", "product", "quantity", "price")
_COLUMNS: Final = ("kafka_partition", "kafka_offset", *_FIELDS)

Orders = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class SinkVerdict:
    """``missing`` records are in the topic only; ``extra`` ones are published only: doubled, aborted or altered."""

    in_log: int
    committed: int
    rows: int
    letters: int
    files: int
    missing: int
    extra: int

    @property
    def is_equal(self) -> bool:
        return self.missing == self.extra == self.letters == 0 and self.committed == self.rows > 0


def count_log(bootstrap: str, isolation: str) -> int:
    return sum(1 for _found in read_log(bootstrap, TOPIC, isolation=isolation))


def compare_orders(bootstrap: str, published: PublishedFiles) -> SinkVerdict:
    committed: Orders = Counter()
    for found in read_log(bootstrap, TOPIC, isolation="read_committed"):
        fields = json.loads(found.value)
        fields["price"] = Decimal(fields["price"])
        committed[found.partition, found.offset, *(fields[name] for name in _FIELDS)] += 1
    rows: Orders = Counter()
    paths = _list_files(published, Role.DATA)
    for path in paths:
        table = pq.ParquetFile(path).read(list(_COLUMNS))
        rows.update(zip(*(table[name].to_pylist() for name in _COLUMNS), strict=True))
    return SinkVerdict(
        in_log=count_log(bootstrap, "read_uncommitted"),
        committed=committed.total(),
        rows=rows.total(),
        letters=len(_list_files(published, Role.DEAD_LETTER)),
        files=len(paths),
        missing=(committed - rows).total(),
        extra=(rows - committed).total(),
    )


def _list_files(published: PublishedFiles, role: Role) -> list[Path]:
    found = published.find(JobName(JOB), DatasetUrn(TOPIC), role=role)
    return [Path(file.path) for segment in found.segments for file in segment.files()] if found else []
