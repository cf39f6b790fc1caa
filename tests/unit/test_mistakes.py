"""Mistakes of a first day, each with the one line that answers it: the field, what was expected, and the fix."""

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from gobblin_assets.cli import main
from gobblin_assets.errors import RejectedError
from gobblin_assets.extensions import Extensions
from gobblin_assets.fs.registry import open_file_system
from gobblin_assets.spec.job_parsing import parse_any_job


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


def a_copy(**options: object) -> dict[str, object]:
    return {
        "job": "mirror",
        "kind": "distcp",
        "source": "/data/in",
        "destination": "/data/out",
        "datasets": [{"urn": "photos"}],
        **options,
    }


def without(job: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in job.items() if name not in names}


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
    "no name": (
        without(a_job(), "job"),
        ("job: is missing. Add it."),
    ),
    "no source": (
        without(a_job(), "source"),
        ("source: is missing. Add it."),
    ),
    "no destination": (
        without(a_job(), "destination"),
        ("destination: is missing. Add it."),
    ),
    "no datasets": (
        without(a_job(), "datasets"),
        ("datasets: expected at least one dataset, found none. List datasets, or choose tables by source.include."),
    ),
    "datasets and nothing below": (
        a_job(datasets=None),
        ("datasets: expected a list; found None. Write a list, such as [first, second]."),
    ),
    "a dataset as a text": (
        a_job(datasets=["public.orders"]),
        ("datasets[0]: expected a group of options; found 'public.orders'. Write {urn: public.orders}."),
    ),
    "datasets without dashes": (
        a_job(datasets={"public.orders": {}}),
        ("datasets: expected a list; found a group of options. Write a list, such as [first, second]."),
    ),
    "a dash and nothing behind it": (
        a_job(datasets=[None]),
        ("datasets[0]: expected a group of options; found None. Write its options, such as {urn: …}."),
    ),
    "a dash in a job's name": (
        a_job(job="my-shop"),
        (
            "job: expected 1 to 100 letters, digits or underscores, found 'my-shop'. Dagster names an op "
            "after the job and takes nothing else."
        ),
    ),
    "a number for a job's name": (
        a_job(job=5),
        ("job: expected a text; found 5. Write it in quotes, as text."),
    ),
    "a connection as the source": (
        a_job(source="sales"),
        (
            "source: expected a group of options; found something else (not shown: it may hold a secret). "
            "Write {connection: NAME}; of a copy of files, write kind: distcp as well."
        ),
    ),
    "a URL as the connection": (
        a_job(source={"connection": "postgresql://u:p@h/d"}),
        (
            "source.connection: expected the name of a connection resource: letters, digits, dots, dashes "
            "and underscores. Configure the connection as a resource, its password by an environment "
            "variable, and name it here."
        ),
    ),
    "no connection": (
        a_job(source={"type": "jdbc"}),
        ("source.connection: is missing. Add it."),
    ),
    "a URL in the job": (
        a_job(source={"connection": "sales", "url": "jdbc:postgresql://h/d"}),
        (
            "source.url: is not an option. How a connection is reached is never in a job: it is in "
            "variables GOBBLIN_JDBC_SALES_… of the environment."
        ),
    ),
    "a password in the job": (
        a_job(source={"connection": "sales", "password": "hunter2"}),
        (
            "source.password: is not an option. How a connection is reached is never in a job: it is in "
            "variables GOBBLIN_JDBC_SALES_… of the environment."
        ),
    ),
    "brokers in the job": (
        a_job(
            source={"type": "kafka", "connection": "bus", "bootstrap_servers": "b:9092"}, datasets=[{"topic": "orders"}]
        ),
        (
            "source.bootstrap_servers: is not an option. How a connection is reached is never in a job: "
            "it is in variables GOBBLIN_KAFKA_BUS_… of the environment."
        ),
    ),
    "another word for a copy": (
        a_job(job="mirror", kind="copy", source="/data/in", destination="/data/out", datasets=[{"urn": "photos"}]),
        ("kind: expected a kind of job of distcp, ingest; found 'copy'. Did you mean distcp?"),
    ),
    "a kind of source as a kind of job": (
        a_job(kind="kafka"),
        ("kind: expected a kind of job of distcp, ingest; found 'kafka'. Did you mean source: {type: kafka}?"),
    ),
    "a kind and nothing behind it": (
        a_job(kind=None),
        ("kind: expected a kind of job, found None. Known: distcp, ingest."),
    ),
    "a web address as the destination": (
        a_job(destination="https://x/y"),
        (
            "destination: expected one of the schemes file, hdfs, s3, found 'https://x/y'. Correct it, or "
            "install the package that offers it."
        ),
    ),
    "Hadoop's scheme of S3": (
        a_job(destination="s3a://b/x"),
        ("destination: expected one of the schemes file, hdfs, s3, found 's3a://b/x'. Write s3://…."),
    ),
    "a store without a bucket": (
        a_job(destination="s3://"),
        (
            "destination: expected s3://<bucket>/<prefix>, found something else. Name a bucket; how it is "
            "reached is said by GOBBLIN_S3_… in the environment."
        ),
    ),
    "a number as the destination": (
        a_job(destination=5),
        (
            "destination: expected a text; found something else (not shown: it may hold a secret). Write "
            "it in quotes, as text."
        ),
    ),
    "a file URI with two slashes": (
        a_job(destination="file://lake"),
        (
            "destination: expected file:/// and an absolute path, found 'file://lake'. Write file:///lake "
            "if that was meant."
        ),
    ),
    "the root of the file system": (
        a_job(destination="/"),
        (
            "destination: expected a folder, found '/'. Name a folder of its own: the root of the file "
            "system is not one."
        ),
    ),
    "a store that is only read": (
        a_job(destination="gs://b/x"),
        (
            "destination: copies read from gs, and nothing is published there. Publish to a disk, a "
            "mounted file system, HDFS or a bucket."
        ),
    ),
    "half a word for appending": (
        a_job(datasets=[{"urn": "a", "extract": "append"}]),
        (
            "datasets[0].extract: expected 'snapshot_only', 'append_only' or 'snapshot_append'; found "
            "'append'. Did you mean 'append_only'?"
        ),
    ),
    "another word for a snapshot": (
        a_job(datasets=[{"urn": "a", "extract": "full"}]),
        (
            "datasets[0].extract: expected 'snapshot_only', 'append_only' or 'snapshot_append'; found "
            "'full'. Did you mean 'snapshot_only'?"
        ),
    ),
    "another word for appending": (
        a_job(datasets=[{"urn": "a", "extract": "incremental"}]),
        (
            "datasets[0].extract: expected 'snapshot_only', 'append_only' or 'snapshot_append'; found "
            "'incremental'. Did you mean 'append_only'?"
        ),
    ),
    "appending without positions": (
        a_job(datasets=[{"urn": "a", "extract": "append_only"}]),
        (
            "datasets[0].watermark: extract append_only needs a column of positions, found none. Add "
            "watermark: {column: ...}, or write extract: snapshot_only."
        ),
    ),
    "a column as the watermark": (
        a_dataset(watermark="updated_at"),
        ("datasets[0].watermark: expected a group of options; found 'updated_at'. Write {column: updated_at}."),
    ),
    "a misspelt option of the watermark": (
        a_dataset(watermark={"colum": "at"}),
        (
            "datasets[0].watermark.colum: is not an option. Did you mean 'column' or 'key_column'?\nAlso "
            "datasets[0].watermark.column: is missing. Add it."
        ),
    ),
    "a type of a database": (
        a_dataset(watermark={"column": "at", "type": "datetime"}),
        (
            "datasets[0].watermark.type: expected 'long', 'timestamp', 'local_timestamp', 'date', "
            "'string' or 'composite'; found 'datetime'. Did you mean 'timestamp'?"
        ),
    ),
    "an offset as the zone": (
        a_dataset(watermark={"column": "at", "zone": "CET+1"}),
        ("datasets[0].watermark.zone: expected a time zone, found 'CET+1'. Did you mean 'CET'?"),
    ),
    "a negative window": (
        a_dataset(watermark={"column": "at", "late_window": -5}),
        ("datasets[0].watermark.late_window: expected a number of at least 0; found -5. Write 0 or more."),
    ),
    "a key as a text": (
        a_dataset(watermark={"column": "at"}, primary_key="id"),
        ("datasets[0].primary_key: expected a list; found 'id'. Write [\"id\"]."),
    ),
    "a month as the kind of partitions": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "month"}),
        (
            "datasets[0].partitions.kind: expected 'none', 'hourly', 'daily', 'weekly', 'monthly', "
            "'static' or 'dynamic'; found 'month'. Did you mean 'monthly'?"
        ),
    ),
    "the kind as the partitions": (
        a_dataset(watermark={"column": "at"}, partitions="monthly"),
        ("datasets[0].partitions: expected a group of options; found 'monthly'. Write {kind: monthly}."),
    ),
    "partitions without a start": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "monthly"}),
        (
            "datasets[0].partitions.start: monthly partitions need the beginning of their first window, "
            "found none. Write it like 2013-01-01."
        ),
    ),
    "a start within a month": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "monthly", "start": "2026-01-15"}),
        (
            "datasets[0].partitions.start: no monthly window begins at 2026-01-15. Write '2026-02-01', or "
            "the one before."
        ),
    ),
    "an end before the start": (
        a_dataset(
            watermark={"column": "at"}, partitions={"kind": "monthly", "start": "2026-02-01", "end": "2026-01-01"}
        ),
        (
            "datasets[0].partitions.end: expected an end after 2026-02-01, found 2026-01-01. Leave it out "
            "if the windows go on."
        ),
    ),
    "a year as a date": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "monthly", "start": 2026}),
        ("datasets[0].partitions.start: expected a date, found 2026. Write it as 2026-01-31."),
    ),
    "one key twice": (
        a_job(datasets=[{"urn": "a", "partitions": {"kind": "static", "keys": ["a", "a"], "column": "c"}}]),
        ("datasets[0].partitions.keys: expected different names, found 'a' and 'a'. Name each once."),
    ),
    "months without a time column": (
        a_job(datasets=[{"urn": "a", "partitions": {"kind": "monthly", "start": "2026-01-01"}}]),
        (
            "datasets[0].watermark: monthly partitions are windows of a column of positions, found none. "
            "Add watermark: {column: <a time column>}."
        ),
    ),
    "a town as the zone": (
        a_dataset(watermark={"column": "at"}, partitions={"kind": "daily", "start": "2026-01-01", "zone": "Berlin"}),
        ("datasets[0].partitions.zone: expected a time zone, found 'Berlin'. Did you mean 'Europe/Berlin'?"),
    ),
    "two datasets of one name": (
        a_job(datasets=[{"urn": "a"}, {"urn": "a"}]),
        (
            "datasets[1].urn: 'a' is already the name of datasets[0]. Give each dataset a URN of its own; "
            "table names the table it reads."
        ),
    ),
    "a dataset without a name": (
        a_job(datasets=[{}]),
        ("datasets[0].urn: expected a name, found none. Write urn, table, or both."),
    ),
    "a topic without the kind of source": (
        a_job(datasets=[{"topic": "orders"}]),
        (
            "datasets[0].topic: a JDBC source has no such option. Take it out, or write the kind that has "
            "it: source: {type: kafka, …}."
        ),
    ),
    "a table of a cluster": (
        a_job(source={"type": "kafka", "connection": "bus"}, datasets=[{"table": "orders"}]),
        ("datasets[0].table: a Kafka source has no such option. Take it out: write topic."),
    ),
    "another word for the URN": (
        a_job(datasets=[{"name": "orders"}]),
        ("datasets[0].name: is not an option. Did you mean 'urn'?"),
    ),
    "columns in one text": (
        a_job(datasets=[{"urn": "a", "columns": "id,at"}]),
        ('datasets[0].columns: expected a list; found \'id,at\'. Write ["id", "at"].'),
    ),
    "a converter without a dash": (
        a_job(datasets=[{"urn": "a", "converters": {"drop": ["x"]}}]),
        ("datasets[0].converters: expected a list; found a group of options. Write a list, such as [first, second]."),
    ),
    "two converters in one link": (
        a_job(datasets=[{"urn": "a", "converters": [{"drop": ["x"], "select": ["y"]}]}]),
        (
            "datasets[0].converters[0]: expected exactly one of select, drop, rename, cast, sql, where, "
            "flatten, function; found select, drop. Make each a link of its own: they run in order."
        ),
    ),
    "a converter of another product": (
        a_job(datasets=[{"urn": "a", "converters": [{"filter": "x>1"}]}]),
        ("datasets[0].converters[0].filter: is not an option. Did you mean 'where'?"),
    ),
    "a function without a colon": (
        a_job(datasets=[{"urn": "a", "converters": [{"function": "mymod.fn"}]}]),
        (
            "datasets[0].converters[0].function: expected package.module:name, found 'mymod.fn'. Write a "
            "colon between the module and the function."
        ),
    ),
    "policies without their group": (
        a_job(datasets=[{"urn": "a", "quality": [{"name": "x", "check": "y"}]}]),
        (
            "datasets[0].quality: expected a group of options; found a list of 1. Write its options, such "
            "as {dead_letter_count_max: …}."
        ),
    ),
    "another word for setting aside": (
        a_job(datasets=[{"urn": "a", "quality": {"rows": [{"name": "x", "check": "y", "on_failure": "drop"}]}}]),
        (
            "datasets[0].quality.rows[0].on_failure: expected 'fail', 'err_file' or 'optional'; found "
            "'drop'. Did you mean 'err_file'?"
        ),
    ),
    "a space in a policy's name": (
        a_job(datasets=[{"urn": "a", "quality": {"rows": [{"name": "x y", "check": "y"}]}}]),
        (
            "datasets[0].quality.rows[0].name: expected 1 to 100 letters, digits or underscores; found 'x "
            "y'. Take the other characters out."
        ),
    ),
    "a policy without a check": (
        a_job(datasets=[{"urn": "a", "quality": {"rows": [{"name": "x"}]}}]),
        ("datasets[0].quality.rows[0].check: is missing. Add it."),
    ),
    "percents as a share": (
        a_job(datasets=[{"urn": "a", "quality": {"quarantine_fraction_max": 5}}]),
        ("datasets[0].quality.quarantine_fraction_max: expected a number of at most 1; found 5. Write 1 or less."),
    ),
    "an archive as a compression": (
        a_job(datasets=[{"urn": "a", "writer": {"compression": "zip"}}]),
        (
            "datasets[0].writer.compression: expected 'zstd', 'snappy', 'gzip', 'lz4' or 'none'; found "
            "'zip'. Did you mean 'gzip'?"
        ),
    ),
    "files of a few bytes": (
        a_job(datasets=[{"urn": "a", "writer": {"file_bytes_max": 100}}]),
        ("datasets[0].writer.file_bytes_max: expected a number of at least 1048576; found 100. Write 1048576 or more."),
    ),
    "a policy that there is none of": (
        a_job(commit_policy="all"),
        ("commit_policy: expected 'full' or 'successful'; found 'all'. Write one of these."),
    ),
    "no task at all": (
        a_job(parallelism=0),
        ("parallelism: expected a number of at least 1; found 0. Write 1 or more."),
    ),
    "a mode in letters": (
        a_job(umask="rwx"),
        ("umask: expected digits from 0 to 7, found 'rwx'. Write \"022\"."),
    ),
    "a digit that is not octal": (
        a_job(umask="0999"),
        ("umask: expected digits from 0 to 7, found '0999'. Write \"022\"."),
    ),
    "a schedule in the job": (
        a_job(schedule="0 3 * * *"),
        (
            "schedule: is not an option. A job runs when Dagster's schedules, sensors or your cron start "
            "it: take it out."
        ),
    ),
    "owners in the job": (
        a_job(owners=["me"]),
        ("owners: is not an option. Owners are in Dagster: `translation: {owners: [team:data]}` of a component."),
    ),
    "neither yes nor no": (
        a_job(datasets=[{"urn": "a", "schema_change": {"allow_dropped": "maybe"}}]),
        ("datasets[0].schema_change.allow_dropped: expected true or false; found 'maybe'. Write one of these."),
    ),
    "exclude without include": (
        a_job(source={"connection": "s", "exclude": ["x"]}),
        (
            "source.exclude: exclude takes tables out of what include chose, found no include. Add "
            "source.include, such as public.*, or take exclude out."
        ),
    ),
    "a count as the retries": (
        a_job(retry=3),
        ("retry: expected a group of options; found 3. Write its options, such as {task_tries_max: …}."),
    ),
    "a longest wait below the first": (
        a_job(retry={"back_off_s": 100, "back_off_max_s": 1}),
        ("retry.back_off_max_s: expected at least back_off_s, 100.0; found 1.0. Raise it, or lower back_off_s."),
    ),
    "a sink of events by its type": (
        a_job(events=[{"type": "slack", "name": "a"}]),
        (
            "events[0].type: is not an option. Known: files, kind, name, options, path, token_env, url, "
            "url_env.\nAlso events[0].kind: is missing. Add it."
        ),
    ),
    "topics of a dataset": (
        a_job(source={"type": "kafka", "connection": "bus"}, datasets=[{"topics": ["a"]}]),
        ("datasets[0].topics: is not an option. Did you mean 'topic'?"),
    ),
    "a consumer group": (
        a_job(source={"type": "kafka", "connection": "bus", "group_id": "x"}, datasets=[{"topic": "orders"}]),
        (
            "source.group_id: is not an option. Known: catch_up_sla_hours, connection, exclude, include, "
            "isolation, new_data, produce_rate_scaling, records_per_run_max, size_estimator, type."
        ),
    ),
    "a decoder at another place": (
        a_job(source={"type": "kafka", "connection": "bus"}, datasets=[{"topic": "o", "kafka": {"decoder": "xml"}}]),
        ("datasets[0].kafka.decoder: is not an option. Did you mean 'value'?"),
    ),
    "a change log without its publication": (
        a_job(source={"type": "postgres_log", "connection": "shop"}, destination="/l", datasets=[{"urn": "public.o"}]),
        ("source.publication: is missing. Add it."),
    ),
    "appending of a change log": (
        a_job(
            source={"type": "postgres_log", "connection": "shop", "publication": "lake"},
            datasets=[{"urn": "public.o", "extract": "append_only", "watermark": {"column": "at"}}],
        ),
        (
            "datasets[0].extract: a Postgres log source has no such option. Take it out: a change log is "
            "followed: every publication appends what has changed."
        ),
    ),
    "another word for a change log": (
        a_job(source={"type": "cdc", "connection": "shop", "publication": "lake"}),
        (
            "source.type: expected a kind of source of jdbc, kafka, postgres_log, spark_stream; found "
            "'cdc'. Did you mean postgres_log?"
        ),
    ),
    "a copy onto itself": (
        a_copy(destination="/data/in"),
        ("destination: /data/in lies inside /data/in. Copy between two trees that lie apart."),
    ),
    "yes to deletes": (
        a_copy(datasets=[{"urn": "p", "deletes": "yes"}]),
        ("datasets[0].deletes: expected 'off', 'ours' or 'all'; found 'yes'. Did you mean 'ours'?"),
    ),
    "a list of what is preserved": (
        a_copy(datasets=[{"urn": "p", "preserve": ["owner", "mode"]}]),
        ("datasets[0].preserve: expected a text; found a list of 2. Write one text."),
    ),
    "a pattern as a text": (
        a_copy(datasets=[{"urn": "p", "include": "*.jpg"}]),
        ("datasets[0].include: expected a list; found '*.jpg'. Write [\"*.jpg\"]."),
    ),
    "a dataset by its whole path": (
        a_copy(datasets=[{"urn": "/data/in/p"}]),
        (
            "datasets[0].path: the path '/data/in/p' is absolute. Write names below the root, with one "
            "slash between them."
        ),
    ),
    "a marker as the trigger": (
        a_copy(trigger="_SUCCESS"),
        ("trigger: expected a group of options; found '_SUCCESS'. Write {marker: _SUCCESS}."),
    ),
    "a place that can't be read": (
        a_copy(source="ftp://h/x"),
        (
            "source: expected one of the schemes abfs, abfss, file, gs, hdfs, s3, sftp; found 'ftp'. "
            "Mount it, and name the directory, or install the package that offers such trees."
        ),
    ),
    "a copy without its kind": (
        without(a_copy(), "kind"),
        (
            "source: expected a group of options; found something else (not shown: it may hold a secret). "
            "Write {connection: NAME}; of a copy of files, write kind: distcp as well."
        ),
    ),
}


@pytest.fixture(autouse=True)
def only_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kinds that other tests of this process have registered."""
    monkeypatch.setattr(Extensions, "list_names", lambda extensions: sorted(extensions.built_in))


@pytest.mark.parametrize(("job", "answer"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_job_is_answered_in_one_line(job: Mapping[str, object], answer: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_any_job(job)
    assert str(refused.value) == answer
    assert refused.value.hint


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
