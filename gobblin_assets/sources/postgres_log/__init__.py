"""The change logs of Postgres tables, by logical decoding (the plugin ``pgoutput``)."""
