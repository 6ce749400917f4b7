"""Grading: patches from contents, filtered input, and hidden tests in a box of their own."""
