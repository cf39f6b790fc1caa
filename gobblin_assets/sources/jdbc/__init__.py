"""Tables of a JDBC connection as datasets: what is read, up to which position, and by which parallel reads.

The promise: a run reads exactly the rows that one pinned view of the table holds in ``[low, high)``. Postgres
pins that view by an exported snapshot that all readers share. In other databases each reader has its own view, and the
commit lag and the late window cover what commits in between. Values come out as they went in, or are refused.
The source decides: its catalogue the schema, its clock what is old enough, its positions the order.
Not promised: an append does not notice rows that are deleted at the source, or whose position moves down.
"""
