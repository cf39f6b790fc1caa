"""When a look at a file set gives another mark, on a real tree."""

import os
import time
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy import copy_assets
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.copy.program import PROGRAM
from gobblin_assets.jobs.copy.sameness import CLOCK_STEP_NS
from gobblin_assets.jobs.programs import SetId
from gobblin_assets.model.urn import DatasetUrn
from tests.support.copying import fill

PHOTOS = SetId(DatasetUrn("photos"), "")


def look(folder: Path, marker: str | None = None) -> str | None:
    places = {"source": str(folder / "in"), "destination": str(folder / "out")}
    options = {"job": "mirror", "kind": "distcp", "datasets": [{"urn": "photos"}], "trigger": {"marker": marker}}
    sets = PROGRAM.look_at_sets(read_copy({**options, **places}))
    assert list(sets.list_sets()) == [PHOTOS]
    return sets.find_mark(PHOTOS)


def test_names_that_come_go_or_are_replaced_change_the_mark(tmp_path: Path) -> None:
    assert look(tmp_path) is None
    kept = fill(tmp_path / "in/photos/deep/kept")
    marks = [look_later(tmp_path)]
    assert look(tmp_path) == marks[0]
    below = fill(tmp_path / "in/photos/deep/new")
    marks.append(look_later(tmp_path))
    fill(tmp_path / "beside").rename(kept)
    marks.append(look_later(tmp_path))
    below.unlink()
    marks.append(look_later(tmp_path))
    assert len(set(marks)) == 4


def look_later(folder: Path, marker: str | None = None) -> str | None:
    """When the clock has gone on since the last change."""
    time.sleep(2 * CLOCK_STEP_NS / 1e9)
    return look(folder, marker)


@pytest.mark.parametrize("marker", [None, "_SUCCESS"])
def test_what_is_written_again_within_the_second_of_its_time_changes_the_mark_later(
    tmp_path: Path, marker: str | None
) -> None:
    """As a file system with whole seconds has it: also if nothing else tells both versions apart."""
    place = fill(tmp_path / "in/photos/_SUCCESS") if marker else fill(tmp_path / "in/photos/a").parent
    now_s = int(time.time())
    os.utime(place, (now_s, now_s))
    first = look(tmp_path, marker)
    os.utime(place, (now_s, now_s))
    while time.time() < now_s + 2.2:
        time.sleep(0.05)

    later = look(tmp_path, marker)

    assert later not in (None, first)
    assert look(tmp_path, marker) == later


def test_a_manifest_s_lines_count_also_where_they_name_no_file_of_the_source(tmp_path: Path) -> None:
    kept = fill(tmp_path / "in/kept")
    os.utime(kept, (1, 1))
    manifest = tmp_path / "files.jsonl"
    finder = {"kind": "manifest", "path": str(manifest)}
    places = {"source": str(tmp_path / "in"), "destination": str(tmp_path / "out")}
    job = read_copy({"job": "mirror", "kind": "distcp", "finder": finder, **places})

    def look_by(*lines: str) -> str | None:
        manifest.write_text("\n".join(lines), encoding="utf-8")
        return PROGRAM.look_at_sets(job).find_mark(SetId(DatasetUrn("files"), ""))

    line, gone = '{"path": "kept"}', '{"path": "gone", "delete": true}'
    with_mode = '{"path": "kept", "attributes": {"mode": "0640"}}'
    marks = [look_by(line), look_by(with_mode), look_by(line, gone), look_by(gone)]
    assert len(set(marks)) == 4
    assert look_by(line) == marks[0]
    kept.unlink()
    assert (look_by(line), look_by(gone)) == (None, marks[3])


def test_with_a_marker_only_the_marker_counts(tmp_path: Path) -> None:
    fill(tmp_path / "in/photos/file")
    assert look(tmp_path, "done/_SUCCESS") is None
    fill(tmp_path / "in/photos/done/_SUCCESS")
    first = look_later(tmp_path, "done/_SUCCESS")
    fill(tmp_path / "in/photos/more")
    assert look(tmp_path, "done/_SUCCESS") == first
    fill(tmp_path / "in/photos/done/_SUCCESS", b"again")
    assert look(tmp_path, "done/_SUCCESS") not in (None, first)


def test_a_set_of_too_many_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_assets, "NAMES_PER_SET_MAX", 2)
    for name in "abc":
        fill(tmp_path / "in/photos" / name)
    with pytest.raises(RejectedError, match="Name a marker file"):
        look(tmp_path)
