"""URLs of Postgres in libpq's form: what the driver is told is what libpq itself reads, or the URL is refused."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from gobblin_assets.db.jdbc_url import plan_libpq, read_postgres_url
from gobblin_assets.destinations.iceberg.catalog_address import read_catalog_address
from gobblin_assets.destinations.postgres.database_address import read_address
from gobblin_assets.errors import RejectedError
from gobblin_assets.sources.environment import find_shown_kind, list_capabilities
from gobblin_assets.sources.jdbc.database_connection import DatabaseConnection
from gobblin_assets.sources.postgres_log.log_database import LogDatabase
from gobblin_assets.spec.job_parsing import parse_job

JOB = parse_job(
    {"job": "shop", "source": {"connection": "main"}, "destination": "/data/lake", "datasets": [{"urn": "t"}]}
)
PLACES: dict[str, tuple[str, Callable[[str], str]]] = {
    "jdbc": ("connections[main].url", lambda url: DatabaseConnection(url=url).connection("main").url),
    "postgres_log": ("connections[main].url", lambda url: LogDatabase(url=url).connection("main").url),
    "tables": ("GOBBLIN_JDBC_MAIN_URL", lambda url: read_address("main", {"GOBBLIN_JDBC_MAIN_URL": url}).url),
    "iceberg": (
        "GOBBLIN_ICEBERG_MAIN_URL",
        lambda url: (
            read_catalog_address(
                "main", {"GOBBLIN_ICEBERG_MAIN_URL": url, "GOBBLIN_ICEBERG_MAIN_WAREHOUSE": "/data"}
            ).url
        ),
    ),
}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> tuple[str, Callable[[str], str]]:
    return PLACES[request.param]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql://h:1/db?tcpKeepAlive=true", "jdbc:postgresql://h:1/db?tcpKeepAlive=true"),
        ("postgresql://h/db", "jdbc:postgresql://h/db"),
        ("postgres://h:5433/my%20db", "jdbc:postgresql://h:5433/my%20db"),
        ("postgresql+psycopg://h/db", "jdbc:postgresql://h/db"),
        ("postgresql://a:1,[::1]:2,c/db", "jdbc:postgresql://a:1,[::1]:2,c/db"),
        ("postgresql://h/a+b", "jdbc:postgresql://h/a%2Bb"),
        (
            "postgresql://h/db?application_name=a+b&target_session_attrs=standby&sslmode=verify-full",
            "jdbc:postgresql://h/db?ApplicationName=a%2Bb&targetServerType=secondary&sslmode=verify-full",
        ),
        (
            "postgresql://h?options=-c%20geqo%3Doff&currentSchema=s",
            "jdbc:postgresql://h/?options=-c%20geqo%3Doff&currentSchema=s",
        ),
    ],
)
def test_each_place_takes_libpq_s_form_beside_the_driver_s(
    place: tuple[str, Callable[[str], str]], url: str, expected: str
) -> None:
    _, read = place
    assert read(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h/d",
        "postgres://hunter2@h/d",
        "postgresql://u:hunter2/x@h:5432/d",
        "postgresql://h/d?password=hunter2",
        "postgresql://h/d?sslpassword=hunter2",
        "jdbc:postgresql://u:hunter2@h/d",
        "jdbc:postgresql://hunter2@h/d",
        "jdbc:postgresql://h/d?user=u&password=hunter2",
    ],
)
def test_a_user_and_a_password_in_the_url_are_refused_without_showing_them(
    place: tuple[str, Callable[[str], str]], url: str
) -> None:
    field, read = place
    with pytest.raises(RejectedError, match="expected a URL without a user and a password") as refused:
        read(url)
    assert refused.value.field == field
    assert "password" in refused.value.hint.lower()
    assert "hunter2" not in str(refused.value) + repr(refused.value.fields)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql:///db", "postgresql://host:5432/database"),
        ("postgresql://%2Ftmp/db", "localhost"),
        ("postgresql://h:/db", "postgresql://host:5432/database"),
        ("postgresql://a,,b/db", "several with commas"),
        ("postgresql://h/db?host=/tmp", "found 'host'"),
        ("postgresql://h/db?connect_timeout=3", "found 'connect_timeout'"),
        ("postgresql://h/db?ssl=true", "sslmode"),
        ("postgresql://h/db?service=x", "found 'service'"),
        ("postgresql://h/db?sslmode", "found 'sslmode'"),
        ("postgresql://h/db?a%20b=1", "found another one"),
        ("postgresql://h/db?target_session_attrs=read-write", "Write primary"),
    ],
)
def test_what_the_driver_can_t_be_told_is_refused_with_what_to_write(
    place: tuple[str, Callable[[str], str]], url: str, said: str
) -> None:
    field, read = place
    with pytest.raises(RejectedError) as refused:
        read(url)
    assert refused.value.field == field
    assert said in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://h/d", "postgresq://h/d", "http://postgresql://h", "postgresql:h", ""])
def test_any_other_url_is_no_url_of_postgres(url: str) -> None:
    assert read_postgres_url(url, field="f", beside="b") is None


@pytest.mark.parametrize("url", ["postgresql://h/db", "postgres://h/db", "jdbc:postgresql://h/db"])
def test_each_form_says_which_driver_spark_needs_and_what_dagster_shows(url: str) -> None:
    environment = {"GOBBLIN_JDBC_MAIN_URL": url}
    assert list_capabilities([JOB], environment) == ["postgres"]
    assert find_shown_kind(JOB.source, environment) == "postgres"


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
_SERVERS = st.lists(
    st.tuples(st.sampled_from(["a", "db-1.example.com", "10.0.0.1", "[::1]"]), st.sampled_from(["", ":5432", ":6432"])),
    min_size=1,
    max_size=3,
).map(lambda servers: ",".join(map("".join, servers)))
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "user": _TEXT,
        "sslmode": st.sampled_from(["disable", "require", "verify-full"]),
        "sslrootcert": _TEXT,
        "application_name": _TEXT,
        "options": _TEXT,
        "target_session_attrs": st.sampled_from(["any", "primary", "standby"]),
    },
)


@given(_SERVERS, _TEXT, _OPTIONS, st.sampled_from(["", "+-._~"]))
def test_a_connection_has_what_libpq_reads_in_the_url(
    servers: str, database: str, options: dict[str, str], safe: str
) -> None:
    query = "&".join(f"{name}={quote(value, safe=safe)}" for name, value in options.items())
    url = f"postgresql://{servers}/{quote(database, safe=safe)}?{query}"
    expected = conninfo_to_dict(url)
    ports = str(expected.pop("port", "")).split(",")
    count = len(str(expected["host"]).split(","))
    expected["port"] = ",".join(port or "5432" for port in (ports if len(ports) == count else ports * count))

    read = read_postgres_url(url, field="f", beside="b")
    assert read is not None
    found = plan_libpq(read, None, None, {})
    assert {name: found[name] for name in expected} == expected
