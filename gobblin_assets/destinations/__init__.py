"""Where jobs publish: one module for each kind of destination, behind the port in ``run.destination``."""
