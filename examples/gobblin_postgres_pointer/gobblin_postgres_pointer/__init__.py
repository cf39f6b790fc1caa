"""A commit step that moves a pointer in a Postgres table: one row a dataset, which names the newest publication."""
