"""One file for each database: the SQL that it takes, and how its values travel to Spark unchanged."""
