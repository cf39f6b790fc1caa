"""Composition of this project itself: the code location that `workspace.yaml` names, and the profiles it runs with.

A project of one's own has a composition of its own: the classes are in ``gobblin_assets.dagster.resources``.
"""
