"""What the tasks of a write tell the driver of their rows: texts of some that were set aside, and nothing else."""

import json
import pickle
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from gobblin_assets.destinations.files.rooted import FinalNames
from gobblin_assets.fs.object_work import ObjectWorkFiles
from gobblin_assets.model.state import SequenceId
from gobblin_assets.model.urn import parse_job_name, parse_urn
from gobblin_assets.rows.attempt_files import ALONE, AttemptFiles, AttemptPlace
from gobblin_assets.rows.hidden_columns import ROLE_COLUMN
from gobblin_assets.rows.row_quality import FAILED_TYPE
from gobblin_assets.rows.row_samples import FAILED_COLUMN, open_sampler
from gobblin_assets.rows.task_writer import TaskWrite, WrittenFile, write_rows
from gobblin_assets.run.destination import Target
from gobblin_assets.spec.job_spec import DatasetSpec
from tests.support.object_store import MemoryObjects, ObjectStore

PLACES = 10
ROWS_PER_PLACE = 4
TEXT = "a long text that no driver needs" * 1_000
SCHEMA = t.StructType([
    t.StructField("n", t.LongType()), t.StructField("text", t.StringType()), t.StructField(FAILED_COLUMN, FAILED_TYPE),
])  # fmt: skip


def write(samples: str) -> tuple[Sequence[WrittenFile], int]:
    """The answers of a task whose files have one row each, and how many bytes they are. Texts differ by their role."""
    spec = DatasetSpec.model_validate({
        "urn": "public.t",
        "table": "public.t",
        "primary_key": ["n"],
        "quality": {"rows": [{"name": "short", "check": "text = ''", "on_failure": "err_file"}], "samples": samples},
    })  # fmt: skip
    columns = (ROLE_COLUMN, "place")
    names = FinalNames(
        "/bucket/lake",
        parse_job_name("shop"),
        Target(parse_urn("public.t"), "", SequenceId(uuid.UUID(int=1)), 1),
        foresees_etags=True,
    )
    types = {each.name: each.dataType.simpleString() for each in SCHEMA.fields}
    places = {ALONE: AttemptPlace("/bucket/lake/a", names, spec.writer, open_sampler(spec, types, columns))}
    open_files = partial(AttemptFiles, ObjectWorkFiles(MemoryObjects(ObjectStore())), places, is_shared=False)
    answers = list(write_rows(TaskWrite(open_files, columns, 1, "zstd"), [make_batch()]))
    found = [pickle.loads(content) for each in answers for content in each.column(0).to_pylist()]
    assert {type(each) for each in found} == {WrittenFile}, found
    return found, sum(each.nbytes for each in answers)


def make_batch() -> pa.RecordBatch:
    rows: list[Mapping[str, Any]] = [
        {
            "n": place * ROWS_PER_PLACE + n,
            "text": f"{role} {TEXT}",
            FAILED_COLUMN: ["short"] if role == "quarantine" else [],
            "gobblin_partition": json.dumps([role, str(place)]),
        }
        for role in ("data", "quarantine")
        for place in range(PLACES)
        for n in range(ROWS_PER_PLACE)
    ]
    return pa.RecordBatch.from_pylist(rows)


@pytest.mark.parametrize("samples", ["masked", "values", "none"])
def test_the_driver_gets_a_few_short_texts_of_rows_that_were_set_aside(samples: str) -> None:
    files, size_bytes = write(samples)

    texts = [text for each in files for text in each.samples]
    assert len(files) == 2 * PLACES * ROWS_PER_PLACE
    assert len(texts) == (0 if samples == "none" else 3)
    assert all(text.startswith("short: n: ") for text in texts)
    assert not [each for each in files if each.samples and "quarantine" not in each.partition_path]
    assert [TEXT[:50] in text for text in texts] == [samples == "values"] * len(texts)
    assert size_bytes < 1_000 * len(files)
