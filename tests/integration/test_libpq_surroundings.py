"""Connections of ours take nothing from libpq's variables, from ~/.pgpass or from a service file."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, text

from gobblin_assets.dagster.instance import HOME_VARIABLE, URL_VARIABLE, prepare_instance, storage_url
from gobblin_assets.db import embedded
from gobblin_assets.db.embedded import EmbeddedServer, ServerState
from gobblin_assets.db.engine import connect, open_external
from gobblin_assets.db.libpq import list_variables
from gobblin_assets.errors import RejectedError
from gobblin_assets.settings import UNASKED_VARIABLES, Settings, forget_unasked_variables
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.postgres import open_postgres
from tests.support import postgres
from tests.support.postgres import Database
from tests.support.surroundings import HOSTILE

pytestmark = pytest.mark.turns(of=8)

SETTABLE = sorted(set(HOSTILE) - set(UNASKED_VARIABLES))
QUESTION = "SELECT current_setting('TimeZone') || ' ' || current_setting('DateStyle')"


@pytest.fixture
def role(server: EmbeddedServer, fresh_database: Database) -> Iterator[Database]:
    """The empty database, with a role of its own."""
    name, password = f"plain_{secrets.token_hex(4)}", secrets.token_hex(8)
    with postgres.maintenance(server) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(name), sql.Literal(password))
        )
    yield Database(
        fresh_database.host, fresh_database.port, name, password, fresh_database.database, "", fresh_database.jdbc_url
    )
    with postgres.maintenance(server) as connection:
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.rotating(of=3)
@pytest.mark.core
@pytest.mark.parametrize("variable", SETTABLE)
def test_no_variable_reaches_a_connection(
    server: EmbeddedServer, role: Database, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, HOSTILE[variable])

    state = embedded.status(server.data_directory.parents[1]).state
    url = f"postgresql://{role.user}:{role.password}@{role.host}:{role.port}/{role.database}"
    said = []
    for each in (server.url(role.database), url):
        engine = open_external(each)
        with engine.connect() as connection:
            said.append(connection.execute(text(QUESTION)).scalar())
        engine.dispose()
    with open_postgres(JdbcConnection(role.jdbc_url, role.user, role.password), read_timeout_s=60) as catalog:
        assert catalog.list_tables() == []
    for settings in (Settings(Path("/nowhere"), url), Settings(Path("/nowhere"), server.url(role.database))):
        storage = create_engine(storage_url(settings, print))
        with storage.connect() as connection:
            assert connection.execute(text("SELECT 1")).scalar() == 1
        storage.dispose()

    assert state is ServerState.RUNNING
    assert said == ["UTC ISO, MDY"] * 2


def test_the_command_line_starts_the_embedded_server_under_all_of_them(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".pgpass").write_text("*:*:*:*:wrong\n", encoding="utf-8")
    (tmp_path / ".pgpass").chmod(0o600)
    environment = {**os.environ, **HOSTILE, "HOME": str(tmp_path), "GOBBLIN_HOME": str(home)}
    environment.pop("GOBBLIN_DATABASE_URL", None)
    done = subprocess.run(
        [sys.executable, "-m", "gobblin_assets.cli", "status", "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout or "null")) == (0, []), done.stderr
    # libpq warns about a password file that is not a file.
    assert "WARNING" not in done.stderr


def test_dagster_s_storage_works_under_all_of_them(home: Path) -> None:
    own = prepare_instance(Settings(home=home), lambda _line: None)
    code = (
        "import dagster as dg, json, sys\n"
        "with dg.DagsterInstance.from_config(sys.argv[1]) as instance:\n"
        "    instance.add_dynamic_partitions('tenants', ['acme'])\n"
        "    print(json.dumps(list(instance.get_dynamic_partitions('tenants'))))\n"
    )
    environment = {**os.environ, **HOSTILE, **own}
    # As `gobblin-assets dagster` passes it on.
    forget_unasked_variables(environment)
    done = subprocess.run(
        [sys.executable, "-c", code, own[HOME_VARIABLE]],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["acme"]
    assert own[URL_VARIABLE].startswith("postgresql+psycopg2://")


def test_a_password_file_is_taken_only_if_the_url_names_it(
    role: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = tmp_path / ".pgpass"
    passwords.write_text(f"*:*:*:*:{role.password}\n", encoding="utf-8")
    passwords.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    monkeypatch.setenv("PGPASSWORD", role.password)
    url = f"postgresql://{role.user}@{role.host}:{role.port}/{role.database}"
    psycopg.connect(url).close()

    with pytest.raises(RejectedError, match="no password supplied"):
        connect(Settings(Path("/nowhere"), url), print)
    with (
        pytest.raises(RejectedError, match="no password supplied"),
        open_postgres(JdbcConnection(role.jdbc_url, role.user), read_timeout_s=60),
    ):
        pass
    asked = open_external(f"{url}?passfile={passwords}")
    with asked.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar() == 1
    asked.dispose()


def test_a_service_is_taken_only_if_the_url_names_it(
    role: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tmp_path / "services"
    services.write_text(
        f"[mine]\nhost={role.host}\nport={role.port}\ndbname={role.database}\npassword={role.password}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    asked = open_external(f"postgresql://{role.user}@/?service=mine")
    with asked.connect() as connection:
        assert connection.execute(text("SELECT current_database()")).scalar() == role.database
    asked.dispose()

    monkeypatch.setenv("PGSERVICE", "mine")
    with pytest.raises(RejectedError, match="no password supplied"):
        connect(Settings(Path("/nowhere"), f"postgresql://{role.user}@{role.host}:{role.port}/{role.database}"), print)


@pytest.mark.parametrize("variable", ["PGSERVICE", "PGTZ", "PGDATESTYLE", "PGGEQO"])
def test_a_variable_that_no_parameter_outdoes_is_named_where_it_breaks_somebody_else_s_process(
    server: EmbeddedServer, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "nonsense")

    for ask in (
        lambda: embedded.status(server.data_directory.parents[1]),
        lambda: connect(Settings(Path("/nowhere"), server.url("postgres")), print),
    ):
        with pytest.raises(RejectedError) as caught:
            ask()
        assert caught.value.fields["field"] == variable


@pytest.mark.core
def test_every_variable_of_this_libpq_has_a_hostile_value_here() -> None:
    assert set(list_variables().values()) <= set(HOSTILE)
    assert len(SETTABLE) > 30
