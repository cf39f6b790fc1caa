"""Sources: one package each, behind the port in ``port``."""
