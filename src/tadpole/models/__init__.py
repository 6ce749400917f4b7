"""Policies: the embedded one, any Hugging Face directory in this process, and scripted ones."""
