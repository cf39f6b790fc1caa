"""A person's text becomes a job, or one error with the field, the expected value and the fix."""

from collections.abc import Mapping

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.extract import ExtractType
from gobblin_assets.model.partition import PartitionKind
from gobblin_assets.spec.job_kinds import register_job_kind
from gobblin_assets.spec.job_parsing import parse_job, resolve_datasets
from gobblin_assets.spec.job_spec import JobSpec


def _job(*datasets: Mapping[str, object], **options: object) -> dict[str, object]:
    return {
        "job": "shop",
        "source": {"type": "jdbc", "connection": "shop_db"},
        "destination": "/data/lake",
        "datasets": list(datasets),
        **options,
    }


def _orders(**options: object) -> dict[str, object]:
    return {"urn": "public.orders", **options}


TIMED = {"column": "placed_at"}
MONTHLY = {"kind": "monthly", "start": "2013-01-01"}

REFUSED: dict[str, tuple[dict[str, object], str, str]] = {
    # name: (job, field, part of the message or of the hint)
    "not a mapping of options": (_job(_orders(watermark=5)), "datasets[0].watermark", "found 5"),
    "unknown option": (_job(_orders(watermrk=TIMED)), "datasets[0].watermrk", "Did you mean 'watermark'"),
    "unknown option of the job": (_job(_orders(), paralelism=3), "paralelism", "'parallelism'"),
    "unknown option, nothing close": (_job(_orders(zzzz=1)), "datasets[0].zzzz", "Known: casts, columns"),
    "missing": (_job(_orders(watermark={"zone": "UTC"})), "datasets[0].watermark.column", "is missing"),
    "a misspelt choice": (
        _job(_orders(partitions={"kind": "mothly"})),
        "datasets[0].partitions.kind",
        "Did you mean 'monthly'",
    ),
    "a number for a text": (
        _job(_orders(partitions={"kind": "static", "keys": [1], "column": "c"})),
        "datasets[0].partitions.keys[0]",
        "in quotes",
    ),
    "a year for a date": (
        _job(_orders(watermark=TIMED, partitions={"kind": "monthly", "start": 2013})),
        "datasets[0].partitions.start",
        "expected a date, found 2013. Write it as 2026-01-31.",
    ),
    "a word for a date": (
        _job(_orders(watermark=TIMED, partitions={"kind": "monthly", "start": "soon"})),
        "datasets[0].partitions.start",
        "found 'soon'",
    ),
    "a kind that nobody offers": (_job(_orders(), kind="replication"), "kind", "gobblin_assets.job_kinds"),
    "a misspelt kind": (_job(_orders(), kind="distcpy"), "kind", "Did you mean distcp?"),
    "a kind that is no word": (_job(_orders(), kind=["ingest"]), "kind", "Known: distcp, ingest"),
    "job name": (_job(_orders(), job="a-b"), "job", "letters, digits or underscores"),
    "relative destination": (_job(_orders(), destination="lake"), "destination", "absolute path"),
    "destination of an unknown scheme": (_job(_orders(), destination="ftp://x/y"), "destination", "schemes"),
    "umask that takes from the owner": (_job(_orders(), umask="0o777"), "umask", "expected at most 077, found 777"),
    "umask that is no octal number": (_job(_orders(), umask="0o9"), "umask", "found '0o9'"),
    "a policy that nothing vouches for": (
        _job(_orders(), commit_policy="partial"),
        "commit_policy",
        "expected full or successful; found 'partial'. No source says how far a failed task came. Write successful",
    ),
    "a policy that does not exist": (_job(_orders(), commit_policy="half"), "commit_policy", "'full' or 'successful'"),
    "no dataset": (_job(), "datasets", "found none"),
    "exclude without include": (
        _job(_orders(), source={"connection": "db", "exclude": ["public.*"]}),
        "source.exclude",
        "no include",
    ),
    "urn in the defaults": (_job(_orders(), defaults={"urn": "x"}), "defaults.urn", "one dataset"),
    "dataset without a name": (_job({"extract": "snapshot_only"}), "datasets[0].urn", "urn, table"),
    "empty urn": (_job(_orders(), {"urn": ""}), "datasets[1].urn", "empty"),
    "two of one urn": (_job(_orders(), _orders(table="public.o")), "datasets[1].urn", "datasets[0]"),
    "a table that is another's urn": (_job(_orders(), {"table": "public.orders"}), "datasets[1].urn", "datasets[0]"),
    "append without positions": (
        _job(_orders(extract="append_only")),
        "datasets[0].watermark",
        "snapshot_only",
    ),
    "snapshot_append without positions": (_job(_orders(extract="snapshot_append")), "datasets[0].watermark", "none"),
    "late window without a key": (
        _job(_orders(watermark={**TIMED, "late_window": 3600})),
        "datasets[0].primary_key",
        "late_window",
    ),
    "snapshot of NULLs in a pure append": (
        _job(_orders(extract="append_only", watermark={**TIMED, "on_null": "snapshot_only"})),
        "datasets[0].watermark.on_null",
        "snapshot_append",
    ),
    "zone of a watermark": (
        _job(_orders(watermark={**TIMED, "zone": "Europe/Berlinn"})),
        "datasets[0].watermark.zone",
        "Did you mean 'Europe/Berlin'",
    ),
    "zone that is a folder": (
        _job(_orders(watermark=TIMED, partitions={**MONTHLY, "zone": "Europe"})),
        "datasets[0].partitions.zone",
        "expected a time zone",
    ),
    "start that is no position": (
        _job(_orders(watermark={**TIMED, "type": "long", "start": "2013-01-01"})),
        "datasets[0].watermark.start",
        "1200",
    ),
    "composite without a second column": (
        _job(_orders(watermark={**TIMED, "type": "composite"})),
        "datasets[0].watermark.key_column",
        "composite",
    ),
    "second column of a plain type": (
        _job(_orders(watermark={**TIMED, "type": "timestamp", "key_column": "id"})),
        "datasets[0].watermark.type",
        "composite",
    ),
    "positions of many numbers": (
        _job(_orders(watermark={**TIMED, "type": "multi_long"})),
        "datasets[0].watermark.type",
        "found 'multi_long'",
    ),
    "key that is not read": (
        _job(_orders(columns=["a"], primary_key=["id"])),
        "datasets[0].primary_key",
        "Add it to datasets[0].columns",
    ),
    "watermark that is not read": (
        _job(_orders(columns=["a"], watermark=TIMED)),
        "datasets[0].watermark.column",
        "'placed_at' is not among columns",
    ),
    "no columns at all": (_job(_orders(columns=[])), "datasets[0].columns", "empty list"),
    "key named twice": (_job(_orders(primary_key=["id", "ID"])), "datasets[0].primary_key", "'id' and 'ID'"),
    "windows without positions": (_job(_orders(partitions=MONTHLY)), "datasets[0].watermark", "windows"),
    "windows without a start": (
        _job(_orders(watermark=TIMED, partitions={"kind": "daily"})),
        "datasets[0].partitions.start",
        "2013-01-01",
    ),
    "windows of numbers": (
        _job(_orders(watermark={**TIMED, "type": "long"}, partitions=MONTHLY)),
        "datasets[0].watermark.type",
        "times",
    ),
    "start inside a window": (
        _job(_orders(watermark=TIMED, partitions={"kind": "monthly", "start": "2013-01-15"})),
        "datasets[0].partitions.start",
        "'2013-02-01'",
    ),
    "week that starts on Monday": (
        _job(_orders(watermark=TIMED, partitions={"kind": "weekly", "start": "2013-01-07"})),
        "datasets[0].partitions.start",
        "'2013-01-13'",
    ),
    "end before the start": (
        _job(_orders(watermark=TIMED, partitions={**MONTHLY, "end": "2012-01-01"})),
        "datasets[0].partitions.end",
        "after 2013-01-01",
    ),
    "static without keys": (
        _job(_orders(partitions={"kind": "static", "column": "c"})),
        "datasets[0].partitions.keys",
        "need it",
    ),
    "static without a column": (
        _job(_orders(partitions={"kind": "static", "keys": ["a"]})),
        "datasets[0].partitions.column",
        "need it",
    ),
    "static keys twice": (
        _job(_orders(partitions={"kind": "static", "keys": ["a", "a"], "column": "c"})),
        "datasets[0].partitions.keys",
        "'a' and 'a'",
    ),
    "static key that Dagster refuses": (
        _job(_orders(partitions={"kind": "static", "keys": ["a", "b\n"], "column": "c"})),
        "datasets[0].partitions.keys[1]",
        "Dagster refuses",
    ),
    "dynamic without a name": (
        _job(_orders(partitions={"kind": "dynamic", "column": "c"})),
        "datasets[0].partitions.name",
        "need it",
    ),
    "options of another kind": (
        _job(_orders(partitions={"kind": "dynamic", "column": "c", "name": "n", "keys": ["a"]})),
        "datasets[0].partitions.keys",
        "dynamic knows column, name",
    ),
    "options of no kind": (_job(_orders(partitions={"keys": ["a"]})), "datasets[0].partitions.keys", "no options"),
    "two converters in one link": (
        _job(_orders(converters=[{"drop": ["a"], "where": "b"}])),
        "datasets[0].converters[0]",
        "found drop, where",
    ),
    "an empty link": (_job(_orders(converters=[{}])), "datasets[0].converters[0]", "found none"),
    "a link that does nothing": (
        _job(_orders(converters=[{"select": ["a"]}, {"drop": []}])),
        "datasets[0].converters[1].drop",
        "found nothing",
    ),
    "two columns renamed to one": (
        _job(_orders(converters=[{"rename": {"a": "x", "b": "X"}}])),
        "datasets[0].converters[0].rename",
        "'x' and 'X'",
    ),
    "a function without a module": (
        _job(_orders(converters=[{"function": "tidy"}])),
        "datasets[0].converters[0].function",
        "package.module:name",
    ),
    "row policies of one name": (
        _job(_orders(quality={"rows": [{"name": "a", "check": "x"}, {"name": "a", "check": "y"}]})),
        "datasets[0].quality.rows",
        "'a' and 'a'",
    ),
    "an empty check": (
        _job(_orders(quality={"rows": [{"name": "a", "check": " "}]})),
        "datasets[0].quality.rows[0].check",
        "amount >= 0",
    ),
    "a range without a share": (
        _job(_orders(quality={"tasks": [{"name": "a", "kind": "row_count_range"}]})),
        "datasets[0].quality.tasks[0].range_fraction",
        "0.01",
    ),
    "figures of another kind": (
        _job(_orders(quality={"tasks": [{"name": "a", "kind": "schema_compatible", "min_row_count": 1}]})),
        "datasets[0].quality.tasks[0].min_row_count",
        "has no min_row_count",
    ),
    "bounds exchanged": (
        _job(_orders(quality={"tasks": [{"name": "a", "kind": "row_count", "min_row_count": 2, "max_row_count": 1}]})),
        "datasets[0].quality.tasks[0].max_row_count",
        "Exchange",
    ),
    "time_column alone": (
        _job(_orders(writer={"time_column": "t"})),
        "datasets[0].writer.time_pattern",
        "belong together",
    ),
    "time_pattern alone": (
        _job(_orders(writer={"time_pattern": "yyyy"})),
        "datasets[0].writer.time_column",
        "belong together",
    ),
    "week years": (
        _job(_orders(writer={"time_column": "t", "time_pattern": "YYYY-MM"})),
        "datasets[0].writer.time_pattern",
        "'Y'",
    ),
    "directory named twice": (
        _job(_orders(writer={"partition_by": ["day"], "time_column": "t", "time_pattern": "dd", "time_name": "Day"})),
        "datasets[0].writer.partition_by",
        "'day' and 'Day'",
    ),
    "roles without data": (_job(_orders(), roles=["quarantine"]), "roles", "[data]"),
    "waits that shrink": (
        _job(_orders(), retry={"back_off_s": 5, "back_off_max_s": 1}),
        "retry.back_off_max_s",
        "at least back_off_s",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_with_its_field_and_the_fix(name: str) -> None:
    job, field, said = REFUSED[name]
    with pytest.raises(RejectedError) as refused:
        parse_job(job)
    assert refused.value.field == field, str(refused.value)
    assert said in str(refused.value)
    assert refused.value.hint


def test_a_rule_broken_by_the_defaults_is_found_at_the_dataset_that_inherits_it() -> None:
    with pytest.raises(RejectedError) as refused:
        parse_job(_job(_orders(watermark=TIMED), {"urn": "b"}, defaults={"partitions": MONTHLY}))
    assert refused.value.field == "datasets[1].watermark"


@pytest.mark.parametrize(
    "job",
    [
        _job(_orders(), source={"connection": "jdbc:postgresql://u:hunter2@h/db"}),
        _job(_orders(), source={"connection": {"url": "jdbc:x", "password": "hunter2"}}),
        _job(_orders(), source={"connection": "db", "password": "hunter2"}),
        _job(_orders(), source="jdbc:postgresql://u:hunter2@h/db"),
        _job(_orders(), destination="s3://key:hunter2@bucket/x"),
        _job(_orders(), destination=["hunter2"]),
        _job(_orders(password="hunter2")),
        _job(_orders(), password="hunter2"),
    ],
)
def test_no_message_repeats_what_may_be_a_secret(job: dict[str, object]) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_job(job)
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(refused.value.fields)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(RejectedError) as refused:
        parse_job(_job(_orders(watermrk=1, extract="appendd"), {"urn": 5}))
    said = str(refused.value)
    assert "datasets[0].watermrk: is not an option." in said
    assert "Also datasets[0].extract: expected" in said
    assert "Also datasets[1].urn: expected a text; found 5" in said


def test_a_valid_job_stays_as_it_was_written() -> None:
    job = parse_job(
        _job(
            _orders(
                extract="append_only",
                watermark={**TIMED, "late_window": 60, "zone": "America/New_York"},
                primary_key=["id"],
                partitions={"kind": "hourly", "start": "2013-01-01T05:00", "zone": "Asia/Kolkata"},
                converters=[{"rename": {"a": "b", "b": "a"}}, {"function": "my.module:tidy"}],
                writer={"time_column": "placed_at", "time_pattern": "yyyy-MM-dd'T'HH"},
            ),
            umask="0o027",
        )
    )
    assert job.umask == 0o027
    assert parse_job(job) is job
    assert parse_job(job.model_dump()) == job


def test_fields_of_a_dataset_win_and_groups_are_replaced_whole() -> None:
    job = parse_job(
        _job(
            {"urn": "a", "extract": "snapshot_only", "writer": {"compression": "gzip"}},
            {"urn": "B", "table": "public.b", "group": None},
            defaults={
                "extract": "append_only",
                "watermark": TIMED,
                "writer": {"partition_by": ["day"]},
                "group": "shop",
            },
            source={"connection": "db", "include": ["public.*"]},
        )
    )
    datasets = resolve_datasets(job, ["public.b", "public.c", "public.d"])
    assert list(datasets) == ["a", "B", "public.c", "public.d"]
    a, b, c = (datasets[urn] for urn in list(datasets)[:3])  # type: ignore[misc]  # three of them, as the test made
    assert (a.extract, a.table, a.group) == (ExtractType.SNAPSHOT_ONLY, "a", "shop")
    assert (a.writer.compression, a.writer.partition_by) == ("gzip", ())
    assert (b.extract, b.urn, b.table, b.group) == (ExtractType.APPEND_ONLY, "B", "public.b", None)
    assert (c.urn, c.table, c.writer.partition_by) == ("public.c", "public.c", ("day",))
    assert c.partitions.kind is PartitionKind.NONE


def test_a_discovered_table_that_meets_another_datasets_name_is_refused() -> None:
    job = parse_job(
        _job({"urn": "public.c", "table": "archive.c"}, source={"connection": "db", "include": ["public.*"]})
    )
    with pytest.raises(RejectedError, match="already the name of datasets"):
        resolve_datasets(job, ["public.c"])


def test_a_discovered_table_that_the_defaults_do_not_fit_is_named() -> None:
    job = parse_job(_job(source={"connection": "db", "include": ["*"]}, defaults={"extract": "append_only"}))
    with pytest.raises(RejectedError, match=r"public\.t.*watermark"):
        resolve_datasets(job, ["public.t"])


def test_patterns_without_a_discovery_are_refused_with_the_command_to_run() -> None:
    job = parse_job(_job(source={"connection": "db", "include": ["*"]}))
    with pytest.raises(RejectedError, match="gobblin-assets discover"):
        resolve_datasets(job, None)


def test_hostile_names_are_kept_exactly() -> None:
    names = ["a/b", "a.b", "..", "A", "a", "ü %20", " x "]
    job = parse_job(_job(*({"urn": name} for name in names)))
    assert list(resolve_datasets(job, None)) == names
    assert isinstance(job, JobSpec)


def test_a_kind_of_job_reads_its_own_options() -> None:
    def read(options: Mapping[str, object]) -> JobSpec:
        return parse_job(_job({"table": options["table"]}, job=options["job"]))

    register_job_kind("one_table", read)
    found = parse_job({"kind": "one_table", "job": "copy_of_orders", "table": "public.orders"})
    assert list(resolve_datasets(found, None)) == ["public.orders"]
    assert (found.job, found.kind) == ("copy_of_orders", "ingest")
    with pytest.raises(RejectedError, match="one_table"):
        register_job_kind("one_table", read)
    assert parse_job(_job(_orders(), kind="ingest")) == parse_job(_job(_orders()))
