"""What sources and destinations on Kafka have in common: the connection as a value, and what its client reports."""
