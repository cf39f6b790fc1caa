"""Job files that are too large, too deep, of another kind, or no YAML: refused soon, in one line, with the fix."""

import time
from pathlib import Path
from typing import Final

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.spec.job_files import read_any_job_file
from gobblin_assets.spec.job_kinds import DATASETS_MAX
from gobblin_assets.spec.job_parsing import parse_any_job
from gobblin_assets.spec.yaml_files import DEPTH_MAX, FILE_BYTES_MAX, VALUES_MAX, read_yaml

ANSWER_S_MAX: Final = 5.0
HEAD: Final = "job: shop\nsource: {connection: sales}\ndestination: /lake\ndatasets:\n"
LAUGHS: Final = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


def refuse(path: Path, content: bytes) -> str:
    """The one line of the refusal, without the path."""
    path.write_bytes(content)
    begun = time.process_time()
    with pytest.raises(RejectedError) as refused:
        read_any_job_file(path)
    assert time.process_time() - begun < ANSWER_S_MAX
    said = str(refused.value)
    assert refused.value.hint
    assert "\n" not in said
    return said.replace(str(path), "FILE").removeprefix("job file: ")


BROKEN: Final[dict[str, tuple[bytes, str]]] = {
    "60 MB": (
        b"job: shop\n# " + b"x" * 60_000_000,
        (
            f"FILE has more than {FILE_BYTES_MAX >> 20} MiB, which no job file has. Give the path of a job's YAML, or "
            "divide the job into several jobs."
        ),
    ),
    "200,000 datasets": (
        (HEAD + "".join(f"- {{urn: t{n}}}\n" for n in range(200_000))).encode(),
        (
            f"FILE has more than {VALUES_MAX:,} values (what an alias repeats counts each time). Divide the job into "
            "several jobs, or write `defaults:` once."
        ),
    ),
    "more datasets than a job has": (
        (HEAD + "".join(f"- {{urn: t{n}}}\n" for n in range(DATASETS_MAX + 1))).encode(),
        (
            "datasets: expected at most 10,000 datasets, found 10,001. Divide the job into several jobs, or let its "
            "source find them (`include`; of copies, `finder`)."
        ),
    ),
    "a billion laughs": (
        LAUGHS.encode(),
        (
            f"FILE has more than {VALUES_MAX:,} values (what an alias repeats counts each time). Divide the job into "
            "several jobs, or write `defaults:` once."
        ),
    ),
    "a group in itself": (
        b"job: &all {again: *all}",
        "line 1 of FILE repeats the group that it is in, without end. Write *all outside of &all.",
    ),
    "brackets without end": (
        b"[" * 1_000_000,
        f"line 1 of FILE has groups within groups, more than {DEPTH_MAX} deep. Is it a job's YAML? Close its brackets.",
    ),
    "groups without end": (
        b"".join(b" " * n + b"a:\n" for n in range(1_000)),
        (
            f"line {DEPTH_MAX + 1} of FILE has groups within groups, more than {DEPTH_MAX} deep. Is it a job's YAML? "
            "Close its brackets."
        ),
    ),
    "UTF-16": ("job: shop".encode("utf-16"), "FILE is a text in UTF-16. Save the file as UTF-8."),
    "Latin-1": (
        "job: caf\u00e9".encode("latin-1"),
        "FILE is no text in UTF-8: byte 8 is 0xe9. Give the path of a job's YAML, and save it as UTF-8.",
    ),
    "a picture": (
        b"\x89PNG\r\n\x1a\n",
        "FILE is no text in UTF-8: byte 0 is 0x89. Give the path of a job's YAML, and save it as UTF-8.",
    ),
    "a text with NUL": (
        b"job: \0shop",
        "FILE is no YAML: control characters are not allowed. Save the file as plain text.",
    ),
    "tabs": (
        b"job: shop\nsource:\n\tconnection: sales",
        (
            "line 3 of FILE is no YAML: while scanning for the next token: found character that cannot start any "
            "token. Indent with spaces, not with tabs."
        ),
    ),
    "a value that begins with an at": (
        b"job: @shop",
        (
            "line 1 of FILE is no YAML: while scanning for the next token: found character that cannot start any "
            "token. Write the value in quotes."
        ),
    ),
    "a colon in a value": (
        b"job: shop\ndescription: sales: all of them",
        (
            "line 2 of FILE is no YAML: mapping values are not allowed in this context. "
            'Write a value with ": " in it in quotes, and a space behind each dash.'
        ),
    ),
    "a dash without a space": (
        b"datasets:\n  -urn: a\n   extract: b",
        (
            "line 3 of FILE is no YAML: mapping values are not allowed in this context. "
            'Write a value with ": " in it in quotes, and a space behind each dash.'
        ),
    ),
    "a star": (
        b"job: shop\nsource: {connection: sales, include: [*]}",
        (
            "line 2 of FILE is no YAML: while scanning an alias: did not find expected alphabetic or numeric "
            "character. Write a value that begins with * in quotes."
        ),
    ),
    "a pattern with a star": (
        b"include: *orders",
        "line 1 of FILE is no YAML: found undefined alias. Write a value that begins with * in quotes.",
    ),
    "an open bracket": (
        b"job: shop\nroles: [data\nsource: {connection: sales}",
        (
            "line 3 of FILE is no YAML: while parsing a flow sequence: did not find expected ',' or ']'. "
            "Close the bracket, and write commas between its values."
        ),
    ),
    "an open brace": (
        b"job: shop\nsource: {connection: sales\ndestination: /lake",
        (
            "line 3 of FILE is no YAML: while parsing a flow mapping: did not find expected ',' or '}'. "
            "Close the brace, and write commas between its options."
        ),
    ),
    "an open quote": (
        b'job: "shop\nsource: {connection: sales}',
        (
            "line 2 of FILE is no YAML: while scanning a quoted scalar: found unexpected end of stream. "
            "Close the quotes."
        ),
    ),
    "an option that is indented less": (
        b"source:\n   type: jdbc\n  connection: sales",
        (
            "line 3 of FILE is no YAML: while parsing a block mapping: did not find expected key. "
            "Indent the options of a group by the same number of spaces."
        ),
    ),
    "two documents": (
        b"job: shop\n---\njob: other",
        (
            "line 2 of FILE is no YAML: expected a single document in the stream: but found another document. "
            "Write one job in a file, without ---."
        ),
    ),
    "a template outside of a component": (
        b"destination: {{ env.LAKE }}",
        (
            "line 1 of FILE is no YAML: while constructing a mapping: found unhashable key. "
            "Write a value that begins with a brace in quotes."
        ),
    ),
    "a day that no month has": (
        b"job: shop\ndatasets:\n- partitions: {kind: daily, start: 2026-02-30}",
        "line 3 of FILE is no YAML: day is out of range for month. Correct it.",
    ),
    "an object of Python": (
        b"job: !!python/object/apply:os.getcwd []",
        (
            "line 1 of FILE is no YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.getcwd'. Write the value in quotes, or without its tag."
        ),
    ),
    "nothing": (
        b"# a comment",
        (
            "expected a job's options in FILE, found nothing. Begin with `job: <name>`, or with a component's `type:` "
            "and `attributes:`."
        ),
    ),
    "a list of jobs": (
        b"- job: shop",
        (
            "expected a job's options in FILE, found a list of 1. Begin with `job: <name>`, or with a component's "
            "`type:` and `attributes:`."
        ),
    ),
    "a component without attributes": (
        b"type: gobblin_assets.dagster.component.GobblinJobComponent",
        (
            "expected a job's options in FILE, found nothing. Begin with `job: <name>`, or with a component's `type:` "
            "and `attributes:`."
        ),
    ),
}


@pytest.mark.parametrize(("content", "answer"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_no_job_file_is_refused_soon_and_in_one_line(tmp_path: Path, content: bytes, answer: str) -> None:
    assert refuse(tmp_path / "shop.yaml", content) == answer


def test_a_folder_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    for path, reason in ((tmp_path, "Is a directory"), (tmp_path / "none.yaml", "No such file or directory")):
        with pytest.raises(RejectedError) as refused:
            read_any_job_file(path)
        assert str(refused.value) == (f"job file: {path} can't be read: {reason}. Correct the path, or make the file.")


def test_a_job_of_the_most_datasets_is_read_soon(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    options = "extract: append_only, watermark: {column: at}"
    path.write_text(HEAD + "".join(f"- {{urn: public.t{n}, {options}}}\n" for n in range(DATASETS_MAX)), "utf-8")
    begun = time.process_time()
    job = read_any_job_file(path)
    assert time.process_time() - begun < ANSWER_S_MAX
    assert len(getattr(job, "datasets", ())) == DATASETS_MAX


def test_a_program_gives_no_more_datasets_either() -> None:
    job = {"job": "mirror", "kind": "distcp", "source": "/in", "destination": "/out"}
    with pytest.raises(RejectedError, match="at most 10,000 datasets, found 200,000"):
        parse_any_job({**job, "datasets": [{"urn": f"t{n}"} for n in range(200_000)]})


def test_aliases_within_bounds_and_a_byte_order_mark_are_read() -> None:
    text = "\ufeffdefaults: &plain {a: [1, 2]}\nmore: [*plain, *plain]\n"
    plain = {"a": [1, 2]}
    assert read_yaml(text, Path("job.yaml")) == {"defaults": plain, "more": [plain, plain]}
