"""Changes of mutants that lose files, or that don't check where files are."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from gobblin_assets.commit import execution, folding, markers, relocation
from gobblin_assets.commit.destination import Verdict
from gobblin_assets.commit.segment import decode_segment, encode_segments
from gobblin_assets.destinations.files import rooted
from gobblin_assets.run import task
from tests.support.numbered_rows import NumberedRows


def loses_a_file(times: float = float("inf")) -> AbstractContextManager[Any]:
    """The last file of a write is gone before it is counted; this happens ``times`` times."""
    extract = NumberedRows.do
    left = [times]

    def mutant(self: Any, order: Any) -> Any:
        found = extract(self, order)
        if not found.outputs or left[0] <= 0:
            return found
        left[0] -= 1
        *others, last = found.outputs
        kept = replace(last, files=last.files[:-1])
        return replace(found, outputs=(*others, kept))

    return mock.patch.object(NumberedRows, "do", mutant)


@contextmanager
def lost_and_not_counted() -> Iterator[None]:
    with loses_a_file(), mock.patch.object(task, "require_whole", _do_nothing):
        yield


@contextmanager
def bound_to_no_root() -> Iterator[None]:
    with (
        mock.patch.object(relocation.Place, "_is_here", return_value=True),
        mock.patch.object(markers, "_find_misplaced", _do_nothing),
    ):
        yield


@contextmanager
def never_looked() -> Iterator[None]:
    """The file at the root always agrees with the log."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(relocation, "decide", return_value=Verdict.IDENTIFY))
        stack.enter_context(mock.patch.object(markers, "_find_misplaced", _do_nothing))
        for module in (execution, rooted):
            stack.enter_context(mock.patch.object(module, "require_identity", _do_nothing))
        yield


def _do_nothing(*_arguments: Any, **_options: Any) -> None:
    """Does nothing, whatever it promises."""


def forgets_a_file(parts: Any) -> Any:
    """A fold leaves out one of the steps that it joins, and counts it all the same."""
    whole = _JOIN(parts)
    steps = decode_segment(whole.payload, whole.digest)
    if len(steps) == 1:
        return whole
    (short,) = encode_segments(steps[1:], role=whole.role, partition=whole.partition)
    return replace(whole, payload=short.payload, digest=short.digest)


_JOIN = folding._join


def remove_by_name(self: Any, path: str, _identity: Any) -> bool:
    Path(path).unlink(missing_ok=True)
    return True
