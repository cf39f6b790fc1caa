"""Files of jobs that copy, as people write them."""

from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.jobs.copy.difference import Deletes
from gobblin_assets.spec.job_files import read_any_job_file

_JOB = "job: mirror\nkind: distcp\nsource: /data/in\ndestination: /data/out\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "mirror.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("word", ["off", "no", "false", "'off'"])
def test_no_deletes_may_be_written_without_quotes(tmp_path: Path, word: str) -> None:
    """YAML takes some words for booleans."""
    job = read_any_job_file(write(tmp_path, f"{_JOB}defaults: {{deletes: {word}}}\n"))
    assert isinstance(job, CopySpec)
    assert job.defaults.deletes is Deletes.OFF


def test_deletes_that_are_on_say_which(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="'ours' or 'all'") as refused:
        read_any_job_file(write(tmp_path, f"{_JOB}datasets: [{{urn: a, deletes: on}}]\n"))
    assert refused.value.field == "datasets[0].deletes"
