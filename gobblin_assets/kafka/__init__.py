"""The common part of sources and destinations on Kafka: the connection as a value, and what its client reports."""
