"""TaskPilot: makes validated tasks from a real repository and sets them to the policy's frontier.

propose (``proposers``) -> validate (``validate``) -> word (``statement``) -> gate -> save
(``taskdir``) -> calibrate (``calibrate``). :func:`tadpole.pilot.make.make_tasks` chains them.
"""
