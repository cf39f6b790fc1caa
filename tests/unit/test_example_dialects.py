"""The example's dialects: found by entry points of an installed package, and their SQL, as text.

They have no other test, since no server of Oracle's or Microsoft's was at hand.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.environment import find_shown_kind, list_capabilities
from gobblin_assets.sources.jdbc.connection import JDBC_DATABASES, JdbcConnection, dialect_of, find_jdbc_database
from gobblin_assets.sources.jdbc.dialect import ColumnReading, SparkDialect
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.spark.spark_settings import SparkSettings, plan_conf
from gobblin_assets.spec.job_parsing import parse_job
from tests.support.dialects import INSTANT, require_closed_quotes, require_fractions
from tests.support.examples import install_example

PACKAGE = "gobblin_jdbc_dialects"
NAMES = ("oracle", "sqlserver")
URLS = {"oracle": "jdbc:oracle:thin:@//h:1521/x", "sqlserver": "jdbc:sqlserver://h:1433;databaseName=d"}
JOB = parse_job(
    {
        "job": "shop",
        "source": {"connection": "sales"},
        "destination": "/data/lake",
        "datasets": [{"urn": "t"}],
    }
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install_example(PACKAGE, folder)
    return folder


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JDBC_DATABASES, "_known", {})


@pytest.fixture
def installed(site: Path, nothing_loaded: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(site)
    yield
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


@pytest.mark.usefixtures("nothing_loaded")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("driver", [None, "com.example.Driver"])
def test_without_the_package_each_way_to_the_database_names_it(name: str, driver: str | None) -> None:
    environment = {"GOBBLIN_JDBC_SALES_URL": URLS[name]}
    for connect in (
        lambda: JdbcConnection(URLS[name], driver=driver, name="sales"),
        lambda: list_capabilities([JOB], environment),
    ):
        with pytest.raises(RejectedError, match=f"jdbc:{name} is in the package {PACKAGE}") as refused:
            connect()
        assert refused.value.field == "connections[sales].url"
        assert f"pip install ./examples/{PACKAGE}" in refused.value.hint
    assert find_shown_kind(JOB.source, environment) is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("name", "jar"), [("oracle", "ojdbc11"), ("sqlserver", "mssql-jdbc")])
def test_the_package_brings_the_dialect_and_the_driver(name: str, jar: str, tmp_path: Path) -> None:
    connection = JdbcConnection(URLS[name], "reader", "secret")
    environment = {"GOBBLIN_JDBC_SALES_URL": URLS[name]}
    found = list_capabilities([JOB], environment)
    assert jar in plan_conf(SparkSettings(tmp_path, capabilities=tuple(found)))["spark.jars.packages"]
    assert find_shown_kind(JOB.source, environment) == name
    known = find_jdbc_database(name)
    assert known is not None
    assert connection.driver_class == known.driver_class
    assert known.properties.items() <= connection.spark_properties().items()
    assert {*NAMES, "derby"} <= set(JDBC_DATABASES.list_names())


@pytest.mark.usefixtures("installed")
def test_a_password_in_oracle_s_own_form_is_refused_without_showing_it() -> None:
    with pytest.raises(RejectedError, match="the URL holds a password") as refused:
        JdbcConnection("jdbc:oracle:thin:scott/hunter2@//h:1521/x")
    assert "hunter2" not in str(refused.value) + repr(refused.value.fields)
    with pytest.raises(RejectedError, match="the URL holds a password"):
        JdbcConnection("jdbc:sqlserver://h;databaseName=d;Password = hunter2")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", NAMES)
def test_the_dialects_keep_what_every_dialect_keeps(name: str) -> None:
    dialect = dialect_of(name)
    require_closed_quotes(dialect)
    require_fractions(dialect, WatermarkType.TIMESTAMP)
    require_fractions(dialect, WatermarkType.LOCAL_TIMESTAMP)
    assert dialect.is_experimental
    assert dialect.probe_query(TableName("s", "t")) is None


def read(dialect: SparkDialect, type_text: str) -> ColumnReading:
    found = dialect.read_declared(dialect.quote("v"), type_text)
    assert found is not None
    return found


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("type_text", "expected"),
    [
        ("tinyint", ColumnReading('"v"', "SMALLINT", order=WatermarkType.LONG)),
        ("decimal(18,0)", ColumnReading('"v"', "DECIMAL(18,0)", order=WatermarkType.LONG)),
        ("decimal(38,5)", ColumnReading('"v"', "DECIMAL(38,5)")),
        ("money", ColumnReading('CAST("v" AS decimal(19,4))', "DECIMAL(19,4)")),
        ("bit", ColumnReading('"v"', "BOOLEAN")),
        ("char", ColumnReading('CAST("v" AS nvarchar(4000))', "STRING")),
        ("rowversion", ColumnReading('"v"', "BINARY")),
        (
            "datetime",
            ColumnReading(
                'CONVERT(varchar(27), CAST("v" AS datetime2(6)), 121)', "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "datetimeoffset(6)",
            ColumnReading(
                "CONVERT(varchar(27), CAST(SWITCHOFFSET(\"v\", '+00:00') AS datetime2(6)), 121)", "STRING",
                "TIMESTAMP", order=WatermarkType.TIMESTAMP,
            ),
        ),
        ("date", ColumnReading('CONVERT(varchar(10), "v", 23)', "STRING", "DATE", order=WatermarkType.DATE)),
    ],
)  # fmt: skip
def test_types_of_sql_server(type_text: str, expected: ColumnReading) -> None:
    assert read(dialect_of("sqlserver"), type_text) == expected


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("type_text", "cast"),
    [
        ("datetime2(7)", 'CAST("v" AS datetime2(6))'),
        ("time(3)", 'CONVERT(nvarchar(max), "v")'),
        ("sql_variant", 'CONVERT(nvarchar(max), "v")'),
    ],
)
def test_what_sql_server_has_and_spark_has_not(type_text: str, cast: str) -> None:
    found = read(dialect_of("sqlserver"), type_text)
    assert found.problem
    assert found.cast == cast


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("type_text", "expected"),
    [
        ("NUMBER(18,0)", ColumnReading('"v"', "DECIMAL(18,0)", order=WatermarkType.LONG)),
        ("NUMBER(38,10)", ColumnReading('"v"', "DECIMAL(38,10)")),
        ("VARCHAR2", ColumnReading("\"v\" || ''", "STRING")),
        ("BINARY_FLOAT", ColumnReading('"v"', "FLOAT")),
        (
            "DATE",
            ColumnReading(
                "LTRIM(TO_CHAR(\"v\", 'SYYYY-MM-DD HH24:MI:SS'))", "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "TIMESTAMP(6)",
            ColumnReading(
                "LTRIM(TO_CHAR(\"v\", 'SYYYY-MM-DD HH24:MI:SS.FF6'))", "STRING", "TIMESTAMP_NTZ",
                order=WatermarkType.LOCAL_TIMESTAMP,
            ),
        ),
        (
            "TIMESTAMP(3) WITH LOCAL TIME ZONE",
            ColumnReading(
                "LTRIM(TO_CHAR(SYS_EXTRACT_UTC(\"v\"), 'SYYYY-MM-DD HH24:MI:SS.FF6'))", "STRING", "TIMESTAMP",
                order=WatermarkType.TIMESTAMP,
            ),
        ),
    ],
)  # fmt: skip
def test_types_of_oracle(type_text: str, expected: ColumnReading) -> None:
    assert read(dialect_of("oracle"), type_text) == expected


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("type_text", "cast"),
    [
        ("NUMBER", 'CAST("v" AS NUMBER(38, 10))'),
        ("NUMBER(10,-2)", 'CAST("v" AS NUMBER(38, 10))'),
        ("TIMESTAMP(9)", 'CAST("v" AS TIMESTAMP(6))'),
        ("INTERVAL DAY(2) TO SECOND(6)", 'TO_CHAR("v")'),
    ],
)
def test_what_oracle_has_and_spark_has_not(type_text: str, cast: str) -> None:
    found = read(dialect_of("oracle"), type_text)
    assert found.problem
    assert found.cast == cast


@pytest.mark.usefixtures("installed")
def test_positions_of_oracle_keep_the_time_of_day_of_a_date() -> None:
    dialect = dialect_of("oracle")
    assert dialect.in_order('"w0"', WatermarkType.LOCAL_TIMESTAMP) == 'CAST("w0" AS TIMESTAMP(6))'
    assert dialect.literal(WatermarkType.TIMESTAMP, INSTANT) == "TIMESTAMP '2020-03-29 02:30:00.000001 +00:00'"
    assert dialect.equals_key('"v"', "7; --", "NUMBER(9,0)") is None
