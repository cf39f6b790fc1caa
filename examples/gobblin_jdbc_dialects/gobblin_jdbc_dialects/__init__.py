"""Oracle and SQL Server for the JDBC source of gobblin_assets."""
