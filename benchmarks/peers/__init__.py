"""What people would take instead, measured beside the product: dlt, Sling, ingestr, and a Spark script.

Each is set up as its own documentation says for speed, in an environment of its own (``environments``), and loads the
same tables of the same Postgres into files on the same disk. Whatever is compared starts as a process of its own.
"""
