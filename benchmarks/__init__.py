"""Figures of the whole product, measured side by side: ``python -m benchmarks``. No test depends on them."""
