"""The demo with a database's change log: a shop's tables are followed while they are written to."""
