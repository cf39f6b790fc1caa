"""The server of the tests of change logs."""

from tests.support.postgres import Database


def test_the_source_decodes_its_changes_and_its_slots_end_with_it(source_database: Database) -> None:
    with source_database.connect() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [source_database.database])
        connection.execute("INSERT INTO t VALUES (1)")
        found = connection.execute(
            "SELECT convert_from(substr(data, 1, 1), 'UTF8') FROM pg_logical_slot_get_binary_changes("
            "%s, NULL, NULL, 'proto_version', '1', 'publication_names', 'p')",
            [source_database.database],
        ).fetchall()
    assert found == [("B",), ("R",), ("I",), ("C",)]
