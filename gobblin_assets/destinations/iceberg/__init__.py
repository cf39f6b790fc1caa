"""Tables of Iceberg as destinations: rows are staged as files, and appended by one commit that also moves their mark.

The mark of a lane is a property of the table, which outlives snapshots. Each commit requires that the table still has
the snapshot at which the mark was read. No commit is repeated on a newer snapshot without a new look at the mark.
pyiceberg is imported only where such a table is opened.
"""
