"""The files at given names, sorted in memory or in temporary files: the same as by one look at every change."""

import errno
import random
import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.commit.published.current import list_current, sort_current
from gobblin_assets.commit.published.published_port import PublishedSegment
from gobblin_assets.commit.segment import encode_segments
from gobblin_assets.destinations.fixed_names.named_steps import NamedStep, PlaceFile, RemoveFile, ReplaceFile
from gobblin_assets.errors import RetryableError
from gobblin_assets.model.files import FileIdentity
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import Role

# Names whose order differs with the directory's slash, and some that are not ASCII.
NAMES = [f"/out/{directory}/{name:03}" for directory in ("a", "a-b", "a b", "ä", "z/z") for name in range(80)]


def _publish(chance: random.Random, version: int) -> list[PublishedSegment]:
    steps: list[NamedStep] = []
    for number, path in enumerate(chance.sample(NAMES, chance.choice([1, 3, 60]))):
        new = FileIdentity(version, chance.choice([None, number]), chance.choice([None, version]), None)
        place = ("/out/.gobblin/attempt", path, str(number))
        match chance.randrange(3):
            case 0:
                steps.append(PlaceFile(*place, "w0", new))
            case 1:
                steps.append(ReplaceFile(*place, "w0", new, old=FileIdentity(7), exchanges=True))
            case _:
                steps.append(RemoveFile(*place, FileIdentity(7)))
    segments = encode_segments(steps, role=Role.DATA, partition="", steps_max=20)
    counts = (0, 0, 0, None)
    return [
        PublishedSegment(SequenceId(uuid.UUID(int=version)), version, "", Role.DATA, "file:/out", *counts, *payload)
        for payload in ((each.payload, each.digest) for each in segments)
    ]


@pytest.mark.parametrize(("rows_at_once", "block_rows"), [(100_000, 4_096), (100_000, 7), (128, 3), (200, 50)])
def test_each_name_has_what_the_newest_publication_left_there(rows_at_once: int, block_rows: int) -> None:
    chance = random.Random(rows_at_once + block_rows)
    newest_first = [segment for version in range(60, 0, -1) for segment in _publish(chance, version)]
    expected = {file.path: file.identity for _segment, file in list_current(newest_first)}
    assert 100 < len(expected) < len(NAMES)
    current = sort_current(iter(newest_first), rows_at_once=rows_at_once, block_rows=block_rows)
    assert list(current.run.firsts) == sorted(current.run.firsts)
    asked = [*sorted(NAMES), *chance.sample(NAMES, 50), "", "/out/a", "/out/zz"]
    assert [current.find(path) for path in asked] == [expected.get(path) for path in asked]
    loaded: list[int] = []
    current = sort_current(newest_first, rows_at_once=rows_at_once, block_rows=block_rows)
    load = current.run.load
    current.run = replace(current.run, load=lambda number: (loaded.append(number), load(number))[1])
    assert [path for path in sorted(NAMES) if current.find(path) is not None] == sorted(expected)
    assert loaded == list(range(len(current.run.firsts)))


def test_nothing_was_published_or_all_of_it_was_removed() -> None:
    place = ("/out/.gobblin/attempt", "/out/a", "1")
    removed = encode_segments([RemoveFile(*place, FileIdentity(7))], role=Role.DATA, partition="")[0]
    segment = PublishedSegment(
        SequenceId(uuid.uuid4()), 1, "", Role.DATA, "file:/out", 0, 0, 0, None, removed.payload, removed.digest
    )
    assert [sort_current(each).find("/out/a") for each in ([], [segment])] == [None, None]
    assert sort_current([segment] * 100, rows_at_once=100).find("/out/a") is None


def test_temporary_files_have_no_name_and_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    chance = random.Random(1)
    segments = [segment for version in range(30, 0, -1) for segment in _publish(chance, version)]
    assert sort_current(segments, rows_at_once=128).run.firsts
    assert list(tmp_path.iterdir()) == []

    def refuse() -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(RetryableError, match=r"No space left on device.*TMPDIR"):
        sort_current(segments, rows_at_once=128)
