"""What a worker says of itself, at most a line every few seconds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.urn import Role
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.progress import MIB

LINE_EVERY_S: Final = 10.0


@dataclass(slots=True)
class SinkProgress:
    """Counts what is read and published. ``lag_unit``: in what the lag is measured."""

    clock: Clock
    say: Callable[[str], None]
    lag_unit: str
    _counts: dict[str, int] = field(
        default_factory=lambda: {"records": 0, "rows": 0, "dead_letters": 0, "bytes": 0, "files": 0, "publications": 0}
    )
    _share: tuple[int, int, int, int] = (-1, 0, 0, 0)
    _said_s: float | None = None
    _said_records: int = 0

    @property
    def figures(self) -> dict[str, int]:
        return dict(self._counts)

    def read(self, records: int) -> None:
        self._counts["records"] += records

    def publish(self, publication: Publication) -> None:
        self._counts["rows"] += publication.rows_by_role.get(Role.DATA, 0)
        self._counts["dead_letters"] += publication.rows_by_role.get(Role.DEAD_LETTER, 0)
        self._counts["bytes"] += publication.file_bytes
        self._counts["files"] += publication.file_count
        self._counts["publications"] += 1

    def note_share(self, held: int, quota: int, workers: int, lanes: int) -> None:
        """Say once what the worker's share is, when it changes."""
        share = (held, quota, workers, lanes)
        # Without lanes, all datasets rest, and why was said.
        if share == self._share or not lanes:
            return
        self._share = share
        idle = "; there are more workers than lanes, and this one idles" if quota == 0 else ""
        self.say(
            f"{held} of {lanes} lanes held, of a share of {quota} among {count_of(workers, 'worker', 'workers')}{idle}"
        )

    def tick(self, measure_lag: Callable[[], int]) -> None:
        now_s = self.clock.monotonic()
        if self._said_s is None:
            self._said_s = now_s
        elapsed_s = now_s - self._said_s
        if elapsed_s < LINE_EVERY_S:
            return
        records = self._counts["records"]
        rate = (records - self._said_records) / elapsed_s
        self._said_s, self._said_records = now_s, records
        self.say(
            f"{records:,} records, {self._counts['rows']:,} rows in {self._counts['files']:,} files published "
            f"({self._counts['bytes'] / MIB:,.1f} MiB, {self._counts['publications']:,} publications), "
            f"{rate:,.0f} records/s, {measure_lag():,} {self.lag_unit} behind"
        )
