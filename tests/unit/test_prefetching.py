"""The next batch is read while the caller works on the one before, and never after the block."""

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from gobblin_assets.rows.arrow_writer import prefetching

WAIT_S = 150


def batch(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": [number]})


def numbers_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [each.column("n")[0].as_py() for each in batches]


@pytest.mark.parametrize("ahead", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_all_batches_come_in_order(count: int, ahead: int) -> None:
    with prefetching((batch(number) for number in range(count)), ahead=ahead) as batches:
        assert numbers_of(batches) == list(range(count))


def test_no_more_are_read_ahead_than_asked_for() -> None:
    asked: list[int] = []

    def read() -> Iterator[pa.RecordBatch]:
        for number in range(9):
            asked.append(number)
            yield batch(number)

    with prefetching(read(), ahead=3) as batches:
        next(batches)
    assert asked in ([0], [0, 1], [0, 1, 2], [0, 1, 2, 3])


def test_the_second_is_read_before_the_first_is_done_with() -> None:
    second_asked = threading.Event()

    def read() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        second_asked.set()
        yield batch(1)

    with prefetching(read()) as batches:
        next(batches)
        assert second_asked.wait(WAIT_S)


def test_an_error_comes_behind_the_batches_before_it() -> None:
    def read() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        raise OSError("cut")

    with prefetching(read()) as batches:
        assert next(batches).num_rows == 1
        with pytest.raises(OSError, match="cut"):
            next(batches)


def test_the_block_ends_behind_the_read_that_is_under_way() -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def read() -> Iterator[pa.RecordBatch]:
        yield batch(0)
        begun.set()
        go_on.wait(WAIT_S)
        ended.set()
        yield batch(1)

    def fail() -> None:
        with prefetching(read()) as batches:
            next(batches)
            begun.wait(WAIT_S)
            threading.Timer(0.05, go_on.set).start()
            raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        fail()
    assert ended.is_set()
