"""Tadpole raises a small coding agent on your own hardware.

Read :mod:`tadpole.protocols` first: five interfaces, one page. Data then flows one way,
``repos -> pilot -> tasks -> leaf in a sandbox -> grading -> rl -> policy``, and every arrow
leaves rows in a run directory that ``report`` reads.
"""

__version__ = "0.1.0"
