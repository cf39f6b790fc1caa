"""Calls many steps at once. Whatever exception a package's step raises, the caller gets one of the error families."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gobblin_assets.commit.repair import NamedRepair
from gobblin_assets.commit.step_kinds import get_kind
from gobblin_assets.commit.step_world import StepWorld
from gobblin_assets.commit.steps import CapturedStaging, CommitStep, StepFault, StepVerdict, UndoOutcome
from gobblin_assets.errors import ConflictError, GobblinError, OutcomeUnknownError, RetryableError
from gobblin_assets.failpoints import Failpoint, reach
from gobblin_assets.model.path_names import list_upwards

T = TypeVar("T")


def verify_steps(steps: Sequence[CommitStep], world: StepWorld) -> list[StepVerdict]:
    """Verify many steps against one pass's listings, in order."""
    world.expect(path for paths in _call_each(steps, lambda step: step.expects()) for path in paths)
    return _do_each(steps, lambda step: _call(step, lambda step: step.verify(world)), world)


def execute_steps(steps: Sequence[CommitStep], world: StepWorld) -> None:
    """Prepare all of them, then execute them in order, up to the first one that fails; independent ones at once.

    An answer that is lost says nothing of other independent steps: they go on, unless as many are lost as are under way
    at once.
    """

    def execute(step: CommitStep) -> None:
        reach(Failpoint.STEP_BEFORE)
        _call(step, lambda step: step.execute(world))
        reach(Failpoint.STEP_AFTER)

    _call_each(steps, lambda step: step.prepare(world))
    _do_each(steps, execute, world)


def _do_each(steps: Sequence[CommitStep], do: Callable[[CommitStep], T], world: StepWorld) -> list[T]:
    """The results in the order of the steps. The first error is raised after those that were begun have ended."""
    lost: list[OutcomeUnknownError] = []
    results: list[T] = []
    threads = min(len(steps), world.calls_at_once)
    if threads < 2 or not all(step.is_independent for step in steps):
        return [do(step) for step in steps]
    with ThreadPoolExecutor(threads, thread_name_prefix="steps") as pool:
        futures = [pool.submit(do, step) for step in steps]
        try:
            for future in futures:
                try:
                    results.append(future.result())
                except OutcomeUnknownError as error:
                    lost.append(error)
                    if len(lost) == threads:
                        raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if lost:
        raise lost[0]
    return results


def undo_steps(steps: Sequence[CommitStep], world: StepWorld, captured: CapturedStaging) -> None:
    """Undo them, last one first. ConflictError if something else is in the place; it stays as it is."""
    for step in reversed(steps):
        if _call(step, lambda step: step.undo(world, captured)) is UndoOutcome.STRANGER:
            raise _not_undone(step, world, captured)


def settle_steps(repair: NamedRepair, steps: Sequence[CommitStep], world: StepWorld, captured: CapturedStaging) -> None:
    """Undo them, last one first; what can't be taken back keeps what a person decided."""
    for step in reversed(steps):
        _call(step, lambda step: step.settle(world, captured, repair))
    repair.sync(world.fs)


def _not_undone(step: CommitStep, world: StepWorld, captured: CapturedStaging) -> ConflictError:
    irreversible = get_kind(step.kind).irreversible
    if irreversible:
        return ConflictError(
            f"a step of the kind {step.kind!r} happened and can't be undone: {irreversible}",
            hint="Undo it by hand, then do this again.",
            step=step.kind,
        )
    fault = find_fault(step, world, StepVerdict.CONFLICT)
    by_hand = f"{fault.hint or 'Move away by hand what is there.'} Then do this again."
    repair = (
        f"`gobblin-assets commit repair {captured.sequence_id}` shows all such names with their versions, and with "
        "--keep decides for all of them."
    )
    return ConflictError(
        f"{fault.place} {fault.found}; it stays as it is",
        hint=repair if fault.is_repaired else by_hand,
        path=fault.place,
        step=step.kind,
    )


def find_fault(step: CommitStep, world: StepWorld, verdict: StepVerdict) -> StepFault:
    """The fault that a person should look at."""
    return _call(step, lambda step: step.find_fault(world, verdict))


def forbid_steps(steps: Iterable[CommitStep], world: StepWorld) -> StepFault | None:
    """Let no process execute them any more, up to the first one for which it is too late."""
    return next(filter(None, (_call(step, lambda step: step.forbid(world)) for step in steps)), None)


def directories_to_sync(
    steps: Iterable[CommitStep], root: str, located: Mapping[str, str], captured: CapturedStaging | None = None
) -> list[str]:
    """Every directory whose entries the steps changed, and its parents up to the destination's root.

    Of a directory outside of the root, a step itself names the parents that it changed. ``located``: the directories of
    captured attempts, with the names that they have now. With ``captured``, also the directories to which this owner
    and earlier owners took files back: otherwise a power cut could make such files visible again.
    """
    touched: set[str] = set()
    for step in steps:
        touched.update(_call(step, lambda step: tuple(step.touches(captured))))
    places = {_locate(directory, located) for directory in touched}
    inside = {place for place in places if place == root or place.startswith(f"{root}/")}
    return [*list_upwards(inside, root), *sorted(places - inside)]


def _locate(directory: str, located: Mapping[str, str]) -> str:
    for staging, now in located.items():
        if directory == staging or directory.startswith(f"{staging}/"):
            return now + directory.removeprefix(staging)
    return directory


def _call_each(steps: Iterable[CommitStep], call: Callable[[CommitStep], T]) -> list[T]:
    return [_call(step, call) for step in steps]


def _call(step: CommitStep, call: Callable[[CommitStep], T]) -> T:
    try:
        return call(step)
    except (GobblinError, OSError, MemoryError):
        raise
    except Exception as error:
        # Its text may hold a secret of the system that the step calls.
        raise RetryableError(
            f"a step of the kind {step.kind!r} raised {type(error).__name__}",
            hint="Its package should raise a family of gobblin_assets.errors, which says what to do.",
            step=step.kind,
        ) from error
