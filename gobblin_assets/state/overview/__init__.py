"""People's queries on the log: datasets, positions, intervals, sequences and runs. This package only reads.

Each answer is one statement, so it is one snapshot; two answers may show two moments.
"""
