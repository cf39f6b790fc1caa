"""Queries of people on the log: datasets, positions, intervals, sequences and runs. This package only reads.

Each answer is one statement, hence one snapshot; two answers may be of two moments.
"""
