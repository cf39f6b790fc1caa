"""Postgres: the engine, its tables and migrations, transactions that survive a lost acknowledgement, and the
embedded server that is the default store.
"""
