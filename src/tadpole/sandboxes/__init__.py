"""Isolated work trees: the bubblewrap engine, its in-box runner, and the probe."""
