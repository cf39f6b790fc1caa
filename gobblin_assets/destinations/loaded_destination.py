"""Destinations that are no file systems: rows are loaded from staged files, and all other files stand on a disk."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gobblin_assets.commit.destination import StorageMismatchError
from gobblin_assets.commit.published.published_port import RowsElsewhere
from gobblin_assets.commit.published.verification import Damage, Fault
from gobblin_assets.commit.steps import CommitStep
from gobblin_assets.commit.store import CommitLogReader
from gobblin_assets.destinations.files.rooted import Directories
from gobblin_assets.destinations.lane_marks import LaneMark, MarkPlace, PlaceGoneError
from gobblin_assets.destinations.rows_place import PlannedLoad, RowsPlace
from gobblin_assets.errors import GobblinError, RejectedError
from gobblin_assets.fs.network_files import StagingFiles
from gobblin_assets.fs.objects import HoldsObjects
from gobblin_assets.model.sequence_state import SequenceState
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import DatasetUrn, Role
from gobblin_assets.run.destination import DestinationRequest, Target
from gobblin_assets.run.job_kind import Output
from gobblin_assets.state.leases import Lease


@dataclass(slots=True)
class LoadedDestination(Directories):
    """``Destination`` of rows elsewhere. Files of rows are only staged; dead letters are published as files."""

    place: RowsPlace = field(kw_only=True)
    _marked: set[MarkPlace] = field(default_factory=set, init=False)
    """Marks that were seen: from then on they are there."""

    @property
    def loads_rows(self) -> bool:
        return True

    def bind(self) -> None:
        self.place.require()
        # Not by super(): a slotted dataclass is another class than the one that the compiler knows.
        Directories.bind(self)

    def check_logs(self, leases: Mapping[DatasetUrn, Lease]) -> Mapping[DatasetUrn, GobblinError]:
        """Also the errors of those of whose rows the destination has fewer than the log."""
        errors = dict(Directories.check_logs(self, leases))
        sound = leases.keys() - errors.keys()
        try:
            errors.update(self._find_behind(sound))
        except GobblinError as error:
            errors.update(dict.fromkeys(sound, error))
        return errors

    def _find_behind(self, urns: set[DatasetUrn]) -> Mapping[DatasetUrn, GobblinError]:
        # The log first: a load is at the destination before the log has it.
        found = {urn: self.request.stores.published.find_rows_elsewhere(self.job, urn) for urn in urns}
        published = {urn: rows.row_count for urn, rows in found.items() if rows is not None}
        loaded = self.place.count_loaded({urn: self._mark_of(urn, 0) for urn in published}) if published else {}
        errors: dict[DatasetUrn, GobblinError] = {}
        for urn, count in published.items():
            if count and (gone := self.place.find_gone(urn, self._mark_of(urn, 0))) is not None:
                errors[urn] = PlaceGoneError(gone, urn)
            elif loaded[urn] < count and not is_being_replaced(
                self.request.stores.commits, self.place, urn, self._mark_of(urn, 0)
            ):
                errors[urn] = _behind(urn, self.place, loaded[urn], count)
        return errors

    def refuse_replacement(self, urn: DatasetUrn, partition: str) -> None:
        if partition or not self.place.can_replace:
            what = f"the partition {partition!r} of {urn} was" if partition else f"{urn} was"
            raise RejectedError(
                f"{what} published before, and rows in {self.place.uri_of(urn)} are only added",
                field="into",
                hint="Append instead: extract: append_only with a watermark. To read it again as a whole, publish "
                "files, or empty the place and adopt it: `gobblin-assets sink adopt`.",
            )

    def uri_of(self, urn: DatasetUrn, role: Role) -> str:
        return Directories.uri_of(self, urn, role) if role is not Role.DATA else self.place.uri_of(urn)

    def steps_for(self, outputs: Sequence[Output], target: Target) -> Sequence[CommitStep]:
        """One step loads all rows of data together, so that a publication is there as a whole, or not at all."""
        data = [output for output in outputs if output.role is Role.DATA]
        steps = list(Directories.steps_for(self, [each for each in outputs if each not in data], target))
        files = tuple(replace(file, name=f"{each.path}/{file.name}") for each in data for file in each.files)
        if target.version is not None and (files or target.replaces):
            mark = self._mark_of(target.urn, target.lane_number)
            load = PlannedLoad(
                mark,
                target.version,
                str(target.sequence_id),
                files,
                is_marked=self._is_marked(target.urn, mark),
                replaces=target.replaces,
            )
            steps.append(self.place.make_step(target.urn, load))
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
        published = self.request.stores.published.find_rows_elsewhere(self.job, urn)
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


def open_loaded_destination(request: DestinationRequest, place: RowsPlace) -> LoadedDestination:
    """Rows go to ``place``; the root has the staged files. RejectedError where these could not be read again."""
    if isinstance(request.fs, HoldsObjects | StagingFiles):
        raise RejectedError(
            f"rows that are loaded elsewhere are staged on a disk, found the scheme {request.fs.scheme!r}",
            field="destination",
            hint="Name a directory that all workers see; only staged files and dead letters stand there.",
        )
    return LoadedDestination(request, place=place)


def is_being_replaced(log: CommitLogReader, place: RowsPlace, urn: DatasetUrn, mark: MarkPlace) -> bool:
    """Whether the newest rows took the place of all others, and the log does not count them yet.

    ``mark``: of lane 0, whose publications alone replace. Until one is DONE, the log has the rows of before.
    """
    found = place.find_mark(urn, mark) if place.can_replace else None
    if found is None or not found.recent:
        return False
    newest = SequenceId(uuid.UUID(found.recent[0]))
    known = log.find_known([newest]).get(newest)
    if known is None or not known.is_sealed or known.state is SequenceState.DONE:
        return False
    return log.get(newest).replaces


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
    log: CommitLogReader,
    place: RowsPlace,
    mark: MarkPlace,
    urn: DatasetUrn,
    published: RowsElsewhere | None,
    *,
    counts_rows: bool,
) -> Iterator[Fault]:
    """Compare the log with the marks, and on demand with the number of rows. ``mark``: of lane 0 of the dataset.

    ``published``: what the log had before.
    More rows than the log has are no fault: others may write there, and a load comes before its finish.
    """
    if published is None or is_being_replaced(log, place, urn, mark):
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
