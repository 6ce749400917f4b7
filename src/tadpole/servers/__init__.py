"""Finding out, by doing, whether a server of a model can be worked with, and what to change."""
