"""Job kinds: one package each, behind the port that the engine runs."""
