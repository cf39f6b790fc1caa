"""Job files: specification, rules between fields, parsing, and the windows and names of partitions."""
