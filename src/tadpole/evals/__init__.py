"""Measuring a policy: evaluate, intervals, scoreboard, comparison."""
