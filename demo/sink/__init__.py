"""The demo with a sink: several workers publish one topic at once, while orders are written to it."""
