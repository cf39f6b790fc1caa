"""Distcp as a job kind: whole files are copied, and published at fixed names."""
