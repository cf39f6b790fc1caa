"""The demo of copies."""
