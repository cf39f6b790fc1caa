"""Folders of CSV files as a source of gobblin_assets."""
