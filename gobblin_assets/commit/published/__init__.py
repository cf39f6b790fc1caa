"""The published files of a dataset: the exact files of its finished sequences, as the ledger has them.

The segments of DONE sequences that no DONE sequence has retired are authoritative. They are read in one
snapshot, so that a reader never sees a part of a sequence, or two generations of a partition.
Not promised: that the files still exist when a lazy reader opens them much later. Retired files are kept for
``retire_grace_s`` for such readers.
"""
