"""Alternatives, measured beside the product: dlt, Sling, ingestr, and a Spark script.

dlt, Sling and ingestr are set up for speed as their documentation says, each in its own environment (``environments``).
All load the same tables of the same Postgres into files on the same disk, each in a process of its own.
"""
