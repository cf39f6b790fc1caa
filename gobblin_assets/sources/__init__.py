"""Sources: one package each, behind the port in ``source_port``."""
