"""A database that was migrated is the database that ``tables.py`` describes."""

from alembic.script import ScriptDirectory
from sqlalchemy import Engine, text

from gobblin_assets.db import schema
from gobblin_assets.db.alembic_runs import alembic_config
from gobblin_assets.db.embedded import EmbeddedServer
from gobblin_assets.db.engine import open_external
from gobblin_assets.db.schema import SchemaRelation
from gobblin_assets.db.tables import SCHEMA, metadata
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


def _catalog(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    with engine.connect() as connection:
        return {
            kind: sorted((tuple(row) for row in connection.execute(text(query), {"schema": SCHEMA})), key=repr)
            for kind, query in CATALOG.items()
        }


def test_migrations_make_the_tables_of_the_code(engine: Engine, server: EmbeddedServer) -> None:
    with postgres.temporary_database(server) as name:
        described = open_external(server.url(name))
        metadata.create_all(described)
        expected = _catalog(described)
        described.dispose()

    found = _catalog(engine)

    assert min(len(rows) for rows in expected.values()) > 0
    assert found == expected


def test_alembic_finds_nothing_to_migrate(engine: Engine) -> None:
    status = schema.check(engine)

    assert status.relation is SchemaRelation.CURRENT
    assert status.differences == ()


def test_check_names_a_table_that_somebody_changed(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {SCHEMA}.lease DROP COLUMN owner"))

    differences = schema.check(engine).differences

    assert len(differences) == 1
    assert "add_column" in differences[0]
    assert "owner" in differences[0]


def test_upgrading_again_changes_nothing(engine: Engine) -> None:
    before = _catalog(engine)

    assert schema.upgrade(engine) == schema.read_version(engine)

    assert _catalog(engine) == before


def test_versions_are_told_without_alembic_as_alembic_tells_them() -> None:
    revisions = [each.revision for each in ScriptDirectory.from_config(alembic_config()).walk_revisions()]
    assert schema.list_versions() == revisions[::-1]
