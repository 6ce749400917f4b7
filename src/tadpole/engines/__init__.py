"""Where a climb runs: here, or on a cluster by another trainer; and what either needs."""
