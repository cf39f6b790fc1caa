"""A Kafka broker of this machine's own: for the demo, the benchmarks and the tests."""
