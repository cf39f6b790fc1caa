"""The demo of runs that load rows elsewhere than into files."""
