"""The report of a run: one HTML file, no scripts, nothing fetched."""
