"""Random calls of all ports of the log, made in two worlds at once: their answers must be the same.

Arguments are picked from all values that were ever made, so that most calls come from replaced owners, name ended
sequences, or repeat earlier calls. A difference prints the calls that led to it.
"""

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gobblin_assets.commit.folding import FoldBounds
from gobblin_assets.commit.segment import combine_digests
from gobblin_assets.commit.sequence import (
    KeyMove,
    NewAttempt,
    NewSequence,
    PublishedInterval,
    SealOrder,
    SequenceRecord,
    StagedAttempt,
)
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.extract import Mode
from gobblin_assets.model.interval import Interval
from gobblin_assets.model.partition import WHOLE
from gobblin_assets.model.state import AttemptId, DatasetState, RunId, SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.model.work_unit import WorkUnit, WorkUnitId
from gobblin_assets.state.datasets import NewRun
from gobblin_assets.state.leases import Holder, Lease
from tests.support.commit_log import JOB, ROOT_URI, LogWorld, make_segments

CALLS_PER_HISTORY = 160
CALLS_BETWEEN_LOOKS = 8
URNS = [DatasetUrn("orders"), DatasetUrn("items")]
# None of them, and no sum of a few, comes near a lease, a grace or a back-off.
PASSING_S = [1.3, 17.7, 63.9, 641.1, 90_001.7]

KEYS = ["id", "other", "third"]
COLUMNS: list[list[list[str]]] = [[], [["id", "bigint"]], [["new", "date"], ["id", "int"]]]

Call = Callable[[LogWorld], Any]


@dataclass
class History:
    """One history in two worlds. All values that were made are kept, so that later calls may use them again."""

    seed: int
    simulated: LogWorld
    real: LogWorld
    lane_count: int = 1
    calls: list[str] = field(default_factory=list)
    succeeded: int = 0
    refused: int = 0
    folded: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ids = [*self.both("register", lambda log: log.datasets.register(JOB, URNS)).values()]
        self.both("spread", lambda log: log.lanes.spread(self.ids[0], self.lane_count))
        self.lanes = [*self.simulated.commits.list_lane_ids(self.ids[0]), *self.ids[1:]]
        self.runs = [RunId(self.new_id()) for _ in range(3)]
        for run_id in self.runs:
            started = NewRun(run_id, JOB, "worker", run_id.hex)
            self.both("begin run", lambda log, started=started: log.runs.begin(started))
        self.leases: list[Lease] = []
        self.sequences: list[NewSequence] = []
        self.attempts: list[NewAttempt] = []
        self.staged: list[StagedAttempt] = []
        self.orders: list[SealOrder] = []

    def new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.random.getrandbits(128))

    def pick(self, made: list[Any]) -> Any:
        """Mostly the latest one."""
        return made[-1] if self.random.random() < 0.6 else self.random.choice(made)

    def both(self, name: str, call: Call) -> Any:
        """Make the call in both worlds. Returns its answer, or None if both refused it with the same family."""
        self.calls.append(name)
        answers = [_answer(call, log) for log in (self.simulated, self.real)]
        assert answers[0] == answers[1], f"seed {self.seed}: " + "\n".join(self.calls)
        # The real clock moves on by itself.
        self.simulated.advance(0.001)
        family, answer = answers[0]
        self.succeeded += family is None
        self.refused += family is not None
        return answer

    # Calls ----------------------------------------------------------------------------------------------

    def take(self) -> None:
        holder = Holder("worker", self.random.choice(self.runs))
        if self.lane_count > 1 and self.random.random() < 0.8:
            lanes = self.random.sample(self.lanes, self.random.randint(1, 2))
            taken = self.both(f"take lanes {lanes}", lambda log: log.leases.take_lanes(lanes, holder, ttl_s=60.0))
        else:
            ids = self.random.sample(self.ids, self.random.randint(1, 2))
            taken = self.both(f"take {ids}", lambda log: log.leases.take(ids, holder, ttl_s=60.0))
        self.leases += [lease for lease in taken if lease not in self.leases]

    def renew(self) -> None:
        leases = [self.pick(self.leases)]
        self.both("renew", lambda log: log.leases.renew(leases, ttl_s=60.0))

    def release(self) -> None:
        leases = [self.pick(self.leases)]
        self.both("release", lambda log: log.leases.release(leases))

    def raise_fence(self) -> None:
        lease = self.pick(self.leases)
        floor = lease.fence + self.random.randint(-1, 1)
        self.both("raise fence", lambda log: log.leases.raise_fence(lease.lane_id, floor=floor))

    def pass_time(self) -> None:
        seconds = self.random.choice(PASSING_S)
        self.both(f"{seconds} s pass", lambda log: log.advance(seconds))

    def begin(self) -> None:
        lease = self.pick(self.leases)
        interval = Interval(long_watermark(0), long_watermark(10))
        unit = WorkUnit(WorkUnitId(self.new_id()), URNS[0], WHOLE, "id", 0, interval)
        new = NewSequence(
            SequenceId(self.new_id()),
            lease.dataset_id,
            self.random.choice(self.runs),
            self.random.choice(["", "", "2013-01"]),
            self.random.choice([Mode.APPEND, Mode.REFRESH]),
            self.random.random() < 0.3,
            lease.fence,
            ROOT_URI,
            ((0, unit),),
            lane=lease.lane,
        )
        self.both(f"begin {new.sequence_id} of {lease}", lambda log: log.commits.begin(new))
        if self.simulated.commits.find_known([new.sequence_id]):
            self.sequences.append(new)

    def continue_building(self) -> None:
        new, fence = self.pick(self.sequences), self.pick(self.leases).fence
        self.both("continue", lambda log: log.commits.continue_building(new.sequence_id, fence=fence))

    def register_attempt(self) -> None:
        new = self.pick(self.sequences)
        attempt_id = AttemptId(self.new_id())
        number = self.random.choice([0, 0, 1])
        path = f"/staging/{attempt_id.hex}"
        attempt = NewAttempt(attempt_id, new.sequence_id, new.dataset_id, new.fence, number, 1, path, lane=new.lane)
        self.both(f"register {attempt_id} of {new.sequence_id}", lambda log: log.commits.register_attempt(attempt))
        if any(found.attempt_id == attempt_id for found in self.simulated.commits.list_attempts(new.sequence_id)):
            self.attempts.append(attempt)

    def fail_attempt(self) -> None:
        attempt_id, cancelled = self.pick(self.attempts).attempt_id, self.random.random() < 0.5
        self.both("fail", lambda log: log.commits.fail_attempt(attempt_id, error="no room", cancelled=cancelled))

    def stage(self) -> None:
        attempt = self.pick(self.attempts)
        known = [staged for staged in self.staged if staged.attempt_id == attempt.attempt_id]
        if known:
            staged = known[0]
        else:
            role = self.random.choice([Role.DATA, Role.QUARANTINE])
            parts = make_segments(attempt, role=role, row_count=self.random.randint(1, 9))
            ids = tuple(self.new_id() for _ in parts)
            staged = StagedAttempt(attempt.attempt_id, attempt.sequence_id, attempt.fence, parts, ids)
            self.staged.append(staged)
        self.both(f"stage {attempt.attempt_id}", lambda log: log.commits.stage(staged))

    def seal(self) -> None:
        if self.orders and self.random.random() < 0.3:
            order = self.pick(self.orders)
        else:
            order = self._new_order()
            self.orders.append(order)
        self.both(f"seal {order.sequence_id} {order.moves}", lambda log: log.commits.seal(order))

    def _new_order(self) -> SealOrder:
        new = self.pick(self.sequences)
        (state,) = [
            state for state in self.simulated.datasets.load(JOB, URNS).values() if state.dataset_id == new.dataset_id
        ]
        staged = [staged for staged in self.staged if staged.sequence_id == new.sequence_id]
        winners = staged[-self.random.randint(1, 2) :]
        segments = [segment for each in winners for segment in each.segments]
        (lane,) = [lane for lane in self.simulated.lanes_of(new.dataset_id) if lane.lane_id == new.lane_id]
        lease = self.pick([lease for lease in self.leases if lease.lane_id == new.lane_id])
        return SealOrder(
            sequence_id=new.sequence_id,
            dataset_id=new.dataset_id,
            partition=new.partition,
            fence=self.random.choice([new.fence, new.fence, lease.fence]),
            base_version=lane.version - (self.random.random() < 0.05),
            winners=tuple(each.attempt_id for each in winners),
            digest=combine_digests(segment.digest for segment in segments),
            segment_count=len(segments),
            row_count=sum(segment.row_count for segment in segments) + (self.random.random() < 0.05),
            moves=self._moves(state, new),
            complete=self.random.random() < 0.8,
            details={"columns": self.random.choice(COLUMNS), "notes": ["a", None, 1.5]},
            lane=new.lane,
        )

    def _moves(self, state: DatasetState, new: NewSequence) -> tuple[KeyMove, ...]:
        moves = []
        # Like a table, whose keys belong to partitions, or like a log, whose partitions share the keys.
        partition = new.partition if self.random.random() < 0.7 else ""
        several = [["id"], ["other"], ["third"], ["id", "third"], []]
        for key in self.random.choice([["id"], ["id"], ["id", "other"], []] if self.lane_count == 1 else several):
            old = state.find_watermark(key, partition)
            if self.random.random() < 0.1:
                old = long_watermark(self.random.randint(0, 40))
            if self.random.random() < 0.2:
                moves.append(KeyMove(key, partition, old, None))
                continue
            start = 0 if old is None else int(str(old))
            low = long_watermark(0) if new.replaces else old
            if self.random.random() < 0.1:
                low = long_watermark(start - 5)
            high = long_watermark(start + self.random.choice([0, 10, 10]))
            intervals = [PublishedInterval(Interval(low, high))]
            if self.random.random() < 0.3:
                further = start + self.random.choice([12, 15, 20])
                intervals.append(PublishedInterval(Interval(long_watermark(further), long_watermark(further + 3)), old))
            stays = self.random.random() < 0.2
            moves.append(KeyMove(key, partition, old, None if stays else high, tuple(intervals)))
        return tuple(moves)

    def change_state(self) -> None:
        """One of the transitions that name a sequence and a fence."""
        new = self.pick(self.sequences)
        fence = self.pick([lease for lease in self.leases if lease.lane_id == new.lane_id]).fence
        block, sequence_id = self.random.random() < 0.3, new.sequence_id
        failure = partial(_record_failure, sequence_id=sequence_id, fence=fence, block=block)
        calls: dict[str, Call] = {
            "abort": lambda log: log.commits.abort(sequence_id, fence=fence, error=None),
            "finish": lambda log: log.commits.finish(sequence_id, fence=fence),
            "finish again": lambda log: log.commits.finish(sequence_id, fence=fence),
            "record failure": failure,
            "defer": lambda log: log.commits.defer(sequence_id, fence=fence, error="away", retry_in_s=60.0),
            "resume": lambda log: log.commits.resume(sequence_id, fence=fence),
            "begin abandon": lambda log: log.commits.begin_abandon(sequence_id, fence=fence, reason="wrong"),
            "end abandon": lambda log: log.commits.end_abandon(sequence_id, fence=fence),
            "announce": lambda log: log.commits.mark_announced(sequence_id),
        }
        name = self.random.choices(list(calls), weights=[1, 5, 1, 2, 1, 2, 1, 1, 1])[0]
        self.both(f"{name} {sequence_id} under {fence}", calls[name])

    def clean(self) -> None:
        lease, limit = self.pick(self.leases), self.random.randint(1, 9)
        marked = self.both(
            f"mark for cleanup under {lease}",
            lambda log: sorted(
                log.commits.mark_for_cleanup({lease.lane_id: lease.fence}, limit=limit),
                key=lambda attempt: attempt.attempt_id,
            ),
        )
        found = {attempt.attempt_id: lease.fence for attempt in marked or []}
        self.both("mark cleaned", lambda log: log.commits.mark_cleaned(found))

    def remove(self) -> None:
        lane_id, grace_s = self.random.choice(self.lanes), self.random.choice([0.0, 600.0])
        found = self.both("list removable", lambda log: log.commits.list_removable(lane_id, grace_s=grace_s, limit=2))
        ids = [segment.segment_id for segment in found]
        self.both("mark removed", lambda log: log.commits.mark_removed(ids))

    def fold(self) -> None:
        """Mostly by the owner, and mostly of sequences that can be folded: announced and clean."""
        lease = self.leases[-1] if self.random.random() < 0.8 else self.pick(self.leases)
        bounds = FoldBounds(self.random.choice([0, 2]), 1, self.random.choice([0.0, 600.0]), 86_400.0, 0)
        limit, lane_id = self.random.randint(1, 9), lease.lane_id
        owner = {"fence": lease.fence, "bounds": bounds}
        self.both("announce all", lambda log: log.commits.mark_announced(*(new.sequence_id for new in self.sequences)))
        self.clean()
        folded = self.both(f"fold under {lease}", lambda log: log.commits.fold(lane_id, **owner, limit=limit))
        self.both(f"forget under {lease}", lambda log: log.commits.forget(lane_id, **owner, limit=limit))
        self.folded += folded or 0
        self.both(f"mark folded under {lease}", lambda log: log.commits.mark_folded(lane_id, **owner))
        self.both("forget runs", lambda log: log.runs.forget(JOB, older_than_s=90_000.0, limit=limit))

    def place(self) -> None:
        lease, names = self.pick(self.leases), self.random.sample(KEYS, 2)
        self.both(f"place {names} by {lease}", lambda log: log.lanes.place(lease, names))

    def move(self) -> None:
        lease, names, number = self.pick(self.leases), self.random.sample(KEYS, 2), self.random.randint(0, 3)
        self.both(f"move {names} by {lease} to {number}", lambda log: log.lanes.move(lease, number, names))

    def run_through(self) -> None:
        """A whole run without faults, so that histories get somewhere."""
        self.take()
        self.begin()
        self.register_attempt()
        self.stage()
        self.seal()
        new, fence = self.sequences[-1], self.leases[-1].fence
        self.both(f"finish {new.sequence_id}", lambda log: log.commits.finish(new.sequence_id, fence=fence))

    def recover(self) -> None:
        """Finish open sequences under the newest lease, as the next runner would."""
        for found in self.simulated.commits.list_open(JOB, limit=9):
            fences = [lease.fence for lease in self.leases if lease.lane_id == found.lane_id]
            finish = partial(_finish, sequence_id=found.sequence_id, fence=max(fences))
            self.both(f"finish {found.sequence_id} under {max(fences)}", finish)

    # Looking --------------------------------------------------------------------------------------------

    def look(self) -> None:
        self.both("states", _states)
        self.both("known", lambda log: log.commits.find_known([new.sequence_id for new in self.sequences]))
        self.both("due", lambda log: log.commits.find_foldable(*self.lanes, bounds=FoldBounds(keep=0, count_min=2)))
        self.both("lanes", lambda log: log.lanes.load(*self.ids))
        self.both("live", lambda log: log.leases.list_live(self.lanes))
        self.both("lapsed", lambda log: log.runs.list_lapsed(JOB, limit=9))
        self.both("lapsed of all", lambda log: log.runs.list_lapsed(None, limit=9))
        self.both("open", lambda log: log.commits.list_open(JOB, limit=99))
        self.both("latest", lambda log: log.commits.list_latest(JOB))
        # Leases that are taken together end at one moment in one world, and microseconds apart in the other.
        self.both("recoverable", lambda log: _in_one_order(log.commits.list_recoverable(jobs=None, limit=99)))
        self.both("unannounced", lambda log: log.commits.list_unannounced(job=JOB, limit=99))
        for dataset_id in self.ids:
            self.both("holder", lambda log, i=dataset_id: log.leases.find_holder(i))
            self.both("view", lambda log, i=dataset_id: set(log.commits.look_at(JOB, [i], []).lanes))
            self.both("unfinished", lambda log, i=dataset_id: log.commits.find_unfinished(i))
            self.both("no-op moves", lambda log, i=dataset_id: log.commits.list_no_op_moves(i, ""))
        for lane_id in self.lanes:
            self.both("status", lambda log, i=lane_id: log.leases.get_status(i))
        for urn in URNS:
            self.both("published", lambda log, urn=urn: log.published.find(JOB, urn, role=Role.DATA))
        for new in self.sequences[-4:]:
            self.both("sequence", lambda log, i=new.sequence_id: log.commits.get(i))
            self.both("attempts", lambda log, i=new.sequence_id: log.commits.list_attempts(i))
            self.both("segments", lambda log, i=new.sequence_id: list(log.commits.read_segments(i)))
            self.both("sealed", lambda log, i=new.sequence_id: log.commits.load_sealed(i)[0])
            self.both("publication", lambda log, i=new.sequence_id: log.commits.load_publications(i)[0])

    def run(self) -> None:
        self.take()
        self.begin()
        self.register_attempt()
        choices: dict[Callable[[], None], int] = {
            self.run_through: 4,
            self.recover: 3,
            self.take: 3,
            self.renew: 1,
            self.release: 1,
            self.raise_fence: 1,
            self.pass_time: 2,
            self.begin: 4,
            self.continue_building: 1,
            self.register_attempt: 5,
            self.fail_attempt: 1,
            self.stage: 6,
            self.seal: 7,
            self.change_state: 8,
            self.clean: 1,
            self.remove: 1,
            self.fold: 3,
        }
        if self.lane_count > 1:
            choices |= {self.place: 2, self.move: 5}
        for number in range(CALLS_PER_HISTORY):
            self.random.choices(list(choices), weights=list(choices.values()))[0]()
            if number % CALLS_BETWEEN_LOOKS == 0:
                self.look()
        self.look()


def _answer(call: Call, log: LogWorld) -> tuple[type[GobblinError] | None, Any]:
    try:
        return None, call(log)
    except GobblinError as error:
        return type(error), None


def _in_one_order(found: Sequence[SequenceRecord]) -> list[SequenceRecord]:
    return sorted(found, key=lambda record: record.sequence_id)


def _finish(log: LogWorld, *, sequence_id: SequenceId, fence: int) -> int:
    return log.commits.finish(sequence_id, fence=fence)


def _record_failure(log: LogWorld, *, sequence_id: SequenceId, fence: int, block: bool) -> Any:
    return log.commits.record_failure(
        sequence_id, fence=fence, error="no room", tries_max=3, retry_in_s=500.0, block=block
    )


def _states(log: LogWorld) -> Any:
    """All states, without the numbers of the keys: Postgres leaves gaps between the numbers."""
    found = log.datasets.load(JOB, URNS)
    positions = {urn: {at: key.watermark for at, key in state.keys.items()} for urn, state in found.items()}
    return {urn: replace(state, keys={}) for urn, state in found.items()}, positions
