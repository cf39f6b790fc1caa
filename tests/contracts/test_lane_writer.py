"""What a lane writes is cut at whole epochs, and a cut has exactly the rows between its positions."""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from gobblin_assets.errors import CorruptionError, RejectedError, RetryableError
from gobblin_assets.fs.posix import PosixFileSystem
from gobblin_assets.jobs.sink.lane_files import LaneFiles, LaneFormat, PlacedRows
from gobblin_assets.jobs.sink.lane_writer import Cut, LaneWriter, VnodeSpan
from gobblin_assets.jobs.sink.sink_rules import RollPolicy
from gobblin_assets.model.files import FileFormat
from gobblin_assets.model.urn import Role
from gobblin_assets.rows.new_files import FilesInDirectory, NewFile, NewFiles
from gobblin_assets.sources.log_port import Barrier, StreamChunk, UpdateVnodeBitmap
from tests.support.fake_log import FakeLog, FakeReader
from tests.support.lanes import COLUMNS, EACH, NEVER, Lane, barrier, got, rows


def expected(log: FakeLog, spans: Mapping[str, VnodeSpan]) -> Counter[tuple[str, int]]:
    return Counter(
        (row["vnode"], row["n"])
        for vnode, span in spans.items()
        for batch in log.rows_of(vnode, span.start, span.end)
        for row in batch.to_pylist()
    )


def make_log(seed: int, vnodes: Sequence[str] = ("a", "b", "c"), epochs: int = 25) -> FakeLog:
    chance = random.Random(seed)
    log, number = FakeLog(vnodes, COLUMNS), 0
    for _epoch in range(epochs):
        for vnode in vnodes:
            for _row in range(chance.choice((0, 0, 1, 4, 9))):
                log.append(vnode, rows(vnode, number))
                number += 1
            if chance.random() < 0.2:
                log.skip(vnode)
        log.end_epoch(is_checkpoint=chance.random() < 0.7, after_s=chance.choice((0.1, 1, 40)))
    log.end_epoch()
    return log


def feed(lane: Lane, reader: FakeReader, items: int = 1 << 30) -> Iterable[Cut]:
    """The cuts of up to so many items, until the log ends."""
    left = items
    while left > 0 and any(reader.measure_lag().values()):
        for item in reader.read(wait_s=0):
            left -= 1
            match item:
                case StreamChunk():
                    lane.writer.write_batch(item.vnode, item.chunk)
                    lane.writer.try_commit()
                case Barrier():
                    if (cut := lane.writer.barrier(item)) is not None:
                        yield cut
                case UpdateVnodeBitmap():
                    pass
            if left == 0:
                break


@pytest.mark.parametrize("policy", [EACH, RollPolicy(rows_max=20), RollPolicy(bytes_max=3000), RollPolicy(age_s=60)])
@pytest.mark.parametrize("seed", range(4))
def test_each_cut_has_exactly_the_rows_between_its_positions(tmp_path: Path, seed: int, policy: RollPolicy) -> None:
    log = make_log(seed)
    lane, reader = Lane(tmp_path, policy), log.open_reader(seed)
    starts = dict.fromkeys(log.vnodes, 0)
    reader.assign(starts)
    lane.writer.assign(starts)
    cuts = [*feed(lane, reader)]
    if (last := lane.writer.commit()) is not None:
        cuts.append(last)
    at = dict(starts)
    for cut in cuts:
        for vnode, span in cut.spans.items():
            assert span.start == at[vnode] < span.end
            at[vnode] = span.end
        assert lane.rows_of(cut) == expected(log, cut.spans)
        assert cut.opened_at <= cut.at
    assert at == log.ends()


@pytest.mark.parametrize("seed", range(12))
def test_lanes_that_die_and_read_again_lose_no_row_and_double_none(tmp_path: Path, seed: int) -> None:
    """What is sealed is kept, and everything behind it is read again, in other chunks, by other lanes."""
    chance, log = random.Random(seed), make_log(seed)
    sealed = dict.fromkeys(log.vnodes, 0)
    published: Counter[tuple[str, int]] = Counter()
    policy = chance.choice((EACH, RollPolicy(rows_max=15), RollPolicy(age_s=30)))
    kills = 0
    for life in range(500):
        if sealed == log.ends():
            break
        lane, reader = Lane(tmp_path / str(life), policy), log.open_reader(1000 * seed + life)
        mine = chance.sample(log.vnodes, chance.randint(1, len(log.vnodes)))
        positions = {vnode: sealed[vnode] for vnode in mine}
        reader.assign(positions)
        lane.writer.assign(positions)
        cuts = [*feed(lane, reader, items=chance.randint(1, 25))]
        if lane.writer.can_commit and (last := lane.writer.commit()) is not None:
            cuts.append(last)
        for cut in cuts:
            published += lane.rows_of(cut)
            for vnode, span in cut.spans.items():
                assert span.start == sealed[vnode]
                sealed[vnode] = span.end
                log.drop(vnode, span.end)
        lane.writer.discard()
        kills += 1
    assert sealed == log.ends()
    assert kills > 3
    log_again = make_log(seed)
    assert published == expected(log_again, {vnode: VnodeSpan(0, end) for vnode, end in log_again.ends().items()})


def test_the_fake_log_cuts_anew_and_gives_nothing_that_was_truncated() -> None:
    log = make_log(3)
    shapes = set()
    for seed in range(3):
        reader = log.open_reader(seed)
        reader.assign(dict.fromkeys(log.vnodes, 0))
        found, shape = Counter[tuple[str, int]](), []
        while any(reader.measure_lag().values()):
            for item in reader.read(wait_s=0):
                if isinstance(item, StreamChunk):
                    shape.append((item.vnode, item.chunk.num_rows))
                    found.update((row["vnode"], row["n"]) for row in item.chunk.to_pylist())
        assert found == expected(log, {vnode: VnodeSpan(0, end) for vnode, end in log.ends().items()})
        shapes.add(tuple(shape))
    assert len(shapes) == 3
    first = log.open_reader(0)
    first.assign({"a": 0})
    place = next(
        item.positions["a"] for item in first.read(wait_s=0) if isinstance(item, Barrier) and item.positions["a"]
    )
    first.truncate({"a": place})
    with pytest.raises(RejectedError):
        first.rewind("a", 0)
    first.rewind("a", place)


def test_small_epochs_gather_until_the_flag_of_try_commit(tmp_path: Path) -> None:
    lane = Lane(tmp_path, RollPolicy(rows_max=3))
    lane.writer.assign({"a": 0, "b": 5})
    lane.writer.write_batch("a", rows("a", 0))
    lane.writer.try_commit()
    assert lane.writer.barrier(barrier(1, a=1, b=5)) is None
    lane.writer.write_batch("b", rows("b", 5, 6))
    lane.writer.try_commit()
    assert lane.writer.barrier(barrier(2, is_checkpoint=False, a=1, b=7)) is None, "no checkpoint"
    cut = got(lane.writer.barrier(barrier(3, a=1, b=7)))
    assert cut.spans == {"a": VnodeSpan(0, 1), "b": VnodeSpan(5, 7)}
    assert (cut.epoch, len(cut.files), cut.row_counts) == (3, 1, {Role.DATA: 3})
    assert lane.rows_of(cut) == Counter([("a", 0), ("b", 5), ("b", 6)])
    # The flag is down again.
    lane.writer.write_batch("a", rows("a", 1))
    lane.writer.try_commit()
    assert lane.writer.barrier(barrier(4, a=2, b=7)) is None


def test_a_cut_starts_where_the_last_one_ended_whatever_was_read_without_rows(tmp_path: Path) -> None:
    """The vnode passed a barrier at which nothing may be cut, and then the lane got another one."""
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 5, "b": 0}, starts={"a": 3})
    assert lane.writer.barrier(barrier(1, is_checkpoint=False, a=5, b=0)) is None
    assert lane.writer.commit() is None
    lane.writer.write_batch("a", rows("a", 5))
    cut = got(lane.writer.barrier(barrier(2, a=6, b=0)))
    assert cut.spans == {"a": VnodeSpan(3, 6)}
    assert lane.rows_of(cut) == Counter([("a", 5)])


def test_age_is_that_of_the_rows_and_not_of_quiet_barriers_before(tmp_path: Path) -> None:
    lane = Lane(tmp_path, RollPolicy(age_s=50))
    lane.writer.assign({"a": 0})
    for epoch in range(1, 30):
        assert lane.writer.barrier(barrier(epoch, a=0)) is None
    lane.writer.write_batch("a", rows("a", 0))
    assert lane.writer.barrier(barrier(30, at_s=78, a=1)) is None
    cut = got(lane.writer.barrier(barrier(31, at_s=79, a=1)))
    assert (cut.at - cut.opened_at).total_seconds() == 50


def test_a_position_that_moved_far_without_rows_is_cut_soon(tmp_path: Path) -> None:
    lane = Lane(tmp_path, RollPolicy(age_s=50, span_max=1000))
    lane.writer.assign({"a": 7, "b": 0})
    assert lane.writer.barrier(barrier(1, at_s=0, a=7, b=0)) is None
    assert lane.writer.barrier(barrier(2, at_s=4, a=9007, b=0)) is None
    assert got(lane.writer.barrier(barrier(3, at_s=5, a=9008, b=0))).spans == {"a": VnodeSpan(7, 9008)}
    lane.writer.write_batch("b", rows("b", 0))
    assert lane.writer.barrier(barrier(4, at_s=30, a=99000, b=1)) is None, "rows wait for their own bounds"


def test_no_row_behind_the_barrier_of_its_own_vnode_is_cut(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 0, "b": 0})
    lane.writer.write_batch("a", rows("a", 0))
    lane.writer.write_batch("b", rows("b", 0))
    assert lane.writer.barrier(barrier(1, a=1)) is None, "b is in the middle of an epoch"
    assert not lane.writer.can_commit
    with pytest.raises(CorruptionError, match="'b'"):
        lane.writer.commit()
    cut = got(lane.writer.barrier(barrier(2, b=1)))
    assert lane.rows_of(cut) == Counter([("a", 0), ("b", 0)])


def test_a_forced_commit_ends_at_the_last_checkpoint(tmp_path: Path) -> None:
    lane = Lane(tmp_path, NEVER)
    lane.writer.assign({"a": 0, "b": 0})
    assert lane.writer.commit() is None
    lane.writer.write_batch("a", rows("a", 0))
    with pytest.raises(CorruptionError, match="neither cut"):
        lane.writer.assign({"a": 0})
    assert lane.writer.barrier(barrier(1, a=1, b=3)) is None
    assert lane.writer.barrier(barrier(2, is_checkpoint=False, a=4, b=3)) is None
    cut = got(lane.writer.commit())
    assert cut.spans == {"a": VnodeSpan(0, 1), "b": VnodeSpan(0, 3)}
    assert (cut.epoch, lane.rows_of(cut)) == (1, Counter([("a", 0)]))
    assert lane.writer.commit() is None
    assert lane.writer.barrier(barrier(3, a=4, b=3)) is None
    empty = got(lane.writer.commit())
    assert (empty.spans, empty.files, empty.row_counts) == ({"a": VnodeSpan(1, 4)}, (), {})
    lane.writer.assign({"c": 9})


def test_positions_without_rows_are_cut_after_a_while(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 0})
    assert lane.writer.barrier(barrier(1, at_s=0, a=1)) is None
    assert lane.writer.barrier(barrier(2, at_s=59, a=2)) is None
    cut = got(lane.writer.barrier(barrier(3, at_s=60, a=3)))
    assert (cut.spans, cut.files) == ({"a": VnodeSpan(0, 3)}, ())


@pytest.mark.parametrize(
    ("going_back", "said"),
    [
        (barrier(2, a=3, b=7), "'a' goes back from position 4 to 3"),
        (barrier(1, a=4, b=7), "goes back from epoch 1 to 1"),
        (barrier(2, a=4, b=5), "'b' had 2 rows in an epoch that ends where it began, at 5"),
        (barrier(2, x=1), "'x'"),
    ],
)
def test_a_barrier_that_goes_back_is_refused(tmp_path: Path, going_back: Barrier, said: str) -> None:
    lane = Lane(tmp_path, NEVER)
    lane.writer.assign({"a": 0, "b": 0})
    lane.writer.barrier(barrier(1, a=4, b=5))
    lane.writer.write_batch("b", rows("b", 5, 6))
    with pytest.raises(CorruptionError, match=said):
        lane.writer.barrier(going_back)


def test_rows_of_a_foreign_vnode_are_refused(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 0})
    with pytest.raises(CorruptionError, match="'b'"):
        lane.writer.write_batch("b", rows("b", 1))


@pytest.mark.parametrize(
    ("schema", "field_name"),
    [
        (pa.schema([("vnode", pa.string()), ("n", pa.int32())]), "columns.n"),
        (pa.schema([("vnode", pa.string()), ("n", pa.int64()), ("more", pa.int64())]), "columns.more"),
        (pa.schema([("vnode", pa.string())]), "columns.n"),
        (pa.schema([("n", pa.int64()), ("vnode", pa.string())]), "columns.n"),
    ],
)
def test_other_columns_are_refused_by_name_and_do_no_harm(tmp_path: Path, schema: pa.Schema, field_name: str) -> None:
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 0})
    lane.writer.write_batch("a", rows("a", 0))
    with pytest.raises(RejectedError) as refused:
        lane.writer.write_batch("a", pa.RecordBatch.from_pylist([], schema))
    assert refused.value.field == field_name
    assert lane.rows_of(got(lane.writer.barrier(barrier(1, a=1)))) == Counter([("a", 0)])


def test_columns_that_differ_only_in_what_may_be_null_are_written(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.writer.assign({"a": 0})
    strict = pa.schema([pa.field("vnode", pa.string(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    lane.writer.write_batch("a", rows("a", 0))
    lane.writer.write_batch("a", pa.record_batch([["a"], [1]], schema=strict))
    assert lane.rows_of(got(lane.writer.barrier(barrier(1, a=2)))) == Counter([("a", 0), ("a", 1)])


def test_roles_and_directories_have_files_of_their_own(tmp_path: Path) -> None:
    def place(role: Role, batch: pa.RecordBatch) -> Iterable[PlacedRows]:
        for row in range(batch.num_rows):
            yield PlacedRows(role, f"n={batch.column('n')[row].as_py() % 2}", batch.slice(row, 1))

    lane = Lane(tmp_path, place_rows=place)
    lane.writer.assign({"a": 0})
    lane.writer.write_batch("a", rows("a", 0, 1, 2))
    lane.writer.write_batch("a", rows("a", 3), Role.DEAD_LETTER)
    cut = got(lane.writer.barrier(barrier(1, a=4)))
    assert sorted((each.role, each.partition_path, each.finished.file.row_count) for each in cut.files) == [
        (Role.DATA, "n=0", 2),
        (Role.DATA, "n=1", 1),
        (Role.DEAD_LETTER, "n=1", 1),
    ]
    assert lane.rows_of(cut, Role.DEAD_LETTER) == Counter([("a", 3)])


def test_more_directories_than_files_may_be_open_are_written_as_well(tmp_path: Path) -> None:
    lane_format = LaneFormat({Role.DATA: COLUMNS}, FileFormat.PARQUET, "zstd", files_open_max=3)
    lane = Lane(
        tmp_path,
        lane_format=lane_format,
        place_rows=lambda role, batch: [PlacedRows(role, f"n={batch['n'][0]}", batch)],
    )
    lane.writer.assign({"a": 0})
    for number in range(20):
        lane.writer.write_batch("a", rows("a", number % 7))
    open_now = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(path.resolve())]
    assert len(open_now) == 3
    cut = got(lane.writer.barrier(barrier(1, a=20)))
    assert lane.rows_of(cut) == Counter(("a", number % 7) for number in range(20))


@dataclass
class FailingFiles:
    """Every ``fails_at``-th file can't be finished."""

    files: NewFiles
    fails_at: int
    made: int = 0

    def create(self, partition_path: str, name: str) -> NewFile:
        self.made += 1
        file = self.files.create(partition_path, name)
        return FailingFile(file) if self.made == self.fails_at else file


@dataclass
class FailingFile:
    file: NewFile

    path = property(lambda self: self.file.path)
    stream = property(lambda self: self.file.stream)

    def finish(self, row_count: int, size_bytes: int) -> None:
        self.file.finish(row_count, size_bytes)
        raise RetryableError("the disk is full")

    def discard(self) -> None:
        self.file.discard()


def test_a_cut_that_fails_half_way_is_never_cut_later(tmp_path: Path) -> None:
    files = FailingFiles(FilesInDirectory(PosixFileSystem(), str(tmp_path)), fails_at=2)
    writer = LaneWriter(
        LaneFiles(LaneFormat({Role.DATA: COLUMNS}, FileFormat.PARQUET, "zstd"), lambda role: files),
        NEVER,
        place_rows=lambda role, batch: [PlacedRows(role, f"n={batch['n'][0]}", batch)],
    )
    writer.assign({"a": 0})
    for number in range(3):
        writer.write_batch("a", rows("a", number))
    writer.barrier(barrier(1, a=3))
    with pytest.raises(RetryableError):
        writer.commit()
    with pytest.raises(CorruptionError, match="discarded"):
        writer.commit()
    with pytest.raises(CorruptionError, match="discarded"):
        writer.write_batch("a", rows("a", 3))
    writer.discard()
    writer.assign({"a": 0})
    writer.write_batch("a", rows("a", 0, 1, 2, 3))
    writer.barrier(barrier(1, a=4))
    assert got(writer.commit()).row_counts == {Role.DATA: 4}


def test_discarded_files_are_closed_and_stay(tmp_path: Path) -> None:
    lane = Lane(tmp_path, NEVER)
    lane.writer.assign({"a": 0})
    lane.writer.write_batch("a", rows("a", 0))
    lane.writer.discard()
    assert len([*(tmp_path / Role.DATA).iterdir()]) == 1
    assert not [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(path.resolve())]
    with pytest.raises(CorruptionError):
        lane.writer.barrier(barrier(1, a=1))


def test_text_and_parquet_differ_in_nothing_that_a_cut_says(tmp_path: Path) -> None:
    lane_format = LaneFormat({Role.DATA: COLUMNS}, FileFormat.JSON, "gzip")
    lane = Lane(tmp_path, lane_format=replace(lane_format, held_bytes_max=1))
    lane.writer.assign({"a": 0})
    lane.writer.write_batch("a", rows("a", 0, 1))
    lane.writer.write_batch("a", rows("a", 2))
    (file,) = got(lane.writer.barrier(barrier(1, a=3))).files
    assert file.finished.file.row_count == 3
    assert file.finished.file.name.endswith(".json.gz")
