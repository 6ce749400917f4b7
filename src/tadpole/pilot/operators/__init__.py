"""Single-site mutation operators on syntax trees. Each keeps the file's formatting.

Operators live one concern a file and register themselves; ``OPERATORS`` is the whole set.
"""

from tadpole.pilot.operators import arithmetic, body, calls, coroutines, logic, statements
from tadpole.pilot.operators.registry import OPERATORS, Operator, Splice

__all__ = [
    "OPERATORS",
    "Operator",
    "Splice",
    "arithmetic",
    "body",
    "calls",
    "coroutines",
    "logic",
    "statements",
]
