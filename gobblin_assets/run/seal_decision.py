"""Decides from the results of a slice's tasks what to seal, checks it, and describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from gobblin_assets.commit.segment import Segment, combine_digests
from gobblin_assets.commit.sequence import KeyMove, PublishedInterval, SealOrder
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.errors import ConflictError, FencedError, GobblinError, RejectedError
from gobblin_assets.model.policy import CommitPolicy, Decision, decide_commit
from gobblin_assets.model.state import AttemptId, SequenceId
from gobblin_assets.run.job_kind import CheckResult, TaskFigures
from gobblin_assets.run.lag import Lag, lag_to_json, measure_lag
from gobblin_assets.run.quality_checks import check_lag
from gobblin_assets.run.slices import Slice, StagedTask, partition_text


class QualityFailedError(RejectedError):
    """A blocking check failed before the seal; nothing was published. ``checks`` are all results."""

    def __init__(self, label: str, checks: tuple[CheckResult, ...]) -> None:
        failed = ", ".join(f"{c.name} ({c.description})" for c in checks if c.blocking and not c.passed)
        super().__init__(
            f"{label}: {failed}",
            field="quality.tasks",
            hint="Nothing was published and the watermark stays; correct the data or the policy.",
        )
        self.checks = checks


class SealForgottenError(ConflictError):
    """The log acknowledged the seal and no longer knows it. Nothing may be abandoned or cleaned because of that."""

    def __init__(self, label: str, sequence_id: SequenceId, cause: GobblinError) -> None:
        super().__init__(
            f"{label}: the commit log has forgotten that sequence {sequence_id} was sealed ({cause.message})",
            hint="Postgres failed over to a standby that lagged, or was restored. The next run reads again what was "
            "lost, or, where files of it are visible already, stops and says how to reconcile.",
            sequence_id=str(sequence_id),
        )


def decide_slice(
    slice_: Slice, *, policy: CommitPolicy, base_version: int, uri: str, duration_s: float
) -> SealOrder | None:
    """The attempts that the policy allows to publish. None: nothing, and the sequence must be aborted.

    QualityFailedError: a blocking check failed.
    """
    decision = decide_commit(policy, slice_.results, replaces=slice_.plan.replaces)
    if not decision.publish:
        return None
    # Not by the winners alone: an attempt that only determines columns has no WorkUnits, and no result.
    winners = [task for task in slice_.staged if task.attempt_id not in decision.discarded]
    judge, staged = slice_.plan.judge, [task.extracted for task in winners]
    checks = judge.gate(staged, slice_.state)
    if any(check.blocking and not check.passed for check in checks):
        raise QualityFailedError(slice_.label, checks)
    checks += judge.report(staged, slice_.error)
    lag = measure_lag(slice_.plan.unread, {a.key: a.high for a in decision.advances if a.high is not None})
    checks += _check_lag(slice_, lag)
    if slice_.plan.degraded or any(each.degraded for each in staged):
        decision = replace(decision, complete=False)
    details = {
        "uri": uri,
        **_describe(slice_, winners),
        "duration_s": round(duration_s, 3),
        "checks": [check_to_json(check) for check in checks],
        **({} if lag is None else {"lag": lag_to_json(lag)}),
    }
    return replace(_seal_order(slice_, decision, winners, base_version), details=details)


def explain_unpublished(slice_: Slice, error: GobblinError, store: CommitLogReader) -> GobblinError:
    """The error that prevented the publication of a sealed slice."""
    if not isinstance(error, ConflictError | FencedError | RejectedError):
        return error
    # If the log went back, its answer looks like the work of another process; only this run knows that it had sealed.
    known = store.find_known([slice_.sequence_id]).get(slice_.sequence_id)
    if known is not None and known.is_sealed:
        return error
    forgotten = SealForgottenError(slice_.label, slice_.sequence_id, error)
    forgotten.__cause__ = error
    return forgotten


def check_failure(slice_: Slice, error: GobblinError) -> tuple[CheckResult, ...]:
    """The quality results of a slice without a publication."""
    lag = _check_lag(slice_, measure_lag(slice_.plan.unread))
    if isinstance(error, QualityFailedError):
        return error.checks + lag
    return slice_.plan.judge.report(None, error) + lag


def _check_lag(slice_: Slice, lag: Lag | None) -> tuple[CheckResult, ...]:
    lag_max = slice_.plan.lag_max
    return () if lag is None or lag_max is None else (check_lag(lag, lag_max=lag_max),)


def _describe(slice_: Slice, winners: Sequence[StagedTask]) -> dict[str, object]:
    of_partition = slice_.plan.partition_facts
    return {
        **slice_.plan.judge.describe([task.extracted for task in winners]),
        # Pairs, because a jsonb object forgets the order of its keys.
        "source_columns": list(slice_.plan.columns.items()),
        **(
            {"source_facts": dict(learn_facts(slice_, winners))}
            if of_partition is None
            else {"partition_facts": dict(of_partition)}
        ),
        "rows_read": sum(task.extracted.rows_read for task in winners),
        "observed_high": _highest(winners),
        "notes": [
            *(*slice_.plan.degraded, *slice_.plan.notes),
            *(note for task in winners for note in (*task.extracted.degraded, *task.extracted.notes)),
        ],
    }


def _highest(winners: Sequence[StagedTask]) -> str | None:
    highs = [task.extracted.observed_high for task in winners if task.extracted.observed_high is not None]
    return str(max(highs)) if highs else None


def learn_facts(slice_: Slice, winners: Sequence[StagedTask]) -> Mapping[str, object]:
    """The source's facts after the slice is published: the plan's facts, or those learnt from the tasks."""
    if slice_.plan.learn is None:
        return slice_.plan.facts
    expected: dict[AttemptId, int] = {}
    for result in slice_.results:
        if result.attempt is not None:
            expected[result.attempt] = expected.get(result.attempt, 0) + (result.unit.estimated_row_count or 0)
    return slice_.plan.learn(
        [
            TaskFigures(expected[task.attempt_id], sum(s.file_bytes for s in task.segments), task.duration_s)
            for task in winners
            if task.attempt_id in expected
        ]
    )


def _seal_order(slice_: Slice, decision: Decision, winners: Sequence[StagedTask], base_version: int) -> SealOrder:
    segments = [segment for task in winners for segment in task.segments]
    partition = partition_text(slice_.partition)
    key_partition = slice_.key_partition
    moves = tuple(
        KeyMove(
            key=advance.key,
            partition=key_partition,
            old=slice_.state.find_watermark(advance.key, key_partition),
            new=advance.high if slice_.plan.moves_watermarks else None,
            intervals=tuple(
                PublishedInterval(interval, None if place else advance.reread_from)
                for place, interval in enumerate(advance.intervals)
            ),
        )
        for advance in decision.advances
    )
    return SealOrder(
        sequence_id=slice_.sequence_id,
        dataset_id=slice_.state.dataset_id,
        partition=partition,
        fence=slice_.lease.fence,
        base_version=base_version,
        winners=tuple(task.attempt_id for task in winners),
        moves=moves,
        complete=decision.complete,
        **sum_segments(segments),
    )


class SegmentSums(TypedDict):
    """The fields of a ``SealOrder`` that its segments make."""

    digest: bytes
    segment_count: int
    row_count: int


def sum_segments(segments: Sequence[Segment]) -> SegmentSums:
    """The digest and the counts of a seal, which the log compares with what is staged."""
    return {
        "digest": combine_digests(segment.digest for segment in segments),
        "segment_count": len(segments),
        "row_count": sum(segment.row_count for segment in segments),
    }


def check_to_json(check: CheckResult) -> dict[str, object]:
    """A check as the sequence's details keep it, so that a recovered publication still shows its checks."""
    return {
        "name": check.name,
        "passed": check.passed,
        "blocking": check.blocking,
        "description": check.description,
        "figures": dict(check.figures),
    }
