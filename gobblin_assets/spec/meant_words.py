"""Guesses of what people meant: words of other products for options and their values, and where an option belongs."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MEANT_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("name", "id", "dataset"), ("urn", "job")),
        **dict.fromkeys(
            ("cursor", "cursor_field", "cursor_column", "incremental", "incremental_column"), ("watermark",)
        ),
        **dict.fromkeys(("key", "keys", "pk", "primary_keys", "unique_key"), ("primary_key",)),
        **dict.fromkeys(("dest", "target", "output", "path", "root", "sink_path"), ("destination",)),
        **dict.fromkeys(("tables", "topics", "streams", "collections"), ("datasets",)),
        **dict.fromkeys(("mode", "load", "load_type", "strategy", "sync_mode"), ("extract",)),
        **dict.fromkeys(("filter", "condition", "query"), ("where",)),
        **dict.fromkeys(("transform", "transforms", "transformations", "columns_map"), ("converters",)),
        **dict.fromkeys(("partition", "partitioning"), ("partitions",)),
        **dict.fromkeys(("workers", "threads", "concurrency"), ("parallelism",)),
        **dict.fromkeys(("decoder", "format", "deserializer"), ("value",)),
        **dict.fromkeys(("lag", "lookback", "overlap"), ("late_window",)),
        **dict.fromkeys(("field", "by"), ("column",)),
        "timezone": ("zone",),
        "tz": ("zone",),
    }
)
"""Options by other names for them. One that is not known where the word stands is not offered."""

ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("schedule", "cron", "interval"),
            "A job runs when Dagster's schedules, sensors or your cron start it: take it out.",
        ),
        **dict.fromkeys(
            ("owners", "owner"), "Owners are in Dagster: `translation: {owners: [team:data]}` of a component."
        ),
        **dict.fromkeys(("retries", "max_retries"), "Write retry: {task_tries_max: 3}."),
        **dict.fromkeys(("spark", "spark_conf", "spark_config"), "Settings of Spark are in GOBBLIN_SPARK_CONF."),
    }
)
"""Options that no job has, and what does it instead."""

OF_CONNECTIONS: Final = frozenset({
    "url", "uri", "dsn", "host", "hostname", "port", "database", "dbname", "user", "username", "password", "driver",
    "properties", "bootstrap_servers", "brokers", "security_protocol", "sasl_mechanism", "token", "registry_url",
})  # fmt: skip
"""Options of a source that belong to its connection, and are never in a job."""

MEANT_VALUES: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("full", "full_refresh", "full_table", "replace", "overwrite", "snapshot", "truncate"), "snapshot_only"
        ),
        **dict.fromkeys(("incremental", "append", "upsert", "merge", "delta"), "append_only"),
        **dict.fromkeys(("datetime", "timestamptz", "time", "timestamp_tz"), "timestamp"),
        **dict.fromkeys(("int", "integer", "bigint", "number", "numeric", "id"), "long"),
        **dict.fromkeys(("text", "varchar", "uuid"), "string"),
        **dict.fromkeys(("drop", "quarantine", "reject"), "err_file"),
        **dict.fromkeys(("warn", "ignore"), "optional"),
        **dict.fromkeys(("error", "abort"), "fail"),
        **dict.fromkeys(("day", "date"), "daily"),
        **dict.fromkeys(("true", "yes", "on"), "ours"),
        **dict.fromkeys(("false", "no"), "off"),
        "month": "monthly",
        "week": "weekly",
        "hour": "hourly",
        "uncompressed": "none",
        "gz": "gzip",
        "per_partition": "multi_run",
    }
)
"""Values by other words for them. One that the option does not take is not offered."""

MAIN_OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "datasets": "urn",
        "partitions": "kind",
        "retry": "task_tries_max",
        "trigger": "marker",
        "watermark": "column",
    }
)
"""Groups of options, each with the one that a person may have written in place of the group."""
