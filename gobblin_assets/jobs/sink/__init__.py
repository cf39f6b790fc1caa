"""Sinks over logs as a job kind: workers read vnodes of a log, and cut what they gathered at barriers."""
