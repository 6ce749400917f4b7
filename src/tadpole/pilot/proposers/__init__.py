"""Proposers: each looks at a snapshot and hands over candidates, the same for the same seed.

=============== ============================================================ ===================
module          proposes                                                     kind of task
=============== ============================================================ ===================
``singlesite``  one operator at one place of covered code                    bug fix
``composition`` two or three such bugs at once                               bug fix
``history``     what people once changed, taken back                         as its words say
``removal``     a body, or a group of helpers that run together, taken out   feature
``rename``      a routine under its old name, everywhere                     refactor
``migration``   calls that the running Python no longer knows                migration
``mixed``       several of them by weight
``author``      what a model writes, its tests included                      any of the five
=============== ============================================================ ===================

All but the last work without a model, and none of these makes a performance task: whether code
is fast enough no test that is there decides.
"""
