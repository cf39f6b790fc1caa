"""Destinations, where jobs publish: a module or a folder for each kind, behind the port in ``run.destination``."""
