"""Mistakes of a first day, each with the one line that answers it: the field, what was expected, and the fix."""

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from gobblin_assets.cli import main
from gobblin_assets.errors import RejectedError
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.spec.job_parsing import parse_job


def a_job(**options: object) -> dict[str, object]:
    return {
        "job": "shop",
        "source": {"connection": "sales"},
        "destination": "/data/lake",
        "datasets": [{"urn": "public.orders"}],
        **options,
    }


def a_dataset(**options: object) -> dict[str, object]:
    return a_job(datasets=[{"urn": "public.orders", "extract": "append_only", **options}])


MISTAKES: dict[str, tuple[dict[str, object], str]] = {
    "the name of a database for a kind": (
        a_job(source={"type": "postgres", "connection": "sales"}),
        (
            "source.type: expected a kind of source of jdbc, kafka, postgres_log, spark_stream; found 'postgres'. "
            "Did you mean jdbc (its tables) or postgres_log (their changes)?"
        ),
    ),
    "a misspelt kind": (
        a_job(source={"type": "kafak", "connection": "sales"}),
        (
            "source.type: expected a kind of source of jdbc, kafka, postgres_log, spark_stream; found 'kafak'. "
            "Did you mean kafka?"
        ),
    ),
    "files as a kind of rows": (
        a_job(source={"type": "s3", "connection": "sales"}),
        (
            "source.type: expected a kind of source of jdbc, kafka, postgres_log, spark_stream; found 's3'. "
            "Did you mean a copy (kind: distcp)?"
        ),
    ),
    "a date of another country": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "monthly", "start": "01/01/2026"}),
        "datasets[0].partitions.start: expected a date; found '01/01/2026'. Write it as 2026-01-31.",
    ),
    "seconds in words": (
        a_job(retire_grace_s="2 days"),
        "retire_grace_s: expected a number; found '2 days'. Write a number of seconds, such as 600.",
    ),
    "a window in words": (
        a_dataset(watermark={"column": "at", "late_window": "ten minutes"}),
        (
            "datasets[0].watermark.late_window: expected a number; found 'ten minutes'. "
            "Write a number, such as 600 (seconds, of a column of times)."
        ),
    ),
    "bytes in words": (
        a_dataset(writer={"file_bytes_max": "1 GB"}),
        (
            "datasets[0].writer.file_bytes_max: expected a whole number; found '1 GB'. "
            "Write a number of bytes, such as 1073741824, or 1e9."
        ),
    ),
    "an option of datasets": (
        a_job(writer={"file_bytes_max": "1 GB"}),
        "writer: is not an option. It is an option of a dataset: write it there, or below defaults for all datasets.",
    ),
    "an option of the job": (
        a_dataset(parallelism=3),
        "datasets[0].parallelism: is not an option. It is an option of the job: write it beside datasets.",
    ),
    "a part of a whole": (
        a_dataset(quality={"quarantine_fraction_max": "few"}),
        "datasets[0].quality.quarantine_fraction_max: expected a number; found 'few'. Write a share, such as 0.05.",
    ),
}


@pytest.mark.parametrize(("job", "answer"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_job_is_answered_in_one_line(job: Mapping[str, object], answer: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_job(job)
    assert str(refused.value) == answer


def test_a_variable_in_a_path_is_not_filled_in() -> None:
    with pytest.raises(RejectedError) as refused:
        open_file_system("${LAKE}/rows")
    assert str(refused.value) == (
        "destination: expected a path as it is, found '${LAKE}/rows'. "
        "Variables are not filled in: write what they stand for."
    )


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean run?"),
        (("commit", "abandn"), "No such command 'abandn'. Did you mean abandon?"),
        (("xyzzy",), "No such command 'xyzzy'."),
    ],
)
def test_a_misspelt_command_is_answered(words: tuple[str, ...], answer: str) -> None:
    done = CliRunner().invoke(main, list(words))
    assert done.exit_code == 2
    assert done.output.splitlines()[-1] == f"Error: {answer}"
