"""Claims of trees, by runs that overlap call by call, and that are killed at each call, over real files."""

import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import BinaryIO, Final

import pytest

from gobblin_assets.destinations.claims import TreeClaim, find_claim, list_intents, refuse_trees, work_root_of
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.model.files import FileIdentity, FileStat
from gobblin_assets.model.urn import JobName
from tests.support.shares import Share

OUTER: Final = "lake"
INNER: Final = "lake/mine/deep"
WAIT_S: Final = 150.0
CALLS: Final = {"outer": 24, "same": 24, "inner": 40}
"""Of a first run of each job."""

CALLS_MAX: Final = 50
"""More than any of them makes."""

KILLED_SHARE: Final = 0.02


class _Killed(BaseException):
    """The process of a run is gone: nothing of it runs any more."""


class _Steps:
    """A run in a thread of its own, which waits before each call of the file system."""

    def __init__(self, run: Callable[["_SteppedFiles"], None], top: str) -> None:
        self._top = top
        self._may_go, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self._next = ""
        self.has_ended = False
        self.outcome: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(run,), daemon=True)
        self._thread.start()
        assert self._waits.acquire(timeout=WAIT_S)

    def _work(self, run: Callable[["_SteppedFiles"], None]) -> None:
        try:
            run(_SteppedFiles(self))
        except BaseException as error:  # noqa: BLE001  it is the outcome
            self.outcome = error
        self.has_ended = True
        self._waits.release()

    def before_call(self, name: str, path: str) -> None:
        """Nothing changes above the place of the test."""
        if not path.startswith(self._top):
            return
        self._next = name
        self._waits.release()
        self._may_go.acquire()
        if self._killed:
            raise _Killed

    def go_on(self, calls: int = CALLS_MAX) -> None:
        for _ in range(calls):
            if self.has_ended:
                return
            self._may_go.release()
            assert self._waits.acquire(timeout=WAIT_S)

    def go_to(self, name: str) -> None:
        """Up to the next call of this method, which is not made; at least one call is made."""
        self.go_on(1)
        while self._next != name:
            assert not self.has_ended
            self.go_on(1)

    def kill(self) -> None:
        self._killed = True
        self.go_on()


class _SteppedFiles(PosixNamedFiles):
    def __init__(self, steps: _Steps) -> None:
        super().__init__()
        self._steps = steps

    def find_identity(self, path: str) -> FileIdentity | None:
        self._steps.before_call("find_identity", path)
        return super().find_identity(path)

    def open_input(self, path: str) -> BinaryIO:
        self._steps.before_call("open_input", path)
        return super().open_input(path)

    def list_files(self, directory: str) -> Sequence[FileStat]:
        self._steps.before_call("list_files", directory)
        return super().list_files(directory)

    def write_new(self, contents: Mapping[str, bytes]) -> frozenset[str]:
        self._steps.before_call("write_new", next(iter(contents)))
        return super().write_new(contents)

    def make_directories(self, directory: str) -> None:
        self._steps.before_call("make_directories", directory)
        super().make_directories(directory)

    def remove_file(self, path: str, identity: FileIdentity) -> bool:
        self._steps.before_call("remove_file", path)
        return super().remove_file(path, identity)

    def find_directories(self, root: str, name: str) -> Iterator[str]:
        self._steps.before_call("find_directories", root)
        return super().find_directories(root, name)

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Nothing here is lost by a power cut."""


@dataclass
class Place:
    """``claimed``: the runs that went on, by job."""

    top: Path
    claimed: list[str] = field(default_factory=list)

    def start(self, job: str) -> _Steps:
        return _Steps(lambda files: self.claim(job, files), str(self.top))

    def claim(self, job: str, files: PosixNamedFiles) -> None:
        """As a first run does: what is made between is the identity of the destination."""
        root = self.root_of(job)
        claim = TreeClaim(files, root, JobName(job), is_whole=False, new_id=uuid.uuid4)
        is_claimed = claim.look()
        files.make_directories(work_root_of(root))
        if not is_claimed:
            claim.take()
        self.claimed.append(job)

    def root_of(self, job: str) -> str:
        return str(self.top / {"outer": OUTER, "inner": INNER, "same": OUTER}[job])

    def try_again(self, job: str) -> bool:
        try:
            self.claim(job, PosixNamedFiles())
        except RejectedError:
            return False
        return True

    def check(self, jobs: Sequence[str], *, was_killed: bool) -> None:
        """One job at most went on. It goes on again, the others don't, and one does in the end."""
        before = set(self.claimed)
        assert len(before) <= 1
        others = [job for job in jobs if job not in before]
        again = {job: self.try_again(job) for job in (*before, *others)}
        if was_killed and not any(again.values()):
            # A person does what the errors say.
            self.remove_intents(jobs)
            again = {job: self.try_again(job) for job in jobs}
        assert sum(again.values()) == 1
        assert all(again[job] for job in before)
        # Who is refused takes back what its killed runs left.
        assert {job: self.try_again(job) for job in jobs} == again
        winner = self.root_of(next(job for job, is_good in again.items() if is_good))
        for root in map(self.root_of, jobs):
            assert (find_claim(PosixNamedFiles(), root) is not None) == (root == winner)
            # Beside a claim they have no effect.
            assert root == winner or not list_intents(PosixNamedFiles(), root)

    def remove_intents(self, jobs: Sequence[str]) -> None:
        for root in map(self.root_of, jobs):
            for intent in list_intents(PosixNamedFiles(), root):
                Path(intent.path).unlink()


@pytest.fixture
def open_place(tmp_path: Path) -> Callable[[], Place]:
    def open_one() -> Place:
        top = tmp_path / uuid.uuid4().hex
        (top / INNER).mkdir(parents=True)
        return Place(top)

    return open_one


def end(runs: Sequence[_Steps]) -> None:
    for run in runs:
        run.go_on()
        assert run.has_ended, "a run makes more calls than CALLS_MAX"
        assert run.outcome is None or isinstance(run.outcome, RejectedError | _Killed), run.outcome


@pytest.mark.parametrize("job", CALLS)
def test_a_first_run_makes_so_many_calls(open_place: Callable[[], Place], job: str) -> None:
    run = open_place().start(job)
    run.go_on(CALLS[job] - 1)
    assert not run.has_ended
    run.go_on(1)
    assert run.has_ended


@pytest.mark.parametrize("killed", [None, 0, 1])
@pytest.mark.parametrize("jobs", [("outer", "inner"), ("inner", "outer"), ("outer", "same")], ids=str)
def test_of_two_jobs_one_claims(
    open_place: Callable[[], Place], share: Share, jobs: tuple[str, str], killed: int | None
) -> None:
    """The first run makes some calls, then the second makes some; then both go on, or one is killed."""
    histories = list(product(*(range(CALLS[job] + 1) for job in jobs)))
    for number in share.numbers(len(histories), f"{jobs} {killed}"):
        place = open_place()
        runs = [place.start(job) for job in jobs]
        for run, calls in zip(runs, histories[number], strict=True):
            run.go_on(calls)
        if killed is not None:
            runs[killed].kill()
        end(runs)
        place.check(jobs, was_killed=killed is not None)


@pytest.mark.parametrize("jobs", [("outer", "outer", "inner"), ("inner", "inner", "outer"), ("outer", "outer", "same")])
def test_a_claim_that_another_run_of_the_job_relies_on_stays(
    open_place: Callable[[], Place], share: Share, jobs: tuple[str, ...]
) -> None:
    for number in share.numbers(600, str(jobs)):
        chance = random.Random(number)
        place = open_place()
        runs = [place.start(job) for job in jobs]
        for _ in range(2 * CALLS_MAX):
            run = chance.choice(runs)
            if chance.random() < KILLED_SHARE:
                run.kill()
            else:
                run.go_on(chance.randrange(6))
        end(runs)
        place.check(sorted(set(jobs)), was_killed=any(isinstance(run.outcome, _Killed) for run in runs))


@pytest.mark.parametrize("calls", range(20))
def test_a_run_reads_while_the_other_turns_its_intent_into_a_claim(open_place: Callable[[], Place], calls: int) -> None:
    place = open_place()
    inner = place.start("inner")
    inner.go_to("make_directories")
    outer = place.start("outer")
    outer.go_to("write_new")
    outer.go_to("write_new")

    inner.go_on(calls)

    end([outer, inner])
    place.check(["outer", "inner"], was_killed=False)


def test_an_intent_is_its_own_run_s(open_place: Callable[[], Place]) -> None:
    """A run that is refused because of another job's intent leaves that of its own job's other run."""
    place = open_place()
    inner = place.start("inner")
    inner.go_to("make_directories")
    before_claim, before_look = place.start("outer"), place.start("outer")
    for run in (before_claim, before_claim, before_look):
        run.go_to("write_new")
    before_look.go_on(1)
    inner.go_to("write_new")
    inner.go_on(1)

    end([before_look, inner, before_claim])
    place.check(["outer", "inner"], was_killed=False)


def test_the_intent_of_a_killed_run_stops_first_runs_of_others_only(open_place: Callable[[], Place]) -> None:
    place = open_place()
    run = place.start("outer")
    while not list_intents(PosixNamedFiles(), place.root_of("outer")):
        run.go_on(1)
    run.kill()

    with pytest.raises(RejectedError, match="is about to copy") as refused:
        place.claim("inner", PosixNamedFiles())
    with pytest.raises(RejectedError, match="is about to copy"):
        refuse_trees(PosixNamedFiles(), place.root_of("inner"), f"{place.root_of('inner')}/rows")

    assert not Path(work_root_of(place.root_of("inner"))).exists()
    Path(str(refused.value.fields["path"])).unlink()
    place.claim("inner", PosixNamedFiles())


@pytest.mark.parametrize("at", ["mine", "mine/deep"])
def test_a_tree_that_a_link_leads_into(open_place: Callable[[], Place], at: str) -> None:
    place = open_place()
    place.claim("outer", PosixNamedFiles())
    (place.top / "alias").symlink_to(place.top / OUTER / at)
    root = str(place.top / "alias/there" if at == "mine" else place.top / "alias")

    with pytest.raises(RejectedError, match="to which the job 'outer' copies"):
        TreeClaim(PosixNamedFiles(), root, JobName("second"), is_whole=False, new_id=uuid.uuid4).look()
    with pytest.raises(RejectedError, match="to which the job 'outer' copies"):
        refuse_trees(PosixNamedFiles(), root, f"{root}/rows")
