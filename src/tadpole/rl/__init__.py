"""Reinforcement learning: the published update as pure functions, and the loop around them."""
