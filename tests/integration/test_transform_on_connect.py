"""The same chain on Spark Connect, in a process of its own: convert, judge, compare with published rows, read."""

from pathlib import Path

from pyspark.sql import DataFrame, is_remote

from gobblin_assets.db.engine import open_external
from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.model.urn import Role
from gobblin_assets.model.watermark import long_watermark
from gobblin_assets.rows.converters import convert
from gobblin_assets.rows.dataset_reader import read_dataset
from gobblin_assets.rows.late_rows import without_published
from gobblin_assets.rows.row_quality import explain_row_failure, look_at_failed, split_rows
from gobblin_assets.rows.row_samples import RowFailures
from gobblin_assets.spark.connect_server import ConnectServer
from gobblin_assets.spec.job_spec import ConverterSpec, DatasetSpec, RowPolicySpec, WriterSpec
from tests.support.publishing import Publisher
from tests.support.spark import in_child, open_remote

URN = "public.orders"


def _refused_field(frame: DataFrame, link: dict[str, object]) -> str:
    try:
        convert(frame, [ConverterSpec.model_validate(link)], dataset=URN)
    except RejectedError as error:
        return error.field
    return "nothing was refused"


def _failed_policy(frame: DataFrame) -> object:
    split = split_rows(frame, [RowPolicySpec(name="small", check="id < 3")], dataset=URN)
    try:
        split.frame.collect()
    except Exception as error:  # noqa: BLE001  whatever it is, it must be explained
        explained = explain_row_failure(error, dataset=URN)
        return None if explained is None else explained.fields["policy"]
    return "no row failed"


def _look_at_failed(frame: DataFrame) -> RowFailures:
    rules = [{"name": "long", "check": "length(code) > 2"}]
    spec = DatasetSpec.model_validate({"urn": URN, "primary_key": ["id"], "quality": {"rows": rules}})
    return look_at_failed(frame, spec.quality.rows[0], spec)


def _run_chain(server: ConnectServer, database_url: str, root: str) -> dict[str, object]:
    spark = open_remote(server)
    engine = open_external(database_url)
    try:
        publisher = Publisher(engine, Path(root))
        raw = spark.sql("SELECT * FROM VALUES (1, '01', 10), (2, '02', -1), (3, NULL, 30) AS t(id, code, amount)")
        links = [{"sql": {"at": "id * 10"}}, {"cast": {"at": "bigint"}}, {"where": "id > 0"}]
        converted = convert(raw, [ConverterSpec.model_validate(link) for link in links], dataset=URN)
        policy = RowPolicySpec(name="positive", check="amount > 0", on_failure="err_file")
        publisher.publish(converted, URN, writer=WriterSpec(partition_by=("code",)), policies=(policy,))
        data = read_dataset(spark, URN, job="shop", database=engine)
        aside = read_dataset(spark, URN, job="shop", database=engine, role=Role.QUARANTINE)
        late = without_published(
            converted, data, key=["id"], watermark_column="at", low=long_watermark(30), reread_from=long_watermark(10)
        )
        found: dict[str, object] = {
            "remote": is_remote(),
            "data": sorted(tuple(row) for row in data.select("id", "code").collect()),
            "aside": [(row.id, row.failed_policies) for row in aside.collect()],
            "late": sorted(row.id for row in late.collect()),
            "refused": [
                _refused_field(raw, {"sql": {"x": "nope + 1"}}),
                _refused_field(raw, {"cast": {"id": "nonsense"}}),
                _refused_field(raw, {"where": "id >"}),
            ],
            "failures": _look_at_failed(raw),
            "policy": _failed_policy(raw),
        }
        publisher.files(URN)[0].unlink()
        try:
            read_dataset(spark, URN, job="shop", database=engine).collect()
        except CorruptionError as error:
            found["missing"] = error.message
        return found
    finally:
        engine.dispose()
        spark.stop()


def test_the_chain_means_the_same_on_connect(connect: ConnectServer, database_url: str, tmp_path: Path) -> None:
    found = in_child(_run_chain, connect, database_url, str(tmp_path / "la ke%20"))
    assert found["remote"] is True
    assert found["data"] == [(1, "01"), (3, None)]
    assert found["aside"] == [(2, ["positive"])]
    assert found["late"] == [2, 3]
    assert found["refused"] == ["converters[0].sql.x", "converters[0].cast.id", "converters[0].where"]
    assert found["policy"] == "small"
    assert found["failures"] == RowFailures(
        3,
        (
            *("id: ••• (int), code: ••• (string, 2 characters)",) * 2,
            "id: ••• (int), code: NULL",
        ),
    )
    assert str(found.get("missing")).startswith("a published file is missing")
