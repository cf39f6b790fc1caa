"""Takes lanes, recovers them before their vnodes are read, and gives them back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gobblin_assets.commit.abandonment import Abandonment
from gobblin_assets.commit.driver import Driver
from gobblin_assets.commit.lanes import DatasetLanes
from gobblin_assets.commit.recovery import Recovered, recover_lanes
from gobblin_assets.errors import ConflictError, GobblinError
from gobblin_assets.jobs.sink.dataset_sink import DatasetSink, HeldLane
from gobblin_assets.jobs.sink.sink_ports import SinkPorts
from gobblin_assets.model.defects import explain_exception, find_family
from gobblin_assets.model.state import DatasetId, LaneId
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import NewFiles
from gobblin_assets.state.leases import Holder, Lease, LeaseKeeper
from gobblin_assets.state.sinks import SinkBackOff

_BACK_OFF_S: Final = 5.0
_BACK_OFF_S_MAX: Final = 300.0

BACK_OFFS_MAX: Final = 100
"""Of so many datasets and lanes a worker reports to others why they back off."""

ERROR_MAX: Final = 2_000
"""Characters of an error that is reported to others."""


def decide_back_off_s(failures: int) -> float:
    """Seconds to back off after so many failures in a row, of which there may be thousands."""
    return float(min(_BACK_OFF_S_MAX, _BACK_OFF_S * 2.0 ** min(failures - 1, 10)))


@dataclass(frozen=True, slots=True)
class LaneBackOff:
    """The back-off of a lane that failed. ``until_s``: by the monotonic clock."""

    dataset_id: DatasetId
    until_s: float
    error: str


@dataclass(slots=True)
class LaneHolding:
    """The leases of a worker's lanes. ``backing_off``: lanes that failed here, and are left to others for a while."""

    ports: SinkPorts
    keeper: LeaseKeeper
    holder: Holder
    driver: Driver
    abandonment: Abandonment
    open_files: Callable[[HeldLane, Role], NewFiles]
    backing_off: dict[LaneId, LaneBackOff] = field(default_factory=dict)
    failures: dict[LaneId, int] = field(default_factory=dict)

    def list_backing_off(self) -> frozenset[LaneId]:
        now_s = self.ports.clock.monotonic()
        self.backing_off = {lane_id: each for lane_id, each in self.backing_off.items() if each.until_s > now_s}
        return frozenset(self.backing_off)

    def take(self, wanted: Mapping[LaneId, DatasetSink]) -> list[HeldLane]:
        """The lanes among these that could be taken and recovered. A lane that can't be recovered backs off."""
        leases = self.keeper.take_lanes(list(wanted), self.holder) if wanted else []
        if not leases:
            return []
        try:
            return self._recover_all(leases, {lease.lane_id: wanted[lease.lane_id] for lease in leases})
        except Exception:
            # Otherwise they are renewed for ever, and no worker writes them, not even this one.
            self.release(leases)
            raise

    def _recover_all(self, leases: Sequence[Lease], sinks: Mapping[LaneId, DatasetSink]) -> list[HeldLane]:
        errors = self.ports.destination.check_logs({sinks[lease.lane_id].urn: lease for lease in leases})
        outcomes = self._recover([lease for lease in leases if sinks[lease.lane_id].urn not in errors])
        recovered: list[Lease] = []
        for lease in leases:
            sink = sinks[lease.lane_id]
            try:
                outcome = outcomes.get(lease) or errors[sink.urn]
                if isinstance(outcome, GobblinError):
                    raise outcome
                self._note_recovered(sink, outcome)
                recovered.append(lease)
            except Exception as error:  # noqa: BLE001  the failure of this lane; others go on
                self.back_off(lease, sink.urn, explain_exception(sink.urn, error, self.ports.say))
        found = self.ports.stores.lanes.load(*{lease.dataset_id for lease in recovered}) if recovered else {}
        return [self._hold(lease, sinks[lease.lane_id], found[lease.dataset_id]) for lease in recovered]

    def back_off(self, lease: Lease, label: str, error: GobblinError) -> None:
        """Give a lane that failed back, and leave it alone for a while, longer each time."""
        count = self.failures[lease.lane_id] = self.failures.get(lease.lane_id, 0) + 1
        wait_s = decide_back_off_s(count)
        until_s = self.ports.clock.monotonic() + wait_s
        self.backing_off[lease.lane_id] = LaneBackOff(lease.dataset_id, until_s, str(error))
        self.ports.say(f"{label}: backs off for {wait_s:.0f} s: {error}")
        self.release([lease])

    def release(self, leases: Sequence[Lease]) -> None:
        try:
            self.keeper.release(leases)
        except Exception as error:  # noqa: BLE001  they run out
            self.ports.say(f"leases could not be released and will run out: {error}")

    def _recover(self, leases: Sequence[Lease]) -> Mapping[Lease, Recovered | GobblinError]:
        try:
            return dict(zip(leases, recover_lanes(self.driver, self.abandonment, leases), strict=True))
        except Exception as error:  # noqa: BLE001  the failure of these lanes
            return dict.fromkeys(leases, find_family("the recovery of lanes", error))

    def _note_recovered(self, sink: DatasetSink, found: Recovered) -> None:
        """ConflictError if the lane is blocked."""
        for publication in found.published:
            self.ports.say(f"{sink.urn}: completed sequence {publication.sequence_id} of an earlier holder")
        if found.published:
            self.ports.stores.commits.mark_announced(*(each.sequence_id for each in found.published))
        if found.blocked is not None:
            blocked = found.blocked.sequence_id
            raise ConflictError(
                f"lane {found.blocked.lane_number} of {sink.urn} is blocked by sequence {blocked}: "
                f"{found.blocked.last_error}",
                hint=f"Resume or abandon it: `gobblin-assets commit resume|abandon {blocked}`.",
                urn=sink.urn,
            )

    def _hold(self, lease: Lease, sink: DatasetSink, found: DatasetLanes) -> HeldLane:
        state = next(lane for lane in found.lanes if lane.lane_id == lease.lane_id)

        def open_files(role: Role) -> NewFiles:
            return self.open_files(lane, role)

        lane = HeldLane(
            sink=sink,
            lease=lease,
            number=state.number,
            version=state.version,
            writer=sink.open_writer(open_files),
        )
        return lane


def list_back_offs(sinks: Iterable[DatasetSink], holding: LaneHolding, now_s: float) -> list[SinkBackOff]:
    """The datasets and lanes that this worker leaves alone now, for others to see. No error holds a secret."""
    datasets = [
        SinkBackOff(sink.dataset_id, None, str(sink.error))
        for sink in sinks
        if sink.error and now_s < sink.back_off_until_s
    ]
    lanes = [
        SinkBackOff(each.dataset_id, lane_id, each.error)
        for lane_id, each in holding.backing_off.items()
        if each.until_s > now_s
    ]
    return [replace(each, error=each.error[:ERROR_MAX]) for each in (*datasets, *lanes)[:BACK_OFFS_MAX]]
