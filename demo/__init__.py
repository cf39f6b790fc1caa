"""The demo: real tables, a run killed in the middle of a publication, its recovery, and the proof."""
