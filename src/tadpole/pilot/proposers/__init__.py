"""Proposers: each looks at a snapshot and hands over candidates. All seeded and offline.

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
=============== ============================================================ ===================

None of them makes a performance task: whether code is fast enough no existing test decides.
"""
