"""What is told of a copy's plan: figures of the publication, and sentences for the run's log."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gobblin_assets.errors import GobblinError
from gobblin_assets.jobs.copy.copy_plan import CopyPlan
from gobblin_assets.jobs.copy.difference import DifferenceKind
from gobblin_assets.model.state import DatasetState
from gobblin_assets.model.wording import count_of
from gobblin_assets.run.job_kind import FIGURES, HAS_ROWS, CheckResult, Staged


@dataclass(frozen=True, slots=True)
class CopyJudge:
    """``Judge`` of a copy: nothing of it fails a publication, and its figures are told."""

    plan: CopyPlan

    def gate(self, staged: Sequence[Staged], state: DatasetState) -> tuple[CheckResult, ...]:
        del staged, state
        return ()

    def tell(self, staged: Sequence[Staged] | None, error: GobblinError | None) -> tuple[CheckResult, ...]:
        del staged, error
        return ()

    def describe(self, staged: Sequence[Staged]) -> Mapping[str, object]:
        del staged
        waiting = self.plan.waiting
        figures = {
            "replaced": len(self.plan.replaced),
            "removed": len(self.plan.removals) + len(self.plan.cleared_files),
            "waiting": waiting.files.total(),
            "waiting_bytes": waiting.size_bytes.total(),
        }
        return {FIGURES: figures, HAS_ROWS: False}


def describe_plan(plan: CopyPlan) -> Iterator[str]:
    """Sentences for the run's log."""
    replaced, same = len(plan.replaced), plan.counts[DifferenceKind.SAME]
    if plan.is_empty:
        begin = "what differs waits" if plan.waiting.files else "nothing differs"
        yield f"{begin}: {count_of(same, 'entry is', 'entries are')} the same"
    else:
        new = plan.file_count - replaced
        yield (
            f"{count_of(new, 'new file', 'new files')}, {replaced:,} replaced, "
            f"{len(plan.removals) + len(plan.cleared_files):,} removed, "
            f"{count_of(same, 'entry', 'entries')} the same; {count_of(plan.size_bytes, 'byte', 'bytes')} in all"
        )
    if plan.skipped_count:
        directories = count_of(plan.skipped_count, "directory", "directories")
        yield f"{directories} of the source did not change, and were not listed again"
    if letters := plan.preserve.without_effect:
        yield f"preserve: {', '.join(letters)} mean nothing to this file system"
    if skipped := plan.counts[DifferenceKind.SKIP]:
        links = count_of(skipped, "link or special file", "links and special files")
        yield f"{links} of the source left out (links: skip)"
    if left := plan.counts[DifferenceKind.ATTRIBUTES]:
        yield f"attributes alone differ of {count_of(left, 'file', 'files')}, copied again (attributes: sync)"
