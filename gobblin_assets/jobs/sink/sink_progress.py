"""Lines that a worker says of itself: at most a line every few seconds, and every few minutes while nothing comes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gobblin_assets.commit.sequence import Publication
from gobblin_assets.model.clock import Clock
from gobblin_assets.model.urn import Role
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.progress import MIB

LINE_EVERY_S: Final = 10.0
IDLE_LINE_EVERY_S: Final = 300.0
"""While no record comes. A worker says at once that it has become idle, and that records come again."""


@dataclass(slots=True)
class SinkProgress:
    """The counts of what is read and published. ``lag_unit``: in what the lag is measured."""

    clock: Clock
    say: Callable[[str], None]
    lag_unit: str
    _counts: dict[str, int] = field(
        default_factory=lambda: {"records": 0, "rows": 0, "dead_letters": 0, "bytes": 0, "files": 0, "publications": 0}
    )
    _share: tuple[int, int, int, int] = (-1, 0, 0, 0)
    _said_s: float | None = None
    _said_records: int = 0
    _idle_since_s: float | None = None
    _idle_said_s: float = 0.0

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

    def tick(self, measure_lag: Callable[[], int | None]) -> None:
        """``measure_lag`` gives None where it is not known how far the worker is behind."""
        now_s = self.clock.monotonic()
        if self._said_s is None:
            self._said_s = now_s
        elapsed_s = now_s - self._said_s
        if elapsed_s < LINE_EVERY_S:
            return
        records = self._counts["records"]
        rate = (records - self._said_records) / elapsed_s
        came = records - self._said_records
        self._said_s, self._said_records = now_s, records
        if came:
            self._idle_since_s = None
        elif self._idle_since_s is None:
            self._idle_since_s = now_s - elapsed_s
        elif now_s - self._idle_said_s < IDLE_LINE_EVERY_S:
            return
        pace = f"{rate:,.0f} records/s"
        if self._idle_since_s is not None:
            self._idle_said_s = now_s
            pace = f"no record has come for {now_s - self._idle_since_s:.0f} s"
        behind = measure_lag()
        lag = "how far it is behind is not known" if behind is None else f"{behind:,} {self.lag_unit} behind"
        self.say(
            f"{records:,} records, {self._counts['rows']:,} rows in {self._counts['files']:,} files published "
            f"({self._counts['bytes'] / MIB:,.1f} MiB, {self._counts['publications']:,} publications), {pace}, {lag}"
        )
