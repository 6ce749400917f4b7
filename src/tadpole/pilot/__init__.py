"""TaskPilot: makes validated tasks from a real repository and sets them to the policy's frontier.

propose (``proposers``) -> validate (``validate``) -> word (``statement``) -> gate -> save
(``taskdir``) -> calibrate (``calibrate``) -> tell (``harvest``). The first five are chained by
:func:`tadpole.pilot.make.make_tasks`.
"""
