from pathlib import Path

import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.spark.session import parse_address
from gobblin_assets.spark.spark_settings import (
    COORDINATES,
    WAIT_S,
    WAIT_VARIABLE,
    SparkSettings,
    hide_parameters,
    is_secret,
    plan_conf,
    read_wait_s,
)

WORK = Path("/work folder")


def test_every_session_is_in_utc_quiet_and_keeps_to_its_folder() -> None:
    conf = plan_conf(SparkSettings(WORK))
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert "-Duser.timezone=UTC" in conf["spark.driver.extraJavaOptions"]
    assert "-Duser.timezone=UTC" in conf["spark.executor.extraJavaOptions"]
    assert '"-Dderby.stream.error.file=/work folder/derby.log"' in conf["spark.driver.extraJavaOptions"]
    assert conf["spark.sql.warehouse.dir"] == "file:///work%20folder/warehouse"
    assert (conf["spark.ui.enabled"], conf["spark.ui.showConsoleProgress"]) == ("false", "false")
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert conf["spark.sql.maxConcurrentOutputFileWriters"] == "2"
    assert conf["spark.sql.codegen.hugeMethodLimit"] == "8000"


def test_the_users_settings_come_over_the_defaults_and_are_added_to_what_is_insisted_on() -> None:
    conf = plan_conf(
        SparkSettings(
            WORK,
            master="spark://host:7077",
            conf={
                "spark.ui.enabled": "true",
                "spark.sql.maxConcurrentOutputFileWriters": "0",
                "spark.driver.extraJavaOptions": "-Xss4m",
                "spark.jars.packages": "a:b:1",
                "spark.sql.session.timeZone": "UTC",
            },
            capabilities=("postgres", "mine"),
            coordinates={"postgres": "org.postgresql:postgresql:42.7.9", "mine": "x.y:z_2.13:1.0-rc1"},
        )
    )
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.driver.extraJavaOptions"].startswith("-Duser.timezone=UTC ")
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Xss4m")
    assert conf["spark.jars.packages"] == "a:b:1,org.postgresql:postgresql:42.7.9,x.y:z_2.13:1.0-rc1"
    assert "spark.driver.bindAddress" not in conf


def test_a_folder_of_jars_takes_the_place_of_the_resolver(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    conf = plan_conf(SparkSettings(WORK, capabilities=("postgres",), jars=tmp_path))
    assert conf["spark.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"
    assert "spark.jars.packages" not in conf


@pytest.mark.parametrize(
    ("settings", "field", "fix"),
    [
        (SparkSettings(WORK, capabilities=("db2",)), "spark.capabilities", "coordinates"),
        (
            SparkSettings(WORK, capabilities=("x",), coordinates={"x": "a:b"}),
            "spark.coordinates.x",
            COORDINATES["postgres"],
        ),
        (SparkSettings(WORK, capabilities=("postgres",), jars=Path("/none")), "spark.jars", COORDINATES["postgres"]),
        (
            SparkSettings(WORK, conf={"spark.sql.session.timeZone": "CET"}),
            "spark.conf.spark.sql.session.timeZone",
            "Leave",
        ),
    ],
)
def test_settings_that_cannot_be_met_are_refused_with_the_fix(settings: SparkSettings, field: str, fix: str) -> None:
    with pytest.raises(RejectedError) as refused:
        plan_conf(settings)
    assert refused.value.field == field
    assert fix in refused.value.hint


def test_no_secret_shows_in_the_settings_or_in_a_refused_address() -> None:
    remote = "sc://localhost:15002/;token=hush"
    settings = SparkSettings(WORK, remote=remote, conf={"spark.hadoop.fs.s3a.secret.key": "hush"})
    assert "hush" not in repr(settings)
    assert "localhost:15002" in repr(settings)
    assert hide_parameters(remote) == "sc://localhost:15002"
    with pytest.raises(RejectedError) as refused:
        parse_address("http://localhost:15002/;token=hush")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "remote",
    [
        "sc://localhost:15002;token=hush",
        "sc://localhost:15002/path;token=hush",
        "sc://localhost:15002/;token=hush;hush",
        "sc://user:hush@localhost:15002/",
        "sc://localhost/?token=hush",
        "sc://localhost/hush",
    ],
)
def test_no_address_that_is_refused_shows_a_secret(remote: str) -> None:
    with pytest.raises(RejectedError) as refused:
        parse_address(remote)
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(SparkSettings(WORK, remote=remote))


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("sc://h", ("h", 15002)),
        ("sc://h/", ("h", 15002)),
        ("sc://h/;token=x", ("h", 15002)),
        ("sc://h.example:7/;token=x;user_id=u", ("h.example", 7)),
    ],
)
def test_a_connect_url_gives_host_and_port(remote: str, address: tuple[str, int]) -> None:
    assert parse_address(remote) == address


@pytest.mark.parametrize(
    "key", ["spark.hadoop.fs.s3a.secret.key", "spark.x.password", "spark.my.Token", "a.access.key"]
)
def test_keys_of_secrets_are_known(key: str) -> None:
    assert is_secret(key)
    assert not is_secret("spark.sql.shuffle.partitions")


def test_what_the_site_s_defaults_have_is_added_to_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.executor.extraJavaOptions -Dcomment\n"
        "spark.executor.extraJavaOptions   -Dsite=1 -Xss2m\n"
        "spark.driver.extraJavaOptions=-Ddriver=1 \\\n  -Dmore=2\n"
        "spark.jars.packages: a:b:1\n"
        "spark.executor.memory 3g\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    conf = plan_conf(SparkSettings(WORK, master="spark://host:7077", capabilities=("postgres",)))
    assert conf["spark.executor.extraJavaOptions"] == "-Duser.timezone=UTC -Dsite=1 -Xss2m"
    assert conf["spark.driver.extraJavaOptions"].endswith(" -Ddriver=1   -Dmore=2")
    assert conf["spark.jars.packages"] == f"a:b:1,{COORDINATES['postgres']}"
    assert "spark.executor.memory" not in conf, "Spark itself reads it"
    given = plan_conf(SparkSettings(WORK, conf={"spark.executor.extraJavaOptions": "-Dmine=1"}))
    assert given["spark.executor.extraJavaOptions"] == "-Duser.timezone=UTC -Dmine=1"


@pytest.mark.parametrize("text", ["0", "-1", "ten", "nan", "inf"])
def test_a_wait_is_a_positive_number_of_seconds(text: str) -> None:
    assert (read_wait_s({}), read_wait_s({WAIT_VARIABLE: "1.5"})) == (WAIT_S, 1.5)
    with pytest.raises(RejectedError, match=WAIT_VARIABLE):
        read_wait_s({WAIT_VARIABLE: text})
