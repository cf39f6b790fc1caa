"""Files of jobs that copy, as people write them."""

from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.jobs.copy.copy_spec import CopySpec
from gobblin_assets.jobs.copy.difference import Deletes
from gobblin_assets.jobs.programs import program_of
from gobblin_assets.spec.job_files import load_job, read_any_job_file, read_job_file
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.spec.selection import select_partitions

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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "can't be read: No such file or directory"),
        ("", "found nothing"),
        ("- a\n- b\n", "found a list of 2"),
        (f"{_JOB}finder: {{kind: stream, pattern: topics}}\n", "found 'topics'"),
    ],
)
def test_what_is_no_job_is_said_in_words(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "absent.yaml" if text is None else write(tmp_path, text)
    with pytest.raises(RejectedError) as refused:
        read_any_job_file(path)
    assert said in refused.value.message


def test_paths_may_be_texts_and_each_function_says_which_jobs_it_reads(tmp_path: Path) -> None:
    path = str(write(tmp_path, _JOB))
    assert isinstance(load_job(path), CopySpec)
    with pytest.raises(RejectedError, match="`load_job` reads them, and `run_job` runs them"):
        read_job_file(path)
    with pytest.raises(RejectedError, match="`load_job` also takes the path"):
        parse_any_job(path)  # type: ignore[arg-type]  # what people give


def test_a_file_set_that_is_not_there_is_looked_for_at_the_source(tmp_path: Path) -> None:
    (tmp_path / "in/topics/2026/01").mkdir(parents=True)
    places = f"source: {tmp_path}/in\ndestination: {tmp_path}/out\n"
    job = load_job(
        write(tmp_path, f"job: m\nkind: distcp\n{places}finder: {{kind: stream, pattern: 'topics/%Y/%m'}}\n")
    )
    datasets = program_of(job).read_datasets(job)
    with pytest.raises(
        RejectedError, match="no file set is there for the key '2026-02-01'; the source was searched"
    ) as refused:
        select_partitions(job, datasets, keys=["2026-02-01"], begun_by=None)
    assert refused.value.hint == "It has: 2026-01-01."


@pytest.mark.parametrize("written", ["12345678", "{a: 12345678}", "'a 12345678'"])
def test_what_stands_in_place_of_a_passphrases_variable_is_not_repeated(tmp_path: Path, written: str) -> None:
    text = f"{_JOB}defaults: {{converters: [{{kind: gpg_encrypt, passphrase_env: {written}}}]}}\n"
    with pytest.raises(RejectedError) as refused:
        read_any_job_file(write(tmp_path, text))
    assert refused.value.field == "defaults.converters[0].passphrase_env"
    assert "12345678" not in str(refused.value)
