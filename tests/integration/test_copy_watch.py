"""When a look at a file set gives another mark, on a real tree."""

from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy import watched_sets
from gobblin_assets.jobs.copy.parsing import read_copy
from gobblin_assets.jobs.copy.program import PROGRAM
from gobblin_assets.jobs.file_sets import SetId
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
    marks = [look(tmp_path)]
    assert look(tmp_path) == marks[0]
    below = fill(tmp_path / "in/photos/deep/new")
    marks.append(look(tmp_path))
    fill(tmp_path / "beside").rename(kept)
    marks.append(look(tmp_path))
    below.unlink()
    marks.append(look(tmp_path))
    assert len(set(marks)) == 4


def test_a_manifest_s_lines_count_also_where_they_name_no_file_of_the_source(tmp_path: Path) -> None:
    kept = fill(tmp_path / "in/kept")
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
    first = look(tmp_path, "done/_SUCCESS")
    fill(tmp_path / "in/photos/more")
    assert look(tmp_path, "done/_SUCCESS") == first
    fill(tmp_path / "in/photos/done/_SUCCESS", b"again")
    assert look(tmp_path, "done/_SUCCESS") not in (None, first)


def test_a_set_of_too_many_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_sets, "NAMES_PER_SET_MAX", 2)
    for name in "abc":
        fill(tmp_path / "in/photos" / name)
    with pytest.raises(RejectedError, match="Name a marker file"):
        look(tmp_path)
