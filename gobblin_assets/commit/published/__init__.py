"""What a dataset is, as the ledger says it: the exact files of its finished sequences.

Authoritative are the segments of DONE sequences that no DONE sequence has retired. They are read in one
snapshot, so that a reader never sees a part of a sequence, nor two generations of a partition.
Not promised: that the files still stand when a lazy reader opens them much later; retired ones are kept for
``retire_grace_s`` for that reason.
"""
