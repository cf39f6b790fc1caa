"""What a person asks the log: datasets, positions, intervals, sequences and runs. It only reads.

Each answer is one statement, hence one snapshot; two answers may tell of two moments.
"""
