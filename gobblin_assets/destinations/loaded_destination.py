"""Destinations that are no file systems: rows are loaded from staged files, and all other files stand on a disk."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.published.port import RowsElsewhere
from gobblin_assets.commit.published.verification import Damage, Fault
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.destinations.lane_marks import MarkPlace
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

    def make_step(self, urn: DatasetUrn, mark: MarkPlace, target: Target, files: Sequence[DataFile]) -> CommitStep:
        """The step that loads the files, whose names are full paths."""
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
        return {
            urn: _behind(urn, self.place, loaded[urn], count) for urn, count in published.items() if loaded[urn] < count
        }

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return PosixDestination.uri_of(self, urn, role) if role is not Role.DATA else self.place.uri_of(urn)

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        data = [output for output in outputs if output.role is Role.DATA]
        steps = list(PosixDestination.steps_for(self, [each for each in outputs if each not in data], target))
        files = tuple(replace(file, name=f"{each.path}/{file.name}") for each in data for file in each.files)
        if files:
            steps.append(self.place.make_step(target.urn, self._mark_of(target.urn, target.lane_number), target, files))
        return steps

    def _mark_of(self, urn: DatasetUrn, lane_number: int) -> MarkPlace:
        if self._identity is None:
            raise AssertionError("a destination is bound before anything else")
        return MarkPlace(self.place.marks, self._identity, self.job, urn, lane_number)


def _behind(urn: DatasetUrn, place: RowsPlace, loaded: int, published: int) -> StorageMismatchError:
    return StorageMismatchError(
        f"{urn} is stopped: the log has {published:,} rows of it in {place.uri_of(urn)}, and the marks in "
        f"{place.marks} say that {loaded:,} were loaded. It looks as if the destination were another one, or were "
        "restored from an older backup.",
        hint="Nothing was loaded. Name the right one, or restore it to where it was.",
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
    loaded = place.count_loaded({urn: mark})[urn]
    if loaded < published.row_count:
        detail = f"{published.row_count:,} rows were published, and the marks say that {loaded:,} were loaded"
        yield Fault(published.uri, Damage.MISSING, detail)
    found = place.count_rows(urn) if counts_rows else None
    if found is not None and found < published.row_count:
        yield Fault(published.uri, Damage.LENGTH, f"{found:,} rows, and {published.row_count:,} were published")
