"""Who gets an engine, on which schema, and that no password shows."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql
from sqlalchemy import URL, make_url, text
from sqlalchemy.exc import DBAPIError

from gobblin_assets.db import schema
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import connect, open_external, open_for_upgrade, parse_database_url
from gobblin_assets.db.schema import SchemaRelation
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.settings import Settings
from tests.support import postgres
from tests.support.postgres import Database

WAIT_S_MAX = 150
POLL_S = 0.02
PASSWORD = "s3cr3t/with+odd characters"


def quiet(_line: str) -> None:
    """Ignores progress."""


@pytest.fixture
def external(server: EmbeddedServer, fresh_database: Database) -> Iterator[str]:
    """A URL with a password, of an ordinary role that may create schemas in one empty database."""
    role = f"ordinary_{secrets.token_hex(4)}"
    with postgres.maintenance(server) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD {}").format(
                sql.Identifier(role), sql.Literal(PASSWORD)
            )
        )
        connection.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(
                sql.Identifier(fresh_database.database), sql.Identifier(role)
            )
        )
    url = make_url("postgresql://").set(
        username=role,
        password=PASSWORD,
        host=fresh_database.host,
        port=fresh_database.port,
        database=fresh_database.database,
    )
    yield url.render_as_string(hide_password=False)
    with fresh_database.connect() as connection:
        connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(role)))
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def external_settings(url: str) -> Settings:
    return Settings(home=Path("/nowhere"), database_url=url)


def test_the_embedded_server_starts_and_upgrades_itself(home: Path) -> None:
    lines: list[str] = []
    engine = connect(Settings(home=home), lines.append)
    try:
        assert schema.check(engine).relation is SchemaRelation.CURRENT
        assert any("Upgrading the schema 'gobblin' from nothing" in line for line in lines)
    finally:
        engine.dispose()
    again: list[str] = []
    connect(Settings(home=home), again.append).dispose()
    assert again == []


def test_an_external_schema_is_never_upgraded_unasked(external: str) -> None:
    with pytest.raises(RejectedError, match=r"at version none, this package needs .*gobblin-assets db upgrade"):
        connect(external_settings(external), quiet)

    engine = open_external(external)
    assert schema.check(engine).relation is SchemaRelation.ABSENT
    engine.dispose()


def test_an_ordinary_role_upgrades_and_works(external: str) -> None:
    settings = external_settings(external)
    for_upgrade = open_for_upgrade(settings, quiet)
    status = schema.upgrade(for_upgrade)
    for_upgrade.dispose()

    engine = connect(settings, quiet)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO gobblin.dataset (job, urn) VALUES ('job', 'public.orders')"))
    assert schema.check(engine) == status
    engine.dispose()


def test_a_role_that_may_not_create_is_told_what_to_grant(external: str, fresh_database: Database) -> None:
    role = make_url(external).username or ""
    with fresh_database.connect() as connection:
        connection.execute(
            sql.SQL("REVOKE CREATE ON DATABASE {} FROM {}").format(
                sql.Identifier(fresh_database.database), sql.Identifier(role)
            )
        )
    engine = open_external(external)

    with pytest.raises(RejectedError, match=r"permission denied .*GRANT CREATE ON DATABASE"):
        schema.upgrade(engine)

    engine.dispose()


def test_a_schema_of_a_newer_package_is_refused_by_everything(external: str) -> None:
    engine = open_external(external)
    schema.upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin.alembic_version SET version_num = '9999'"))

    with pytest.raises(RejectedError, match=r"version 9999, which is newer .*Upgrade the package"):
        connect(external_settings(external), quiet)
    with pytest.raises(RejectedError, match="newer"):
        schema.upgrade(engine)

    assert schema.check(engine).relation is SchemaRelation.NEWER
    engine.dispose()


def test_upgrades_at_once_wait_for_each_other_and_make_one_schema(external: str, fresh_database: Database) -> None:
    engine = open_external(external)
    lines: list[str] = []
    found: list[schema.SchemaStatus] = []
    upgrades = [threading.Thread(target=lambda: found.append(schema.upgrade(engine, lines.append))) for _ in range(3)]
    with engine.begin() as blocker:
        blocker.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": schema.LOG_HISTORY.lock_key})
        for upgrade in upgrades:
            upgrade.start()
        wait_for_lock_waiters(fresh_database, len(upgrades))
        assert found == []
    for upgrade in upgrades:
        upgrade.join(WAIT_S_MAX)

    assert [status.relation for status in found] == [SchemaRelation.CURRENT] * 3
    assert len(lines) == 1
    engine.dispose()


def wait_for_lock_waiters(database: Database, wanted: int) -> None:
    """Return when Postgres says that so many sessions wait for an advisory lock."""
    deadline = time.monotonic() + WAIT_S_MAX
    with database.connect() as connection:
        while time.monotonic() < deadline:
            row = connection.execute(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).fetchone()
            if row == (wanted,):
                return
            time.sleep(POLL_S)
    raise AssertionError(f"never saw {wanted} sessions wait")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (f"mysql://user:{PASSWORD}@host/db", "found the dialect 'mysql'"),
        (f"postgresql+asyncpg://user:{PASSWORD}@host/db", "found the dialect 'postgresql\\+asyncpg'"),
        (PASSWORD, "no database URL"),
        (f"postgresql://user@{PASSWORD}@host/db", "more than one '@'"),
        (f"postgresql://user:name@host:{PASSWORD}/db", "no database URL"),
    ],
)
def test_a_url_that_is_not_postgres_is_refused_without_being_repeated(url: str, message: str) -> None:
    with pytest.raises(RejectedError, match=f"GOBBLIN_DATABASE_URL: .*{message}") as caught:
        parse_database_url(url)

    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"])
def test_every_spelling_of_postgres_gets_our_driver(scheme: str) -> None:
    url, connection_secrets = parse_database_url(f"{scheme}://user:word@host:5433/db?sslmode=require")

    assert url.render_as_string(hide_password=False) == "postgresql+psycopg://user:word@host:5433/db?sslmode=require"
    assert connection_secrets == {}


def test_a_password_in_the_query_leaves_the_url(external: str) -> None:
    url = make_url(external)
    bare = URL.create("postgresql", url.username, None, url.host, url.port, url.database)
    moved = bare.update_query_dict({"password": PASSWORD})
    engine = open_external(moved.render_as_string(hide_password=False))

    assert "s3cr3t" not in f"{engine!r} {engine.url!r} {engine.url.render_as_string(hide_password=False)}"
    with engine.connect() as connection:
        assert connection.execute(text("SELECT current_user")).scalar_one() == url.username
    engine.dispose()


def test_no_error_shows_the_password(external: str) -> None:
    engine = open_external(external)
    shown = [repr(engine), repr(external_settings(external))]
    with engine.connect() as connection:
        with pytest.raises(DBAPIError) as caught:
            # The server repeats the parameter in its own message; the driver's text is scrubbed as well as ours.
            connection.execute(text("SELECT CAST(:value AS integer)"), {"value": PASSWORD})
        error: BaseException | None = caught.value
        while error is not None:
            shown.append(f"{error!s} {error!r}")
            error = error.__cause__ or error.__context__
    engine.dispose()

    assert len(shown) > 3
    assert "invalid input syntax" in " ".join(shown)
    assert "s3cr3t" not in " ".join(shown)


def test_wrong_credentials_are_rejected_and_a_silent_server_is_retryable(external: str) -> None:
    wrong = make_url(external).set(password="other-s3cr3t").render_as_string(hide_password=False)
    with pytest.raises(RejectedError, match="password authentication failed") as rejected:
        connect(external_settings(wrong), quiet)

    absent = make_url(external).set(host="127.0.0.1", port=1).render_as_string(hide_password=False)
    with pytest.raises(RetryableError, match="does not answer") as retryable:
        connect(external_settings(absent), quiet)

    assert "s3cr3t" not in f"{rejected.value} {rejected.value.fields} {retryable.value} {retryable.value.fields}"
