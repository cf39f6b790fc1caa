"""Tasks of a Spark job that copies, as executors run them: tries never share a name, and each failure is a row."""

import marshal
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gobblin_assets.fs.posix_named import PosixNamedFiles
from gobblin_assets.jobs.copy.file_staging import find_finished
from gobblin_assets.jobs.copy.transfer.bins import Bin, plan_bins
from gobblin_assets.jobs.copy.transfer.local import plan_work
from gobblin_assets.jobs.copy.transfer.spark_task import (
    BinOrder,
    copy_bins,
    find_version,
    name_file_system,
    probe_executor,
    sum_counts,
    write_plan,
)
from gobblin_assets.jobs.copy.transfer.transfer_port import TransferProgress
from tests.support.copying import file_items, fill, order_of

NUMBERS = [pa.RecordBatch.from_pydict({"id": [0]})]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(3):
        fill(tmp_path / f"source/f{number}", b"content" * number)
    return tmp_path / "source"


@pytest.fixture
def orders(root: Path, tmp_path: Path) -> Path:
    return make_orders(root, tmp_path)


def make_orders(
    root: Path,
    tmp_path: Path,
    file_system: str | None = None,
    split_bytes: int | None = None,
    *,
    journals: bool = False,
) -> Path:
    attempt, bins = tmp_path / "attempt", plan_bins(file_items(root), 1, split_bytes)
    order = replace(order_of(root, attempt, bins), journals=journals)
    place = attempt / "orders"
    place.mkdir()
    found: Bin = bins[0]
    planned = BinOrder(found.writer, plan_work(order, found), file_system or name_file_system(str(place)))
    write_plan(str(place), 0, planned)
    return place


def answer(orders: Path) -> dict[str, Any]:
    (batch,) = copy_bins(str(orders), iter(NUMBERS))
    (row,) = batch.to_pylist()
    return {**row, "rows": marshal.loads(row["rows"])}


def test_each_try_of_a_task_writes_to_a_directory_of_its_own(orders: Path, root: Path) -> None:
    first, second = answer(orders), answer(orders)
    assert first["try"] != second["try"]
    for each in (first, second):
        assert each["lost"] is None
        assert [(item, entry, failure) for item, entry, _staged, failure in each["rows"]] == [
            (n, 0, None) for n in range(3)
        ]
        for number in range(3):
            copied = orders / each["try"] / str(number + 1)
            assert copied.read_bytes() == (root / f"f{number}").read_bytes()
    assert sorted(path.name for path in orders.parent.iterdir()) == ["orders", "w000"]
    assert sum_counts(str(orders)) == TransferProgress(3, 0, 21), "tries of one bin are counted twice"


def test_a_part_of_a_file_is_written_by_one_try_only(root: Path, tmp_path: Path) -> None:
    """The first try may be writing still: what it writes late would stand where the second was checked."""
    orders = make_orders(root, tmp_path, "another machine's", split_bytes=7)
    splits = orders.parent / "splits"
    splits.mkdir()
    (splits / "3").write_bytes(bytes(14))
    first = answer(orders)
    assert [(row[0], row[3]) for row in first["rows"]] == [(0, None), (1, None), (2, None), (3, None)]
    assert (splits / "3").read_bytes() == (root / "f2").read_bytes()
    (splits / "3").write_bytes(bytes(14))
    second = answer(orders)
    assert [row[0] for row in second["rows"]] == [0, 1, 2, 3]
    assert [row[3] is None for row in second["rows"]] == [True, True, False, False]
    assert "another try" in second["rows"][2][3][1]
    assert (splits / "3").read_bytes() == bytes(14)


def test_what_a_try_finished_before_its_driver_died_is_found(root: Path, tmp_path: Path) -> None:
    orders = make_orders(root, tmp_path, journals=True)
    tried = answer(orders)["try"]
    found = find_finished(PosixNamedFiles(), [str(orders.parent)], print)
    assert {each.path for each in found.values()} == {str(orders / tried / str(number)) for number in (1, 2, 3)}


def test_on_another_machine_a_task_makes_its_files_durable_itself(root: Path, tmp_path: Path) -> None:
    found = answer(make_orders(root, tmp_path, "another machine's"))
    assert found["lost"] is None
    assert len(found["rows"]) == 3


def test_a_file_that_can_not_be_copied_is_a_row(orders: Path, root: Path) -> None:
    (root / "f1").unlink()
    found = answer(orders)
    assert found["lost"] is None
    assert [row[3] is None for row in found["rows"]] == [True, False, True]
    assert "gone since it was planned" in found["rows"][1][3][1]
    assert sum_counts(str(orders)) == TransferProgress(2, 1, 14)


def test_a_task_that_does_not_see_the_attempt_makes_nothing_and_says_so(orders: Path) -> None:
    captured = orders.parent.rename(orders.parent.with_name("captured"))
    found = answer(orders)
    assert "can't reach" in found["lost"]
    assert found["rows"] == []
    assert not orders.parent.exists()
    assert sorted(path.name for path in (captured / "orders").iterdir()) == ["0.plan"]


def test_a_try_whose_order_was_withdrawn_ends(orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is taken away after the try has begun."""
    begin = Path.mkdir

    def begin_and_withdraw(path: Path) -> None:
        begin(path)
        (orders / "0.plan").unlink()

    monkeypatch.setattr(Path, "mkdir", begin_and_withdraw)
    assert "withdrawn" in answer(orders)["lost"]


def test_a_probe_tells_what_an_executor_sees(orders: Path, root: Path) -> None:
    (orders / "token").write_text("a secret")
    seen = _probe(orders, root)
    assert (seen["token"], seen["source"], seen["version"]) == ("a secret", root.stat().st_ino, find_version())
    shutil.rmtree(orders)
    shutil.rmtree(root)
    blind = _probe(orders, root)
    assert (blind["token"], blind["source"]) == (None, None)


def _probe(orders: Path, root: Path) -> dict[str, Any]:
    (batch,) = probe_executor(str(orders), str(root), iter(NUMBERS))
    (row,) = batch.to_pylist()
    return dict(row)
