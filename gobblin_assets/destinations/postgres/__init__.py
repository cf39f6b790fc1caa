"""Tables of a database as destinations: rows are staged as files, and loaded together with a mark of their lane.

A lane has one mark in the database, which changes in the same transaction as the rows. So whoever goes on with a
publication can ask whether it is there, and no process loads it twice, however late it wakes up.
"""
