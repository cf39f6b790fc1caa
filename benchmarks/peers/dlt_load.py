"""A dlt pipeline of tables to Parquet files: runs in an environment of its own, not in the product's.

``python dlt_load.py URL FOLDER connectorx|pyarrow|sqlalchemy TABLE…`` appends what is new by ``id``, with dlt's state.
Without arguments the script reads them from its input, a JSON list a line, for loads inside one process.
Set up as dlt's performance guide says: an Arrow backend, large chunks, files that need no normalizing.
"""

import json
import sys
from pathlib import Path

import dlt
from dlt.sources.sql_database import sql_database

CHUNK_ROWS = 100_000


def load(url: str, folder: Path, backend: str, tables: list[str]) -> None:
    options = {"backend_kwargs": {"return_type": "arrow"}} if backend == "connectorx" else {}
    # One source, and so one pool of connections, for all tables.
    source = sql_database(
        credentials=url,
        schema="public",
        table_names=tables,
        backend=backend,
        chunk_size=CHUNK_ROWS,
        reflection_level="full",
        **options,
    )
    for name in tables:
        source.resources[name].apply_hints(incremental=dlt.sources.incremental("id"))
    pipeline = dlt.pipeline(
        pipeline_name="peers",
        pipelines_dir=str(folder / "pipelines"),
        destination=dlt.destinations.filesystem(bucket_url=(folder / "lake").as_uri()),
        dataset_name="peers",
    )
    pipeline.run(source, write_disposition="append", loader_file_format="parquet").raise_on_failed_jobs()


def load_each() -> None:
    """Loads inside one process: each line of the input is a JSON list of the arguments."""
    for line in sys.stdin:
        url, folder, backend, *tables = json.loads(line)
        load(url, Path(folder), backend, tables)
        print("loaded", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    else:
        load_each()
