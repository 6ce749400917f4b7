"""Repositories: sources, runtimes, test runs, and the snapshots made of them."""
