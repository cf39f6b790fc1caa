"""Pure values: what the product talks about. Nothing here reads a clock, a disk or a network."""
