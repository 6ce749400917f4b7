"""Leaf, the five-tool harness: tools, call formats, prompts, dialogue and the episode loop."""
