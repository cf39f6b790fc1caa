"""Names, connections and the discovery's file: people's texts are read back exactly, and secrets stay hidden."""

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.errors import CorruptionError, RejectedError
from gobblin_assets.sources.discovery import find_changes, find_discovery, write_discovery
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.jdbc_kind import JdbcSourceSpec
from gobblin_assets.sources.jdbc.names import TableName, parse_table_name
from gobblin_assets.sources.jdbc.postgres_sessions import plan_conninfo

_PART = st.text(min_size=1, max_size=12)
_NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@given(st.one_of(st.none(), _PART), _PART)
def test_any_table_name_reads_back(schema: str | None, table: str) -> None:
    assert parse_table_name(str(TableName(schema, table)), field="table") == TableName(schema, table)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a.b.c", 'a"b', '"a', 'a."b"c'])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(RejectedError, match="is not the name of a table"):
        parse_table_name(text, field="datasets[x].table")


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:postgresql://h/d?user=u&password=hunter2",
        "jdbc:postgresql://u:hunter2@h/d",
        "jdbc:postgresql://u:hunter2/x@h:5432/d",
        "jdbc:derby:memory:x;user=u;password=hunter2",
        "jdbc:somebody://h;databaseName=d;Password = hunter2",
        "jdbc:mysql://(host=h,password=hunter2)/d",
        "jdbc:postgresql://h/d?sslpassword=hunter2",
    ],
)
def test_a_password_inside_the_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(RejectedError) as refused:
        JdbcConnection(url)
    assert "hunter2" not in str(refused.value) + repr(refused.value.fields)
    assert "password" in refused.value.hint
    assert refused.value.field == "connections[jdbc].url"


def test_a_secret_shows_neither_in_the_repr_nor_in_scrubbed_text() -> None:
    connection = JdbcConnection(
        "jdbc:postgresql://h/d", "u", "p@ss/word", properties={"trustStorePassword": "inner-secret", "ssl": "true"}
    )
    assert "p@ss" not in repr(connection)
    assert "inner-secret" not in repr(connection)
    assert connection.scrub("login p@ss/word p%40ss%2Fword inner-secret true") == "login *** *** *** true"


def test_a_driver_is_known_or_must_be_given() -> None:
    assert JdbcConnection("jdbc:postgresql://h/d").driver_class == "org.postgresql.Driver"
    assert JdbcConnection("jdbc:db2://h/d", driver="com.ibm.Driver").driver_class == "com.ibm.Driver"
    with pytest.raises(RejectedError, match="driver"):
        JdbcConnection("jdbc:db2://h/d")
    with pytest.raises(RejectedError, match="dbtable can't be set"):
        JdbcConnection("jdbc:postgresql://h/d", properties={"dbtable": "other"})
    with pytest.raises(RejectedError, match="expected a JDBC URL"):
        JdbcConnection("postgresql://h/d")


def test_the_url_of_the_driver_becomes_libpq_parameters() -> None:
    found = plan_conninfo(
        JdbcConnection("jdbc:postgresql://a:1,[::1]:2,c/my%20db?sslmode=require&currentSchema=s", "u", "p")
    )
    assert (found["host"], found["port"], found["dbname"]) == ("a,::1,c", "1,2,5432", "my db")
    assert (found["user"], found["password"], found["sslmode"]) == ("u", "p", "require")
    assert found["options"] == "-c search_path=s"
    assert plan_conninfo(JdbcConnection("jdbc:postgresql:d", "u"))["host"] == "localhost"
    assert plan_conninfo(JdbcConnection("jdbc:postgresql://h:5432/d?user=me@x"))["user"] == "me@x"


def test_a_discovery_reads_back_and_tells_what_changed(tmp_path: Path) -> None:
    source = JdbcSourceSpec(connection="main", include=("public.*",), exclude=("*_old",))
    path = tmp_path / "new" / "tables.json"
    assert find_discovery(path) is None
    written = write_discovery(path, ["public.b", "public.a", "audit.x", "public.a_old"], source, _NOON)
    assert find_discovery(path) == written
    assert written.selected(source) == ("public.a", "public.b")
    assert find_changes(written, ["public.a", "public.b", "audit.y"], source) is None
    said = find_changes(written, ["public.b", "public.C"], source)
    assert said is not None
    assert "new: public.C; gone: public.a" in said
    assert [file.name for file in path.parent.iterdir()] == ["tables.json"]
    with pytest.raises(RejectedError, match=r"source\.connection"):
        written.selected(JdbcSourceSpec(connection="other"))
    path.write_text('{"format": 9}')
    with pytest.raises(CorruptionError, match=r"tables\.json"):
        find_discovery(path)
