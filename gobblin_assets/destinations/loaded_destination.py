"""Destinations that are no file systems: rows are loaded from staged files, and all other files stand on a disk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.published.port import RowsElsewhere
from gobblin_assets.commit.published.verification import Damage, Fault
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, PlaceGoneError
from gobblin_assets.destinations.posix import PosixDestination
from gobblin_assets.errors import GobblinError
from gobblin_assets.model.files import DataFile
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.destination import Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.state.leases import Lease


class RowsPlace(Protocol):
    """Where the rows of a job's datasets go. A value; it connects only where a method says so."""

    @property
    def marks(self) -> str:
        """Where the marks of lanes are, by a name."""
        ...

    def require(self) -> None:
        """Connect, and raise if rows can't be loaded."""
        ...

    def uri_of(self, urn: DatasetUrn) -> str:
        """Where the dataset's rows go, without a secret."""
        ...

    def make_step(
        self, urn: DatasetUrn, mark: MarkPlace, target: Target, files: Sequence[DataFile], *, is_marked: bool
    ) -> CommitStep:
        """The step that loads the files, whose names are full paths. ``is_marked``: as ``LoadBatch`` has it."""
        ...

    def find_mark(self, urn: DatasetUrn, mark: MarkPlace) -> LaneMark | None:
        """Connect. The lane's mark; None: nothing of the lane was ever loaded or given up."""
        ...

    def find_gone(self, urn: DatasetUrn, mark: MarkPlace) -> str | None:
        """Connect. Why rows, of which there are some, were loaded into another place than is there; None: it is the
        same, as far as can be told. ``mark``: of any lane.
        """
        ...

    def adopt(self, urn: DatasetUrn, marks: Mapping[MarkPlace, LaneMark], row_count: int) -> None:
        """Connect. Let what is there now go on behind the marks, and make it if it is not there.

        ``row_count``: of all rows that the log has; those of which no mark says anything count as loaded.
        """
        ...

    def count_loaded(self, marks: Mapping[DatasetUrn, MarkPlace]) -> Mapping[DatasetUrn, int]:
        """Connect. For each dataset, the rows that its lanes have loaded by their marks; ``marks``: of any lane."""
        ...

    def count_rows(self, urn: DatasetUrn) -> int | None:
        """Connect. How many rows are there, whoever wrote them; None: that can't be said."""
        ...


@dataclass(slots=True)
class LoadedDestination(PosixDestination):
    """``Destination`` of rows elsewhere. Files of rows are only staged; dead letters are published as files."""

    place: RowsPlace = field(kw_only=True)
    _marked: set[MarkPlace] = field(default_factory=set, init=False)
    """Marks that were seen: from then on they are there."""

    def bind(self) -> None:
        self.place.require()
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        PosixDestination.bind(self)

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        """Also the errors of those of whose rows the destination has fewer than the log."""
        errors = dict(PosixDestination.check_logs(self, leases))
        sound = leases.keys() - errors.keys()
        try:
            errors.update(self._find_behind(sound))
        except GobblinError as error:
            errors.update(dict.fromkeys(sound, error))
        return errors

    def _find_behind(self, urns: set[DatasetUrn]) -> Mapping[DatasetUrn, GobblinError]:
        # The log first: a load is at the destination before the log has it.
        found = {urn: self.stores.published.find_rows_elsewhere(self.job, urn) for urn in urns}
        published = {urn: rows.row_count for urn, rows in found.items() if rows is not None}
        loaded = self.place.count_loaded({urn: self._mark_of(urn, 0) for urn in published}) if published else {}
        errors: dict[DatasetUrn, GobblinError] = {}
        for urn, count in published.items():
            if count and (gone := self.place.find_gone(urn, self._mark_of(urn, 0))) is not None:
                errors[urn] = PlaceGoneError(gone, urn)
            elif loaded[urn] < count:
                errors[urn] = _behind(urn, self.place, loaded[urn], count)
        return errors

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return PosixDestination.uri_of(self, urn, role) if role is not Role.DATA else self.place.uri_of(urn)

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        data = [output for output in outputs if output.role is Role.DATA]
        steps = list(PosixDestination.steps_for(self, [each for each in outputs if each not in data], target))
        files = tuple(replace(file, name=f"{each.path}/{file.name}") for each in data for file in each.files)
        if files:
            mark = self._mark_of(target.urn, target.lane_number)
            is_marked = self._is_marked(target.urn, mark)
            steps.append(self.place.make_step(target.urn, mark, target, files, is_marked=is_marked))
        return steps

    def _is_marked(self, urn: DatasetUrn, mark: MarkPlace) -> bool:
        """Whether the lane has its mark. StorageMismatchError if marks of the dataset are missing."""
        if mark not in self._marked:
            found = self.place.find_mark(urn, mark)
            if found is not None and found.has_loaded:
                self._marked.add(mark)
            else:
                for error in self._find_behind({urn}).values():
                    raise error
        return mark in self._marked

    def adopt(self, urn: DatasetUrn, marks: Mapping[int, LaneMark], open_rows: int) -> None:
        """Let what is there now go on behind these marks of lanes, as ``RowsPlace.adopt``. Bound before.

        ``open_rows``: that are there, of publications that are not complete.
        """
        published = self.stores.published.find_rows_elsewhere(self.job, urn)
        row_count = open_rows + (published.row_count if published is not None else 0)
        self.place.adopt(urn, {self._mark_of(urn, number): mark for number, mark in marks.items()}, row_count)

    def find_unmarked(self, urn: DatasetUrn, lanes: Iterable[int]) -> set[int]:
        """The lanes among these whose mark says nothing of a load."""
        marks = {number: self.place.find_mark(urn, self._mark_of(urn, number)) for number in lanes}
        return {number for number, mark in marks.items() if mark is None or not mark.has_loaded}

    def _mark_of(self, urn: DatasetUrn, lane_number: int) -> MarkPlace:
        if self._identity is None:
            raise AssertionError("a destination is bound before anything else")
        return MarkPlace(self.place.marks, self._identity, self.job, urn, lane_number)


def _behind(urn: DatasetUrn, place: RowsPlace, loaded: int, published: int) -> StorageMismatchError:
    return StorageMismatchError(
        f"{urn} is stopped: the log has {published:,} rows of it in {place.uri_of(urn)}, and the marks in "
        f"{place.marks} say that {loaded:,} were loaded. It looks as if the destination were another one, or were "
        "restored from an older backup.",
        hint="Nothing was loaded. Name the right one, or restore it to where it was; or go on with what is there now, "
        f"without the rows that are gone: `gobblin-assets sink adopt JOB_FILE --dataset {urn}`.",
        urn=urn,
    )


def find_load_faults(
    place: RowsPlace,
    mark: MarkPlace,
    urn: DatasetUrn,
    published: RowsElsewhere | None,
    *,
    counts_rows: bool,
) -> Iterator[Fault]:
    """Compare the log with the marks, and on demand with the number of rows. ``mark``: of any lane of the dataset.

    ``published``: what the log had before.
    More rows than the log has are no fault: others may write there, and a load comes before its finish.
    """
    if published is None:
        return
    gone = place.find_gone(urn, mark) if published.row_count else None
    if gone is not None:
        yield Fault(published.uri, Damage.MISSING, gone)
    loaded = place.count_loaded({urn: mark})[urn]
    if loaded < published.row_count:
        detail = f"{published.row_count:,} rows were published, and the marks say that {loaded:,} were loaded"
        yield Fault(published.uri, Damage.MISSING, detail)
    found = place.count_rows(urn) if counts_rows else None
    if found is not None and found < published.row_count:
        yield Fault(published.uri, Damage.LENGTH, f"{found:,} rows, and {published.row_count:,} were published")
