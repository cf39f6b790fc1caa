"""The product's pure values. Nothing here reads a clock, a disk or a network."""
