"""All measures by name. They are not in the entry point, so that spawned processes can import them."""

from collections.abc import Callable

from benchmarks import (
    cdc_changes,
    cdc_copy,
    cdc_current,
    cdc_debezium,
    cdc_idle,
    cdc_pace,
    copies,
    copies_on_spark,
    copies_resumed,
    copies_to_store,
    copy_listing,
    copy_runs,
    due_flows,
    flow_compiling,
    kafka_alternatives,
    kafka_planning,
    kafka_small_topics,
    kafka_throughput,
    long_log,
    many_flows,
    many_runs,
    outage,
    report_delay,
    rows_to_store,
    scheduling,
    service,
    sink_lanes,
    sink_log,
    sink_pace,
    sink_throughput,
    small_increment,
    spark_start,
    steps,
    table_loads,
    table_planning,
    topic_loads,
    worker_moves,
    write_overhead,
)
from benchmarks.machine import describe_machine
from benchmarks.peers import airflow, large_table, loads, typed_commands, warm_spark
from benchmarks.tables import Options, Table
from benchmarks.world import World, open_world

LONG_MEASURES: dict[str, Callable[[World, Options], list[Table]]] = {"cdc_idle_hour": cdc_idle.measure_an_hour}
"""Only by name: each takes an hour."""

MEASURES: dict[str, Callable[[World, Options], list[Table]]] = {
    "write_overhead": write_overhead.measure,
    "rows_to_store": rows_to_store.measure,
    "small_increment": small_increment.measure,
    "spark_start": spark_start.measure,
    "steps": steps.measure,
    "outage": outage.measure,
    "long_log": long_log.measure,
    "many_runs": many_runs.measure,
    "report_delay": report_delay.measure,
    "kafka_throughput": kafka_throughput.measure,
    "kafka_alternatives": kafka_alternatives.measure,
    "kafka_planning": kafka_planning.measure,
    "kafka_small_topics": kafka_small_topics.measure,
    "sink_pace": sink_pace.measure,
    "sink_throughput": sink_throughput.measure,
    "sink_lanes": sink_lanes.measure,
    "sink_log": sink_log.measure,
    "table_loads": table_loads.measure,
    "table_planning": table_planning.measure,
    "flow_compiling": flow_compiling.measure,
    "service": service.measure,
    "scheduling": scheduling.measure,
    "many_flows": many_flows.measure,
    "due_flows": due_flows.measure_claims,
    "packed_flows": due_flows.measure_packs,
    "worker_moves": worker_moves.measure,
    "topic_loads": topic_loads.measure,
    "cdc_changes": cdc_changes.measure,
    "cdc_copy": cdc_copy.measure,
    "cdc_current": cdc_current.measure,
    "cdc_pace": cdc_pace.measure,
    "cdc_idle": cdc_idle.measure,
    "cdc_debezium": cdc_debezium.measure,
    "copy_listing": copy_listing.measure,
    "copies": copies.measure,
    "copy_runs": copy_runs.measure,
    "copies_to_store": copies_to_store.measure,
    "copies_on_spark": copies_on_spark.measure,
    "copies_resumed": copies_resumed.measure,
    "typed_commands": typed_commands.measure,
    "peers": loads.measure,
    "large_table": large_table.measure,
    "warm_spark": warm_spark.measure,
    "airflow": airflow.measure,
}


def measure_one(name: str, options: Options) -> list[Table]:
    """The machine's facts, then the tables of one measure."""
    with open_world() as world:
        return [describe_machine(world), *(MEASURES | LONG_MEASURES)[name](world, options)]
