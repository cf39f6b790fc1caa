"""What planning asks Postgres about many tables, and what the questions leave behind."""

from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from gobblin_assets.errors import RejectedError
from gobblin_assets.model.watermark import WatermarkType
from gobblin_assets.sources.jdbc.connection import JdbcConnection
from gobblin_assets.sources.jdbc.failures import judge_words
from gobblin_assets.sources.jdbc.names import TableName
from gobblin_assets.sources.jdbc.postgres import PostgresCatalog, open_postgres
from gobblin_assets.sources.jdbc.postgres_arrow import ReaderConnections
from tests.support.logged_changes import read_table
from tests.support.postgres import Database

ONE, OTHER, NONE = TableName("public", "one"), TableName(None, "other"), TableName("public", "none")
LOCKED = """
    SELECT relation::regclass::text FROM pg_locks
     WHERE mode = 'AccessShareLock' AND pid <> pg_backend_pid() AND relation >= 16384
       AND relation::regclass::text IN ('one', 'other')"""


@pytest.fixture
def catalog(fresh_database: Database) -> Iterator[PostgresCatalog]:
    with fresh_database.connect() as sql:
        sql.execute("CREATE DOMAIN money_in AS numeric(9, 2)")
        sql.execute("CREATE DOMAIN price AS money_in")
        sql.execute("CREATE TABLE one (id bigint PRIMARY KEY, price price, prices price[], name varchar(7) NOT NULL)")
        sql.execute("COMMENT ON TABLE one IS 'the first'")
        sql.execute("COMMENT ON COLUMN one.price IS 'in euros'")
        sql.execute("CREATE TABLE other (a int, b text, PRIMARY KEY (b, a))")
        sql.execute("ALTER TABLE other ADD COLUMN gone int")
        sql.execute("ALTER TABLE other DROP COLUMN gone")
    connection = JdbcConnection(fresh_database.jdbc_url, fresh_database.user, fresh_database.password, name="c")
    with open_postgres(connection, read_timeout_s=60) as opened:
        yield opened


@pytest.mark.parametrize("names", [[], [ONE, NONE, OTHER]], ids=["one by one", "at once"])
def test_tables_are_the_same_asked_at_once_or_one_by_one(catalog: PostgresCatalog, names: list[TableName]) -> None:
    catalog.look_up(names)
    one, other = catalog.find_table(ONE), catalog.find_table(OTHER)
    assert one is not None
    assert other is not None
    assert catalog.find_table(NONE) is None
    assert [(c.name, c.type_text, c.nullable, c.watermark_type, c.comment) for c in one.columns] == [
        ("id", "bigint", False, WatermarkType.LONG, None),
        ("price", "numeric(9,2)", True, None, "in euros"),
        ("prices", "numeric(9,2)[]", True, None, None),
        ("name", "character varying(7)", False, WatermarkType.STRING, None),
    ]
    assert (str(one.name), one.primary_key, one.comment) == ("public.one", ("id",), "the first")
    assert (str(other.name), other.primary_key, other.comment) == ("public.other", ("b", "a"), None)
    assert [column.name for column in other.columns] == ["a", "b"]
    held = {each.name: each.held_as for each in catalog.select(one, ["price", "id"], {"id": "id::text"})}
    assert held == {"price": "decimal(9,2)", "id": "string"}


def test_a_wrong_question_about_one_table_leaves_the_others_locked(
    catalog: PostgresCatalog, fresh_database: Database
) -> None:
    for name in (ONE, OTHER):
        table = catalog.find_table(name)
        assert table is not None
        catalog.estimate(table, "")
    with pytest.raises(RejectedError, match="nothing"):
        catalog.fetch_row("SELECT nothing FROM other", [WatermarkType.LONG])
    with fresh_database.connect() as sql:
        # The failed question gives back what was asked for its own table.
        assert sql.execute(LOCKED).fetchall() == [("one",)]
    assert catalog.fetch_row("SELECT count(*) FROM one", [WatermarkType.LONG]) == (0,)


@pytest.mark.parametrize("pages", [1, 300_000, 100_000_000])
def test_quantiles_are_known_of_tables_of_any_size(fresh_database: Database, pages: int) -> None:
    """``pages``: what the statistics say; 300,000 are more bytes than an int holds."""
    with fresh_database.connect() as sql:
        sql.execute("CREATE TABLE large AS SELECT n FROM generate_series(1, 1000) n")
        sql.execute("ANALYZE large")
        sql.execute(f"UPDATE pg_class SET relpages = {pages} WHERE relname = 'large'".encode())
    connection = JdbcConnection(fresh_database.jdbc_url, fresh_database.user, fresh_database.password, name="c")
    with open_postgres(connection, read_timeout_s=60) as later:
        table = later.find_table(TableName("public", "large"))
        assert table is not None
        found = [each.value for each in later.find_quantiles(table, table.columns[0], 1000)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (1, 1000)


def test_rows_that_a_policy_hides_fail_each_reader_of_the_table(fresh_database: Database) -> None:
    """A copy of the rows that the user is shown would say that the others are gone."""
    name = f"reader_{fresh_database.database[-12:]}"
    with fresh_database.connect() as sql:
        sql.execute("CREATE TABLE hidden AS SELECT n FROM generate_series(1, 6) n")
        sql.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret-enough'".encode())
        try:
            sql.execute(f"GRANT SELECT ON hidden TO {name}".encode())
            hidden = replace(fresh_database, user=name, password="secret-enough")
            assert read_table(hidden, "hidden").num_rows == 6
            sql.execute("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
            with pytest.raises(RejectedError, match='row-level security policy for table "hidden"') as found:
                read_table(hidden, "hidden")
            assert "BYPASSRLS" in str(found.value.hint)
            _require_readers_fail(hidden)
        finally:
            sql.execute(f"DROP OWNED BY {name}".encode())
            sql.execute(f"DROP ROLE {name}".encode())


def _require_readers_fail(database: Database) -> None:
    """Those of Arrow, and those of Spark, whose sessions begin with the same statements."""
    connection = JdbcConnection(database.jdbc_url, database.user, database.password, name="c")
    with open_postgres(connection, read_timeout_s=60) as catalog:
        readers = ReaderConnections(connection, catalog.list_reader_statements())
        with pytest.raises(Exception, match="row-level security") as found, readers.take() as reader:
            reader.execute("SELECT count(*) FROM hidden")
        readers.close()
        judged = judge_words(str(found.value), connection)
        assert isinstance(judged, RejectedError)
        assert "BYPASSRLS" in str(judged.hint)
        with database.connect(autocommit=False) as session:
            session.execute(catalog.read_properties(1000)["sessionInitStatement"].encode())
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                session.execute("SELECT count(*) FROM hidden")
