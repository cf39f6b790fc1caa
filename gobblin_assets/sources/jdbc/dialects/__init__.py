"""One file for each database: the SQL that the database takes, and how its values reach Spark unchanged."""
