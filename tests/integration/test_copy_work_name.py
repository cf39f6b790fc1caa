"""Files with the name of work directories: they are copied like any other, but not to the work directory's place."""

import json
from pathlib import Path
from typing import Any

import pytest

from gobblin_assets.destinations.claims import WORK_NAME
from gobblin_assets.errors import ErrorFamily, RejectedError
from tests.support import copy_lake
from tests.support.copy_lake import CopyLake, Open, files_of

lake = copy_lake.lake
job = copy_lake.job

WHOLE: dict[str, Any] = {"datasets": []}
NAMES = (f"albums/{WORK_NAME}", f"albums/deep/{WORK_NAME}")


def test_a_file_of_this_name_is_copied_changed_and_removed(lake: CopyLake, job: Open) -> None:
    for version in (1, 2):
        for name in NAMES:
            lake.write(name, version)
        assert not job().run().failed
        assert files_of(lake.tree) == files_of(lake.source)
    for name in NAMES:
        (lake.source / name).unlink()
    # It was the only one of its directory, which stands empty now.
    assert not job(deletes="ours").run(confirm_deletes=True).failed
    assert files_of(lake.tree) == files_of(lake.source)


def test_beside_a_file_of_this_name_a_tree_is_still_its_jobs_own(lake: CopyLake, job: Open) -> None:
    lake.write(NAMES[0], 1)
    assert not job().run().failed
    for place in ("albums", "albums/inner"):
        inner = {"job": "inner", "destination": f"{lake.root}/{place}", "datasets": [{"urn": "logs/app"}]}
        with pytest.raises(RejectedError, match="to which the job 'crash' copies"):
            job(inner).run()


@pytest.mark.parametrize("how", ["listed", "named"])
def test_at_the_root_of_the_destination_it_is_refused_by_name(lake: CopyLake, job: Open, how: str) -> None:
    lake.write(WORK_NAME, 1)
    options = WHOLE
    if how == "named":
        manifest = Path(lake.directory, "manifest.jsonl")
        manifest.write_text(json.dumps({"path": WORK_NAME}) + "\n")
        options = {**WHOLE, "finder": {"kind": "manifest", "path": str(manifest)}}
    for _run in range(2):
        (failed,) = job(options).run().failed
        assert failed.error_family is ErrorFamily.REJECTED
        assert f"source: the file {WORK_NAME} would be published as {lake.root}/{WORK_NAME}" in str(failed.error)
        assert not files_of(lake.tree)


def test_at_the_root_it_may_be_excluded_or_copied_below(lake: CopyLake, job: Open) -> None:
    lake.write(WORK_NAME, 1)
    assert not job(WHOLE, exclude=[f"/{WORK_NAME}"]).run().failed
    assert set(files_of(lake.tree)) == set(files_of(lake.source)) - {WORK_NAME}

    dataset = {"urn": "all", "path": "", "to": "all"}
    assert not job({"job": "below", "destination": f"{lake.directory}/other", "datasets": [dataset]}).run().failed
    assert files_of(Path(lake.directory, "other/all")) == files_of(lake.source)
