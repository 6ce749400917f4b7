"""Starts the runner: a script is compiled each time that it runs, what it imports is not."""

import sys

sys.path[:0] = ["/.box/inside", "/.box"]

import runner  # noqa: E402

if __name__ == "__main__":
    runner.main()
