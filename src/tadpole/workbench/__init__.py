"""Use on one's own repository: solve, gate, passport, review, apply."""
