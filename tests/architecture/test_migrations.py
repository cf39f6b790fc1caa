"""A database that was migrated is the database that ``tables.py`` describes."""

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from gobblin_assets.db import schema
from gobblin_assets.db.alembic_runs import alembic_config
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.schema import SchemaRelation
from gobblin_assets.db.schema_history import LOG_HISTORY, SchemaHistory
from gobblin_assets.db.tables import SCHEMA
from gobblin_assets.errors import RejectedError
from gobblin_assets.service.postgres.history import SERVICE_HISTORY
from tests.support import postgres

# Everything that belongs to the schema, as Postgres itself writes it down; Alembic's table left out.
CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               a.attgenerated::text, pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = CAST(:schema AS regnamespace) AND c.relkind = 'r' AND a.attnum > 0
        AND NOT a.attisdropped AND c.relname <> 'alembic_version'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, contype::text, condeferrable, convalidated,
               pg_get_constraintdef(oid)
        FROM pg_constraint
        WHERE connamespace = CAST(:schema AS regnamespace) AND conrelid::regclass::text !~ 'alembic_version'
    """,
    "indexes": """
        SELECT tablename, indexname, indexdef FROM pg_indexes
        WHERE schemaname = :schema AND tablename <> 'alembic_version'
    """,
    "ranges": """
        SELECT t.typname, r.rngsubtype::regtype::text, o.opcname, r.rngcollation::regcollation::text
        FROM pg_range r JOIN pg_type t ON t.oid = r.rngtypid JOIN pg_opclass o ON o.oid = r.rngsubopc
        WHERE t.typnamespace = CAST(:schema AS regnamespace)
    """,
    "relations": """
        SELECT relname, relkind::text, relpersistence::text, reloptions::text FROM pg_class
        WHERE relnamespace = CAST(:schema AS regnamespace) AND relname !~ 'alembic_version'
    """,
}


@pytest.fixture(params=[LOG_HISTORY, SERVICE_HISTORY], ids=lambda history: history.schema)
def history(request: pytest.FixtureRequest, engine: Engine) -> SchemaHistory:
    """Each schema of this package, upgraded."""
    found: SchemaHistory = request.param
    schema.upgrade(engine, history=found)
    return found


def _catalog(engine: Engine, history: SchemaHistory) -> dict[str, list[tuple[object, ...]]]:
    with engine.connect() as connection:
        return {
            kind: sorted((tuple(row) for row in connection.execute(text(query), {"schema": history.schema})), key=repr)
            for kind, query in CATALOG.items()
        }


def test_migrations_make_the_tables_of_the_code(engine: Engine, server: EmbeddedServer, history: SchemaHistory) -> None:
    with postgres.temporary_database(server) as name:
        described = open_external(server.url(name))
        history.load_metadata().create_all(described)
        expected = _catalog(described, history)
        described.dispose()

    found = _catalog(engine, history)

    assert min(len(rows) for kind, rows in expected.items() if kind != "ranges") > 0
    assert bool(expected["ranges"]) is (history is LOG_HISTORY)
    assert found == expected


def test_alembic_finds_nothing_to_migrate(engine: Engine, history: SchemaHistory) -> None:
    status = schema.check(engine, history)

    assert status.relation is SchemaRelation.CURRENT
    assert status.differences == ()


def test_check_names_a_table_that_somebody_changed(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {SCHEMA}.lease DROP COLUMN owner"))

    differences = schema.check(engine).differences

    assert len(differences) == 1
    assert "add_column" in differences[0]
    assert "owner" in differences[0]


def test_upgrading_again_changes_nothing(engine: Engine, history: SchemaHistory) -> None:
    before = _catalog(engine, history)

    assert schema.upgrade(engine, history=history) == schema.read_version(engine, history)

    assert _catalog(engine, history) == before


def test_versions_are_told_without_alembic_as_alembic_tells_them(history: SchemaHistory) -> None:
    revisions = [each.revision for each in ScriptDirectory.from_config(alembic_config(history)).walk_revisions()]
    assert schema.list_versions(history) == revisions[::-1]


def test_a_newer_schema_of_the_service_does_not_lock_out_who_only_uses_the_log(engine: Engine) -> None:
    schema.upgrade(engine, history=SERVICE_HISTORY)
    with engine.begin() as connection:
        connection.execute(text("UPDATE gobblin_service.alembic_version SET version_num = '9999'"))

    assert schema.read_version(engine, SERVICE_HISTORY).relation is SchemaRelation.NEWER
    assert schema.upgrade(engine).relation is SchemaRelation.CURRENT
    with pytest.raises(RejectedError, match="newer than this package"):
        schema.upgrade(engine, history=SERVICE_HISTORY)
