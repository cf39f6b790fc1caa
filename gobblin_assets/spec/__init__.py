"""What a job file says: specification, rules between its fields, parsing, the windows and names of its partitions."""
