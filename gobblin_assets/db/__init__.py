"""Postgres: the engine, tables and migrations, transactions that survive a lost acknowledgement, and the embedded
server, which is the default store.
"""
