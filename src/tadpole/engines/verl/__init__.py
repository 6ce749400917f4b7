"""A climb on verl 0.9.1. All imports of verl are in this package; ``symbols`` names what is used.

Nothing here is loaded unless a cluster was asked for; ``overrides`` and ``places`` need no verl.
"""
