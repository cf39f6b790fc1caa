"""Tables of a JDBC connection as datasets: what is read, up to which position, and by which parallel reads.

The promise: a run reads exactly the rows that one pinned view of the table holds in ``[low, high)``. Postgres
pins that view by an exported snapshot that all readers share; elsewhere each reader sees its own, and the
commit lag and the late window cover what commits in between. Values come out as they went in, or are refused.
Authoritative: the source's catalogue for schema, its clock for what is old enough, its positions for order.
Not promised: rows deleted at the source, or whose position moves down, are not noticed by an append.
"""
