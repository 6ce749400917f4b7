"""Files that run inside the sandbox: standard library only, Python 3.6 and newer."""
